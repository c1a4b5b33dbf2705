"""What a session's page says of the session and of itself: facts at the top, losses and damage at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from autocode.jobs.operations.views.overview import Overview
from autocode.jobs.operations.views.sources import SessionSource
from autocode.jobs.operations.views.wording import (
    clock_text,
    day_text,
    gap_text,
    plural,
    readable,
    shortened,
    tokens_text,
    zone_text,
)
from autocode.jobs.sessions import is_kept

__all__ = ["Rows", "account_of", "caution_of", "date_text", "facts_of"]

Rows = list[tuple[str, str]]
"""Names and values, in the order in which they are shown."""

_SPANS: Final = 100
_MEANING: Final = {
    "nul-byte": "NUL bytes between records",
    "byte-order-mark": "a mark at the beginning that means nothing",
    "invalid-utf8": "bytes that are no text, replaced by �",
    "lone-surrogate": "half characters, replaced by �",
    "big-integer": "integers past 64 bits, rounded",
    "absurd-time": "times that can't be meant",
    "thinking-signature": "signatures of thoughts, of use to the provider alone",
    "encrypted-thinking": "thoughts that only the provider can read",
    "encrypted-compaction": "compactions that only the provider can read",
    "replacement-history": "items of a second copy of the history",
    "duplicate-id": "ids that an earlier record has",
    "unusable-id": "ids that can't be one here",
    "id-limit": "records past the ids that are remembered",
    "cyclic-parent": "parents that run in a circle",
}


def facts_of(overview: Overview, source: SessionSource) -> Rows:
    """Return what is known of a session, without what isn't."""
    session = overview.session
    times = date_text(overview.begun, overview.ended)
    tool = " ".join(
        str(part) for part in (session.get("tool") or source.tool, session.get("tool_version")) if part
    )
    calls = plural(overview.calls.total(), "tool call") if overview.calls else ""
    errors = f" ({plural(overview.errors, 'error')})" if overview.errors else ""
    said = [plural(overview.prompt_count, "prompt"), plural(overview.replies, "reply", "replies")]
    rows = [
        ("Tool", tool),
        ("Model", ", ".join(overview.models)),
        ("When", times),
        ("Duration", gap_text(overview.seconds) if overview.seconds else ""),
        ("Said and done", ", ".join(each for each in [*said, calls + errors] if each)),
        ("Tokens", tokens_text(overview.tokens)),
        ("Cost, as stated", f"${overview.cost:.2f}" if overview.cost is not None else ""),
        ("Folder", str(session.get("cwd") or "")),
        ("Branch", str(session.get("git_branch") or "")),
    ]
    return [(name, shortened(value, 400)) for name, value in rows if value]


def date_text(first: str | None, last: str | None) -> str:
    """Return a span of times, the day of the end only where it is another; UTC, or said to have no zone."""
    if first is None or last is None:
        return ""
    end = clock_text(last) if first[:10] == last[:10] else f"{day_text(last)}, {clock_text(last)}"
    begin = f"{day_text(first)}, {clock_text(first)}"
    return (begin if first[:16] == last[:16] else f"{begin} to {end}") + zone_text(first)


def caution_of(
    source: SessionSource, report: Mapping[str, Any], overview: Overview, sessions: int = 1
) -> str:
    """Return what the bundle lacks of the original, in one line; empty where nothing that can be read is.

    Args:
        source: whose manifest counts it.
        report: the source's.
        overview: the session's.
        sessions: how many the source has; these counts are of all of them together.
    """
    facts = source.facts
    parts = []
    if facts.damaged:
        parts.append(f"{plural(facts.damaged, 'damaged span')} ({plural(facts.damaged_bytes, 'byte')})")
    redacted = sum(facts.redacted.values()) or int((report.get("redaction") or {}).get("total") or 0)
    if redacted:
        parts.append(plural(redacted, "redacted secret"))
    lost = sum(count for name, count in facts.lost.items() if _takes_something(name, overview))
    if lost:
        parts.append(plural(lost, "loss", "losses"))
    if parts and sessions > 1:
        parts[-1] += f" in all {sessions:,} sessions of its file"
    return ", ".join(parts)


def _takes_something(name: str, overview: Overview) -> bool:
    if name == "absurd-time":
        return overview.first_local is None
    # what is kept stands on the page as it is
    return name not in _OF_NO_USE and not is_kept(name)


_OF_NO_USE: Final = frozenset({"thinking-signature", "byte-order-mark", "nul-byte"})
"""Losses that take nothing from who reads; the account has them, the top of a page doesn't."""


def account_of(
    source: SessionSource, report: Mapping[str, Any], overview: Overview
) -> list[tuple[str, Rows]]:
    """Return the sections of the account: the records, losses, damage, redactions and origin."""
    facts = source.facts
    sections: list[tuple[str, Rows]] = []
    records = sorted(overview.records.items())
    sections.append(
        ("Records on this page", [(name.replace("_", " "), f"{count:,}") for name, count in records])
    )
    if facts.lost:
        lost = [
            (readable(name), f"{count:,}: {_meaning(name, overview)}")
            for name, count in sorted(facts.lost.items())
        ]
        sections.append(("Lost from the original", lost))
    if facts.damaged:
        spans = (report.get("report") or {}).get("damaged") or []
        rows = [
            (f"byte {span['offset']:,}", f"{plural(span['length'], 'byte')}, {span['reason']}")
            for span in spans[:_SPANS]
        ]
        left = facts.damaged - len(rows)
        rows += [("and", plural(left, "further span"))] if left else []
        sections.append(("Damaged, not on this page", rows))
    if facts.redacted:
        rows = [(name, f"{count:,}") for name, count in sorted(facts.redacted.items())]
        sections.append(("Redacted", rows))
    sections.append(("Original", _origin(source, overview)))
    return sections


def _origin(source: SessionSource, overview: Overview) -> Rows:
    facts, session = source.facts, overview.session
    rows = [
        ("in the bundle", f"{source.path}.jsonl"),
        ("file", f"{facts.size:,} bytes, {facts.sha256}"),
        ("read by", f"{facts.reader}, revision {facts.revision}"),
        ("session", str(session.get("session_id") or "")),
        ("subagent", str(session.get("agent_id") or "")),
        ("goes on from", str(session.get("parent_session_id") or "")),
        ("commit", str(session.get("git_commit") or "")),
        ("repository", str(session.get("git_remote") or "")),
    ]
    return [(name, shortened(value, 400)) for name, value in rows if value]


def _meaning(name: str, overview: Overview) -> str:
    if name == "absurd-time" and overview.first_local is not None:
        return "times without a zone, shown as they stand"
    kind = name.partition(":")[0]
    if kind in {"unknown-type", "unknown-shape", "unknown-part"}:
        return "not understood, kept whole"
    return _MEANING.get(name, "see the bundle's report")
