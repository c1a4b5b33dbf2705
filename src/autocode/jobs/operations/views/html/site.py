"""The folder of pages: the sessions one after the other, then the index."""

from __future__ import annotations

import posixpath
from collections import Counter
from pathlib import Path
from typing import Any

from autocode.jobs.operations.export.views import Manifest, Progress, bag_name, load_manifest
from autocode.jobs.operations.views.account import date_text
from autocode.jobs.operations.views.html.assets import environment, load_assets
from autocode.jobs.operations.views.html.page import INLINE, SessionPage
from autocode.jobs.operations.views.library import Entry, Library, Session, by_folder
from autocode.jobs.operations.views.tree import new_page, write_tree
from autocode.jobs.operations.views.wording import (
    clock_text,
    count_text,
    day_text,
    gap_text,
    plural,
    readable,
    tokens_text,
)
from autocode.jobs.store import ObjectStore

__all__ = ["write_html"]


def write_html(store: ObjectStore, digest: str, parent: Path, progress: Progress | None = None) -> Path:
    """Write the export *digest* as pages to read into a folder of its own in *parent*; return the folder.

    ``index.html`` in it leads to a page a session; a subagent's transcript lies in its parent's page, or has
    a page of its own where it is long. The same artifact gives the same bytes. Memory is bounded by the
    longest record, however long a session is. Atomic and idempotent, as :func:`~.tree.write_tree` is.

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
        library = Library(store, manifest, ".html", progress)
        entries = [_page(root, session, library) for session in library.sessions()]
        _index(root, manifest, digest, entries)

    return write_tree(parent, f"{bag_name(digest)}-html", fill)


def _page(root: Path, session: Session, library: Library) -> Entry:
    agents, pages = [], {}
    if session.last:
        # their pages come first, because the parent's page links to them
        up = posixpath.relpath(session.page, posixpath.dirname(session.page) + "/x.agents")
        for source in library.agents_of(session.source):
            if source.size > INLINE:
                for each in library.sessions([source]):
                    with new_page(root, each.page) as out:
                        SessionPage(out, each, library, (readable(session.overview.headline), up)).write({})
                    pages[source.path] = each.page
                    agents.append((readable(each.overview.headline), each.page))
    with new_page(root, session.page) as out:
        page = SessionPage(out, session, library)
        page.write(pages)
    return Entry(session.source, session.overview, session.page, [*page.agents, *agents])


def _index(root: Path, manifest: Manifest, digest: str, entries: list[Entry]) -> None:
    groups = [
        (readable(folder) or "no folder known", [_row(entry) for entry in found])
        for folder, found in by_folder(entries)
    ]
    with new_page(root, "index.html") as out:
        pieces = (
            environment()
            .get_template("index.html")
            .generate(
                assets=load_assets(),
                title=f"{plural(len(entries), 'session')}, {bag_name(digest)}",
                name=bag_name(digest),
                digest=digest,
                entries=entries,
                groups=groups,
                tools=sorted({entry.source.tool for entry in entries}),
                facts=_facts(entries),
                cautions=_cautions(manifest),
            )
        )
        out.writelines(pieces)


def _row(entry: Entry) -> dict[str, Any]:
    overview, facts = entry.overview, entry.source.facts
    flags = [plural(facts.damaged, "damaged span")] if facts.damaged else []
    redacted = sum(facts.redacted.values())
    flags += [f"{redacted:,} redacted"] if redacted else []
    tags = [entry.source.tool, *overview.models]
    tags += [plural(overview.errors, "tool error")] if overview.errors else []
    return {
        "href": entry.page,
        "tool": entry.source.tool,
        "title": readable(overview.headline),
        "first": overview.opening if overview.title else "",
        "tags": " · ".join(readable(tag) for tag in tags),
        "flags": flags,
        "agents": [(f"Subagent: {title}", href) for title, href in entry.agents],
        "begun": f"{(overview.begun or '0').translate(_DIGITS):0<17}"[:17],
        "first_at": overview.begun,
        "zone": "" if overview.first_at else "local time, zone not stated",
        "date": f"{day_text(overview.begun)}, {clock_text(overview.begun)}",
        "seconds": int(overview.seconds or 0),
        "duration": gap_text(overview.seconds) if overview.seconds else "",
        "prompts": overview.prompt_count,
        "calls": overview.calls.total(),
        "tokens_out": overview.tokens.get("output", 0),
        "tokens": count_text(overview.tokens["output"]) if overview.tokens.get("output") else "",
    }


_DIGITS = {ord(sign): None for sign in "-:TZ."}


def _facts(entries: list[Entry]) -> list[tuple[str, str]]:
    tokens: Counter[str] = Counter()
    for entry in entries:
        tokens.update(entry.overview.tokens)
    stated = [entry.overview for entry in entries if entry.overview.first_at]
    # a time without a zone can't be put in order with one that has it, to the hour
    dated = stated or [entry.overview for entry in entries]
    firsts = [overview.begun for overview in dated if overview.begun]
    lasts = [overview.ended for overview in dated if overview.ended]
    tools = Counter(entry.source.tool for entry in entries)
    models = sorted({model for entry in entries for model in entry.overview.models})
    rows = [
        ("When", date_text(min(firsts, default=None), max(lasts, default=None))),
        ("Tools", ", ".join(f"{tool} {count:,}" for tool, count in sorted(tools.items()))),
        ("Models", ", ".join(readable(model) for model in models)),
        ("Prompts", f"{sum(entry.overview.prompt_count for entry in entries):,}"),
        ("Tool calls", f"{sum(entry.overview.calls.total() for entry in entries):,}"),
        ("Tokens", tokens_text(tokens)),
    ]
    return [row for row in rows if row[1]]


def _cautions(manifest: Manifest) -> list[str]:
    lines = []
    if manifest.redaction is None:
        lines.append(
            "Nothing was redacted: secrets stand here as they were recorded. Don't publish these pages."
        )
    else:
        count = sum(sum(source.redacted.values()) for source in manifest.sources)
        words = plural(count, "secret was", "secrets were") if count else "No secret was"
        lines.append(f"{words} found and redacted. No policy knows every secret: look before you publish.")
    if manifest.unread:
        kinds = Counter(each.kind for each in manifest.unread)
        told = ", ".join(f"{kind} {count:,}" for kind, count in sorted(kinds.items()))
        lines.append(f"Not here, because no reader understands them: {told}.")
    if manifest.left_out:
        told = ", ".join(f"{reason} {count:,}" for reason, count in sorted(manifest.left_out.items()))
        lines.append(f"Not here, because they could not be read: {told}.")
    return lines
