"""The folder of Markdown files: a session each, and the index."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import TextIO

from autocode.jobs.operations.export.views import Manifest, Progress, bag_name, load_manifest
from autocode.jobs.operations.views.account import account_of, caution_of
from autocode.jobs.operations.views.blocks import Call
from autocode.jobs.operations.views.library import Entry, Library, Session, by_folder
from autocode.jobs.operations.views.markdown.render import Renderer
from autocode.jobs.operations.views.markdown.text import front_matter, inline
from autocode.jobs.operations.views.tree import new_page, write_tree
from autocode.jobs.operations.views.turns import blocks_of
from autocode.jobs.operations.views.wording import (
    clock_text,
    count_text,
    day_text,
    gap_text,
    plural,
    shortened,
    zone_text,
)
from autocode.jobs.store import ObjectStore

__all__ = ["write_markdown"]


def write_markdown(store: ObjectStore, digest: str, parent: Path, progress: Progress | None = None) -> Path:
    """Write the export *digest* as Markdown into a folder of its own in *parent*; return the folder.

    ``index.md`` in it leads to a file a session; a subagent's transcript has a file of its own, to which its
    call links. The same artifact gives the same bytes. Memory is bounded by the longest record. Atomic and
    idempotent, as :func:`~.tree.write_tree` is.

    Args:
        store: where the export's objects are.
        digest: the artifact.
        parent: an existing folder; nothing outside it is written.
        progress: told the bytes of records read and to be read; each is read twice. May raise to stop.

    Raises:
        UsageError: *digest* is no export, *parent* can't be written to, or something else has the name.
        DiskFull: there is no room; nothing is left behind.
        ObjectMissing: an object of the export isn't in the store; nothing is left behind.
        ObjectCorrupt: an object of the export is damaged; nothing is left behind.
    """
    manifest = load_manifest(store, digest)

    def fill(root: Path) -> None:
        library = Library(store, manifest, ".md", progress)
        entries = [_file(root, session, library) for session in library.sessions()]
        with new_page(root, "index.md") as out:
            _index(out, manifest, digest, entries)

    return write_tree(parent, f"{bag_name(digest)}-markdown", fill)


def _file(root: Path, session: Session, library: Library) -> Entry:
    agents: dict[str, tuple[str, str]] = {}
    if session.last:
        for each in library.sessions(library.agents_of(session.source)):
            with new_page(root, each.page) as out:
                _write(out, each, {})
            agents[each.source.agent_name] = each.overview.headline, each.page
    with new_page(root, session.page) as out:
        _write(out, session, agents)
    return Entry(session.source, session.overview, session.page, list(agents.values()))


def _write(out: TextIO, session: Session, agents: dict[str, tuple[str, str]]) -> None:
    overview, source = session.overview, session.source
    out.write(front_matter(_front(session)))
    out.write(f"\n\n# {inline(overview.headline)}\n\n")
    caution = caution_of(source, session.report, overview, session.count)
    if caution:
        out.write(f"*Not everything is in this file: {caution}. The account is at its end.*\n\n")
    is_agent = source.parent_path is not None
    renderer = Renderer(_text(overview.session.get("cwd")) or None, agent=is_agent)
    folder = posixpath.dirname(session.page)
    named = set()
    for block in blocks_of(session.records, agent=is_agent):
        out.write(renderer.render(block))
        agent = overview.agents.get(block.call_id or "") if isinstance(block, Call) else None
        if agent in agents:
            named.add(agent)
            out.write(
                f"↳ [Subagent: {inline(agents[agent][0])}]({posixpath.relpath(agents[agent][1], folder)})\n\n"
            )
    for name in sorted(agents.keys() - named):
        title, page = agents[name]
        out.write(f"↳ [Subagent that no call names: {inline(title)}]({posixpath.relpath(page, folder)})\n\n")
    out.write("---\n\n## Account\n\n")
    for heading, rows in account_of(source, session.report, overview):
        out.write(f"**{heading}**\n\n")
        out.writelines(f"- {inline(name)}: {inline(value)}\n" for name, value in rows)
        out.write("\n")


def _front(session: Session) -> dict[str, object]:
    overview, source, record = session.overview, session.source, session.overview.session
    return {
        "title": overview.headline,
        "tool": record.get("tool") or source.tool,
        "tool_version": record.get("tool_version"),
        "session_id": record.get("session_id"),
        "agent_id": record.get("agent_id"),
        "parent_session_id": record.get("parent_session_id"),
        "folder": record.get("cwd"),
        "branch": record.get("git_branch"),
        "models": list(overview.models),
        "begun": overview.first_at,
        "ended": overview.last_at,
        "begun_local": None if overview.first_at else overview.first_local,
        "ended_local": None if overview.first_at else overview.last_local,
        "prompts": overview.prompt_count,
        "replies": overview.replies,
        "tool_calls": overview.calls.total(),
        "tool_errors": overview.errors,
        "tokens": {name: count for name, count in sorted(overview.tokens.items()) if count} or None,
        "cost_usd": None if overview.cost is None else round(overview.cost, 6),
        "bundle_path": f"{source.path}.jsonl",
        "source_sha256": source.facts.sha256,
    }


def _index(out: TextIO, manifest: Manifest, digest: str, entries: list[Entry]) -> None:
    redaction = "nothing" if manifest.redaction is None else str(manifest.redaction.get("name"))
    front = {
        "title": "Sessions of coding agents",
        "artifact": digest,
        "sessions": len(entries),
        "redacted_by": redaction,
    }
    out.write(front_matter(front))
    out.write(f"\n\n# {plural(len(entries), 'session')}\n\n")
    if manifest.redaction is None:
        out.write("**Nothing was redacted.** Don't publish these files.\n\n")
    for folder, found in by_folder(entries):
        out.write(f"## {inline(folder) or 'No folder known'}\n\n")
        out.write("| Begun (UTC) | Session | Tool | Duration | Prompts | Calls | Tokens out |\n")
        out.write("|---|---|---|---:|---:|---:|---:|\n")
        for entry in found:
            out.write(_row(entry))
            out.writelines(
                f"| | ↳ [{inline(shortened(title, 80))}]({page}) | | | | | |\n"
                for title, page in entry.agents
            )
        out.write("\n")


def _row(entry: Entry) -> str:
    overview = entry.overview
    begun = f"{day_text(overview.begun)}, {clock_text(overview.begun)}" if overview.begun else ""
    begun += zone_text(overview.begun) if overview.begun and not overview.first_at else ""
    tokens = count_text(overview.tokens["output"]) if overview.tokens.get("output") else ""
    cells = [
        begun,
        f"[{inline(overview.headline)}]({entry.page})",
        inline(entry.source.tool),
        gap_text(overview.seconds) if overview.seconds else "",
        f"{overview.prompt_count:,}",
        f"{overview.calls.total():,}",
        tokens,
    ]
    return f"| {' | '.join(cells)} |\n"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
