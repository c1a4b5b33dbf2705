"""Proving a whole store, object by object, resumable at any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from autocode.jobs.errors import ObjectCorrupt, ObjectMissing
from autocode.jobs.store.base import ObjectStore

__all__ = ["Verdict", "VerifyReport", "verify_objects", "verify_store"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found about one object.

    Args:
        digest: the object; also the cursor to go on from.
        state: ``ok``; ``damaged``: it is in quarantine now; ``missing``: it went between listing and reading.
        size: proven number of uncompressed bytes, 0 unless ok.
        detail: what is wrong, one sentence, empty if ok.
    """

    digest: str
    state: Literal["ok", "damaged", "missing"]
    size: int = 0
    detail: str = ""


@dataclass(slots=True)
class VerifyReport:
    """The sum of the verdicts so far.

    Args:
        checked: number of objects looked at.
        bytes: uncompressed bytes of the sound ones.
        damaged: a verdict for each damaged object.
        missing: digests that went between listing and reading.
        cursor: the last object looked at; pass it as *after* to go on. ``None``: none yet.
    """

    checked: int = 0
    bytes: int = 0
    damaged: list[Verdict] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    cursor: str | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing damaged was found. A missing object was removed by somebody and is no damage."""
        return not self.damaged

    def add(self, verdict: Verdict) -> None:
        """Count *verdict*."""
        self.checked += 1
        self.bytes += verdict.size
        self.cursor = verdict.digest
        if verdict.state == "damaged":
            self.damaged.append(verdict)
        elif verdict.state == "missing":
            self.missing.append(verdict.digest)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {**asdict(self), "ok": self.ok}


def verify_objects(store: ObjectStore, *, after: str | None = None) -> Iterator[Verdict]:
    """Verify every object above *after* in ascending order and yield a verdict for each.

    A damaged object is moved to quarantine by the store and reported; the scan goes on. Stop at any verdict
    and pass its digest as *after* to go on later.
    """
    for digest in store.list(after):
        try:
            info = store.verify(digest)
        except ObjectCorrupt as error:
            yield Verdict(digest, "damaged", detail=error.detail)
        except ObjectMissing as error:
            yield Verdict(digest, "missing", detail=error.detail)
        else:
            yield Verdict(digest, "ok", size=info.size)


def verify_store(
    store: ObjectStore, *, after: str | None = None, progress: Callable[[VerifyReport], None] | None = None
) -> VerifyReport:
    """Verify every object above *after* and return what was found.

    *progress* is told the running report after each object; it may raise to stop, and the report's cursor
    is then where to go on. Memory is bounded but for the list of what is wrong.
    """
    report = VerifyReport()
    for verdict in verify_objects(store, after=after):
        report.add(verdict)
        if progress is not None:
            progress(report)
    return report
