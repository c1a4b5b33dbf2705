"""``bundle``: the canonical manifest, whose digest is the identity of the export."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from autocode.jobs.canonical import canonical_json
from autocode.jobs.kinds import Produced, StepContext
from autocode.jobs.operations.export.payload import MANIFEST_TYPE, BundleInputs

__all__ = ["DEVICES", "MANIFEST_FORMAT", "write_manifest"]

MANIFEST_FORMAT: Final = "autocode-export/1"

DEVICES: Final = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)}
)
"""Names that Windows keeps for devices, whatever follows the first dot."""

_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAMED: Final = (("normal", ".jsonl"), ("raw", ".raw"))


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the manifest takes from an entry; the rest of it, places and spans, isn't held."""

    wanted: str
    parts: int
    members: tuple[tuple[str, str, int], ...]
    source: dict[str, Any]


def write_manifest(context: StepContext, inputs: BundleInputs) -> Produced:
    """Write the manifest over the entries and everything they name.

    For each member its path, size and SHA-256; for each source its digest and size, the reader and its
    revision, and what was lost; the redaction policy; what stays unread, by digest and size. No clock, no
    host, no path of the machine; canonical JSON, sorted: the same sessions give the same bytes anywhere.
    """
    entries = [_entry(context, digest) for digest in sorted(set(inputs.entries))]
    placed = sorted(zip(_member_paths(entries), entries, strict=True), key=lambda each: each[0])
    members = sorted(
        (f"{path}{ending}", digest, size) for path, entry in placed for ending, digest, size in entry.members
    )
    return context.put(
        _manifest(inputs, members, placed), MANIFEST_TYPE, needs={digest for _, digest, _ in members}
    )


def _manifest(
    inputs: BundleInputs, members: Sequence[tuple[str, str, int]], placed: Sequence[tuple[str, _Entry]]
) -> Iterator[bytes]:
    """Yield the canonical JSON of the manifest in pieces: whole, as values, it would fill the memory."""
    unread = sorted(inputs.unread)
    fields: dict[str, Iterable[Any] | dict[str, Any] | str | None] = {
        "format": MANIFEST_FORMAT,
        "left_out": inputs.left_out,
        "members": ({"path": path, "sha256": sha256, "size": size} for path, sha256, size in members),
        "redaction": inputs.policy,
        "sources": (_placed(path, entry) for path, entry in placed),
        "totals": _totals([entry for _, entry in placed], members),
        "unread": ({"kind": kind, "sha256": sha256, "size": size} for kind, sha256, size in unread),
    }
    before = b"{"
    for name, value in fields.items():
        yield before + canonical_json(name) + b":"
        if value is None or isinstance(value, str | dict):
            yield canonical_json(value)
        else:
            yield from _array(value)
        before = b","
    yield b"}"


def _array(items: Iterable[Any]) -> Iterator[bytes]:
    before = b"["
    for item in items:
        yield before + canonical_json(item)
        before = b","
    yield b"]" if before == b"," else b"[]"


def _entry(context: StepContext, digest: str) -> _Entry:
    data = context.read(digest)
    entry = json.loads(data)
    report = entry["report"] or {}
    parts = entry.get("parts") or [entry]
    members = [(".report.json", digest, len(data))]
    members += [
        (f"{suffix}{ending}", part[form]["digest"], part[form]["size"])
        for suffix, part in zip(_suffixes(len(parts)), parts, strict=True)
        for form, ending in _NAMED
        if part[form] is not None
    ]
    source = {
        "sha256": entry["source"]["sha256"],
        "size": entry["source"]["size"],
        "reader": report.get("reader"),
        "revision": report.get("revision", 0),
        "sessions": report.get("sessions", 0),
        "records": sum(report.get("records", {}).values()),
        "lost": report.get("lost", {}),
        "damaged": report.get("damaged_total", 0),
        "damaged_bytes": report.get("damaged_bytes", 0),
        "redacted": (entry["redaction"] or {}).get("counts", {}),
    }
    return _Entry(_wanted_path(source["sha256"], entry["report"]), len(parts), tuple(members), source)


def _suffixes(parts: int) -> list[str]:
    """Return what stands behind the path of each part of a source; nothing behind the first one's."""
    return ["", *(f".part-{number:04}" for number in range(2, parts + 1))]


def _placed(path: str, entry: _Entry) -> dict[str, Any]:
    source = {**entry.source, "path": path}
    if entry.parts > 1:
        source["parts"] = [path + suffix for suffix in _suffixes(entry.parts)]
    return source


def _totals(entries: Sequence[_Entry], members: Sequence[tuple[str, str, int]]) -> dict[str, Any]:
    totals: Counter[str] = Counter(sessions=0, records=0, damaged=0, redacted=0, source_bytes=0)
    for entry in entries:
        source = entry.source
        totals["sessions"] += source["sessions"]
        totals["records"] += source["records"]
        totals["damaged"] += source["damaged"]
        totals["redacted"] += sum(source["redacted"].values())
        totals["source_bytes"] += source["size"]
    totals["members"] = len(members)
    totals["member_bytes"] = sum(size for _, _, size in members)
    return dict(totals)


def _member_paths(entries: Sequence[_Entry]) -> list[str]:
    """Give each entry a path in the bundle, from ids recorded in the session and never from its file.

    Ids are hostile until proven otherwise: anything but a plain name is replaced by the source's digest, and
    two that differ in case alone, or not at all, both get the digest behind them. All of it: a shorter piece
    of two sources can be made to agree.
    """
    by_folded: Counter[str] = Counter()
    for entry in entries:
        by_folded.update(_folded(entry))
    return [
        entry.wanted
        if all(by_folded[path] == 1 for path in _folded(entry))
        else f"{entry.wanted}~{_hex(entry.source['sha256'])}"
        for entry in entries
    ]


def _folded(entry: _Entry) -> list[str]:
    return [(entry.wanted + suffix).casefold() for suffix in _suffixes(entry.parts)]


def _wanted_path(sha256: str, report: Mapping[str, Any] | None) -> str:
    source = _hex(sha256)
    if report is None:
        return f"data/unread/{source}"
    folder = f"data/sessions/{_plain(report['tool']) or 'unknown'}"
    session = _plain(report["session_id"]) or f"session-{source[:16]}"
    agent = report["agent_id"]
    if agent is None:
        return f"{folder}/{session}"
    return f"{folder}/{session}.agents/{_plain(agent) or f'agent-{source[:16]}'}"


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _plain(name: str | None) -> str | None:
    if name is None or not _SAFE.fullmatch(name) or name.endswith("."):
        return None
    return None if name.partition(".")[0].casefold() in DEVICES else name
