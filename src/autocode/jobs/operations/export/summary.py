"""An export in numbers, for people who look at its run: what it holds, and what was lost or left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Final

from autocode.jobs.kinds import Produced
from autocode.jobs.operations.export.manifest import Manifest, parse_manifest
from autocode.jobs.sessions import is_kept

__all__ = ["summarize_export"]

_LARGEST: Final = 8 << 20
"""Bytes of a manifest that are parsed: more would hold the interpreter's lock for too long."""

_TOTALS: Final = {
    "sessions": "sessions",
    "records": "records",
    "source_bytes": "bytes of sessions",
    "members": "files in the bundle",
    "member_bytes": "bytes in the bundle",
    "redacted": "secrets redacted",
    "damaged": "damaged spans",
}

_REASON: Final = re.compile(r"[a-z][a-z-]*")


def summarize_export(read: Callable[[str], bytes], produced: Produced) -> dict[str, int]:
    """Return the totals of the export *produced*, and its losses by their reason.

    Empty for a manifest of more than 8 MiB, about ten thousand sessions. Reasons are the readers' own words:
    what a session called something stays out.

    Raises:
        ObjectMissing: the manifest is gone.
        ObjectCorrupt: it is damaged.
        UsageError: it is no manifest.
    """
    if produced.size > _LARGEST:
        return {}
    manifest = parse_manifest(read(produced.digest), f"Object {produced.digest}")
    numbers = {told: manifest.totals[name] for name, told in _TOTALS.items() if name in manifest.totals}
    numbers["files that no reader understands"] = len(manifest.unread)
    numbers["files left out"] = sum(manifest.left_out.values())
    return numbers | dict(sorted(_losses(manifest).items()))


def _losses(manifest: Manifest) -> Counter[str]:
    losses: Counter[str] = Counter()
    for source in manifest.sources:
        for name, times in source.lost.items():
            reason = name.partition(":")[0]
            known = reason if _REASON.fullmatch(reason) else "other"
            losses[f"{'kept as it is' if is_kept(name) else 'lost'}: {known}"] += times
    return losses
