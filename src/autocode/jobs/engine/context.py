"""What steps and ``main`` get: the protocols of :mod:`autocode.jobs.kinds` over ledger and store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, ParamSpec, TypeVar, cast

from autocode.jobs import crash
from autocode.jobs.engine.lease import LeaseKeeper
from autocode.jobs.engine.outage import outlast
from autocode.jobs.engine.system import System
from autocode.jobs.errors import LedgerUnavailable, ObjectCorrupt, ObjectMissing, UsageError
from autocode.jobs.kinds import Output, Produced
from autocode.jobs.ledger import checkpoints, effects, results
from autocode.jobs.ledger.attempts import Attempt
from autocode.jobs.ledger.checkpoints import MemoKey, StepCommit
from autocode.jobs.sessions.roots import usual_roots
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore, Staging
from autocode.jobs.store.staging import LocalStaging

__all__ = ["AttemptContext", "folder_of", "known_roots"]

Q = ParamSpec("Q")
T = TypeVar("T")

_SMALL: Final = 256 << 20
"""Bytes that may be read into memory at once; the manifest of a million sessions fits."""

_PROGRESS_INTERVAL: Final = 0.5
"""Seconds between two persisted updates of progress: often enough for an eye, seldom enough for a disk."""


class _StagedOutput:
    def __init__(self, context: AttemptContext, staging: Staging, media_type: str) -> None:
        self._context = context
        self._staging = staging
        self._media_type = media_type

    def write(self, data: bytes, /) -> None:
        self._context.check()
        self._staging.write(data)

    def finish(self, *, needs: Iterable[str] = ()) -> Produced:
        info = self._staging.finish()
        self._context.reserve(info.digest, info.size)
        self._staging.publish()
        crash.at("step.after-object")
        return Produced(info.digest, info.size, self._media_type, tuple(sorted(set(needs))))


def known_roots(home: Home, environ: Mapping[str, str], user_home: Path) -> dict[str, Path]:
    """Return the folders that payloads may name: the tools' usual places, and those added to the home.

    Raises:
        HomeUnusable: the home's list of roots can't be read.
    """
    return {usual.name: usual.path for usual in usual_roots(environ, user_home)} | home.roots()


def folder_of(home: Home, root: str, environ: Mapping[str, str], user_home: Path) -> Path:
    """Return the folder of the root called *root*: one that was added to the home, else a tool's usual place.

    Raises:
        UsageError: neither knows the name; the hint lists the names that are known.
    """
    known = known_roots(home, environ, user_home)
    if root not in known:
        raise UsageError(
            f"No root is called {root!r}.", hint="Known roots: " + (", ".join(sorted(known)) or "none") + "."
        )
    return known[root]


class AttemptContext:
    """A begun attempt: implements :class:`autocode.jobs.kinds.StepContext`, for all of its steps.

    Args:
        system: the opened home.
        attempt: the attempt, which this process began.
        keeper: its lease.
    """

    def __init__(self, system: System, attempt: Attempt, keeper: LeaseKeeper) -> None:
        self.system = system
        self.attempt = attempt
        self.keeper = keeper
        self._verified: set[str] = set()
        self._progress_due = 0.0
        self.told: tuple[int, int | None, str | None] | None = None
        """The progress that was persisted last: done, total, unit."""
        self.performed = self.reused = 0
        """How many steps this attempt committed that it did, and that it found done."""

    def check(self) -> None:
        """Raise if this attempt must stop."""
        self.keeper.check()

    @contextmanager
    def output(self, media_type: str) -> Iterator[Output]:
        """Open a new object for writing."""
        self.check()
        with self.system.store.stage() as staging:
            yield _StagedOutput(self, staging, media_type)

    def put(self, chunks: Iterable[bytes], media_type: str, *, needs: Iterable[str] = ()) -> Produced:
        """Write *chunks* as one object."""
        with self.output(media_type) as output:
            for chunk in chunks:
                output.write(chunk)
            return output.finish(needs=needs)

    def open(self, digest: str) -> AbstractContextManager[BinaryIO]:
        """Open an object for reading."""
        self.check()
        return cast("AbstractContextManager[BinaryIO]", self.system.store.open(digest))

    def read(self, digest: str) -> bytes:
        """Return a small object whole."""
        with self.system.store.open(digest) as reader:
            return reader.read_all(limit=_SMALL)

    def folder(self, root: str) -> Path:
        """Return the path of a root; see :func:`folder_of`."""
        return folder_of(self.system.home, root, os.environ, Path.home())

    def cache_folder(self) -> Path | None:
        """Return the home's folder for what may be gone; none for a job that starts afresh."""
        return self.system.home.cache if self.attempt.fresh_fence is None else None

    def progress(self, done: int, total: int | None = None, unit: str | None = None) -> None:
        """Persist progress, at most twice a second, and always the last of a total."""
        self.check()
        now = self.system.db.clock.monotonic()
        if now < self._progress_due and done != total:
            return
        self._progress_due = now + _PROGRESS_INTERVAL
        # while the ledger is away nobody could see it; the next one tells more
        with suppress(LedgerUnavailable):
            results.set_progress(self.system.db, self.attempt, done=done, total=total, unit=unit)
            self.told = (done, total, unit)

    def once(self, key: str, effect: Callable[[str], Any]) -> Any:
        """Perform *effect* unless it was done before."""
        self.check()
        known = self._told(effects.intend, self.system.db, self.attempt, key)
        if known.done:
            return known.result
        result = effect(key)
        crash.at("effect.after-call")
        self._told(effects.finish_effect, self.system.db, self.attempt, key, result)
        return result

    def reserve(self, digest: str, size: int) -> None:
        """Reference an object before it becomes visible."""
        self._told(checkpoints.reserve, self.system.db, self.attempt, digest, size)
        self._verified.add(digest)

    def publish_all(self, stagings: Sequence[LocalStaging], store: LocalStore) -> None:
        """Reference ended objects, then make them visible and durable, all together."""
        infos = [staging.end() for staging in stagings]
        sizes = [(info.digest, info.size) for info in infos]
        self._told(checkpoints.reserve_all, self.system.db, self.attempt, sizes)
        store.publish_all(stagings)
        self._verified.update(info.digest for info in infos)
        for _ in infos:
            crash.at("step.after-object")

    def recall(self, key: MemoKey) -> Produced | None:
        """Return what the step produced before, if it is still whole in the store; see :meth:`is_whole`."""
        produced = self.recall_all([key]).get(key)
        return produced if produced is not None and self.is_whole(key, produced) else None

    def recall_all(self, keys: Iterable[MemoKey]) -> dict[MemoKey, Produced]:
        """Return what is remembered under these keys, whole or not."""
        above = self.attempt.fresh_fence
        return self._told(checkpoints.lookup_all, self.system.db, list(keys), above=above)

    def is_whole(self, key: MemoKey, produced: Produced) -> bool:
        """Say whether every stored byte of what is remembered, and of what that needs, is as it was written.

        A memo whose object is missing or damaged is dropped, so that the step is done again.
        """
        try:
            for digest in (produced.digest, *produced.needs):
                if digest not in self._verified:
                    self.check()
                    self.system.store.check(digest)
                    self._verified.add(digest)
        except (ObjectMissing, ObjectCorrupt):
            self._told(checkpoints.forget, self.system.db, key)
            return False
        return True

    def commit(self, key: MemoKey, produced: Produced, *, label: str, reused: bool) -> None:
        """Commit a step under the fence."""
        self.commit_all([StepCommit(key, produced, label, reused)])

    def commit_all(self, commits: Sequence[StepCommit]) -> None:
        """Commit several steps under the fence, in one transaction."""
        self._told(checkpoints.commit_steps, self.system.db, self.attempt, commits)
        found = sum(each.reused for each in commits)
        self.reused += found
        self.performed += len(commits) - found
        for _ in commits:
            crash.at("step.after-checkpoint")

    def _told(self, call: Callable[Q, T], *args: Q.args, **options: Q.kwargs) -> T:
        """Call the ledger, through an outage if need be."""
        return outlast(self.system.db, self.check, call, *args, **options)
