"""``bundle``: the canonical manifest, whose digest is the identity of the export."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from autocode.jobs.canonical import canonical_json
from autocode.jobs.kinds import Produced, StepContext
from autocode.jobs.operations.export.payload import MANIFEST_TYPE, BundleInputs

__all__ = ["MANIFEST_FORMAT", "write_manifest"]

MANIFEST_FORMAT: Final = "autocode-export/1"

_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RESERVED: Final = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)}
)
"""Names that Windows keeps for devices, whatever follows the first dot."""


def write_manifest(context: StepContext, inputs: BundleInputs) -> Produced:
    """Write the manifest over the entries and everything they name.

    For each member its path, size and SHA-256; for each source its digest and size, the reader and its
    revision, and what was lost; the redaction policy; what stays unread, by digest and size. No clock, no
    host, no path of the machine; canonical JSON, sorted: the same sessions give the same bytes anywhere.
    """
    entries = {digest: json.loads(context.read(digest)) for digest in sorted(set(inputs.entries))}
    paths = _member_paths(entries)
    members: list[dict[str, Any]] = []
    sources: list[dict[str, Any]] = []
    needs: set[str] = set()
    for digest, entry in entries.items():
        path = paths[digest]
        size = len(canonical_json(entry))
        found: list[tuple[str, dict[str, Any]]] = [(f"{path}.report.json", {"digest": digest, "size": size})]
        found += [
            (f"{path}{ending}", entry[part])
            for part, ending in (("normal", ".jsonl"), ("raw", ".raw"))
            if entry[part] is not None
        ]
        members += [{"path": name, "sha256": each["digest"], "size": each["size"]} for name, each in found]
        needs.update(each["digest"] for _, each in found)
        sources.append(_source(path, entry))
    manifest = {
        "format": MANIFEST_FORMAT,
        "members": sorted(members, key=lambda member: str(member["path"])),
        "sources": sorted(sources, key=lambda source: str(source["path"])),
        "unread": [
            {"kind": kind, "sha256": sha256, "size": size} for kind, sha256, size in sorted(inputs.unread)
        ],
        "left_out": dict(sorted(inputs.left_out.items())),
        "redaction": inputs.policy,
        "totals": _totals(entries.values(), members),
    }
    return context.put([canonical_json(manifest)], MANIFEST_TYPE, needs=needs)


def _source(path: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    report = entry["report"] or {}
    return {
        "path": path,
        "sha256": entry["source"]["sha256"],
        "size": entry["source"]["size"],
        "reader": report.get("reader"),
        "revision": report.get("revision", 0),
        "records": sum(report.get("records", {}).values()),
        "lost": report.get("lost", {}),
        "damaged": report.get("damaged_total", 0),
        "damaged_bytes": report.get("damaged_bytes", 0),
        "redacted": (entry["redaction"] or {}).get("counts", {}),
    }


def _totals(entries: Any, members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    totals: Counter[str] = Counter(sessions=0, records=0, damaged=0, redacted=0, source_bytes=0)
    for entry in entries:
        source = _source("", entry)
        totals["sessions"] += entry["report"] is not None
        totals["records"] += source["records"]
        totals["damaged"] += source["damaged"]
        totals["redacted"] += sum(source["redacted"].values())
        totals["source_bytes"] += source["size"]
    totals["members"] = len(members)
    totals["member_bytes"] = sum(member["size"] for member in members)
    return dict(sorted(totals.items()))


def _member_paths(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Give each entry a path in the bundle, from ids recorded in the session and never from its file.

    Ids are hostile until proven otherwise: anything but a plain name is replaced by the source's digest, and
    two that differ in case alone, or not at all, both get the digest behind them.
    """
    wanted = {digest: _wanted_path(entry) for digest, entry in entries.items()}
    by_folded: dict[str, list[str]] = defaultdict(list)
    for digest, path in wanted.items():
        by_folded[path.casefold()].append(digest)
    return {
        digest: path
        if len(by_folded[path.casefold()]) == 1
        else f"{path}~{entries[digest]['source']['sha256'].removeprefix('sha256:')[:16]}"
        for digest, path in wanted.items()
    }


def _wanted_path(entry: Mapping[str, Any]) -> str:
    source = entry["source"]["sha256"].removeprefix("sha256:")
    report = entry["report"]
    if report is None:
        return f"data/unread/{source}"
    folder = f"data/sessions/{_plain(report['tool']) or 'unknown'}"
    session = _plain(report["session_id"]) or f"session-{source[:16]}"
    agent = report["agent_id"]
    if agent is None:
        return f"{folder}/{session}"
    return f"{folder}/{session}.agents/{_plain(agent) or f'agent-{source[:16]}'}"


def _plain(name: str | None) -> str | None:
    if name is None or not _SAFE.fullmatch(name) or name.endswith("."):
        return None
    return None if name.partition(".")[0].casefold() in _RESERVED else name
