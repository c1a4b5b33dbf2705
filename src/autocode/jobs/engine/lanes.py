"""Chains of calls performed side by side, here and in other processes, and what comes of them as it comes."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from autocode.jobs.engine.apart import ApartContext, perform
from autocode.jobs.engine.workers import Worker
from autocode.jobs.errors import AttemptEnded
from autocode.jobs.kinds import Call, Produced, Step
from autocode.jobs.store import LocalStore
from autocode.jobs.store.staging import LocalStaging

__all__ = ["Lanes", "Ready", "Work"]

_SMALL: Final = 4 << 20
"""Bytes of a chain that is performed here while the processes still start."""

_HEAVY: Final = 16 << 20
"""A call of more bytes holds a line of many megabytes: one at a time, for the sake of memory."""

_AHEAD: Final = 16
_AHEAD_SIZE: Final = 4 << 20
"""What a process is given to do next while it still works, so that it never waits."""

_UNCOMMITTED: Final = 64
_LOOK_SECONDS: Final = 0.2
_GRACE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Work:
    """A chain, or the rest of one.

    Args:
        calls: what is left to do.
        before: what the call before the first of them produced.
    """

    calls: Sequence[Call[Any]]
    before: Produced | None

    @property
    def size(self) -> int:
        """The bytes of all calls."""
        return sum(call.size for call in self.calls)


@dataclass(frozen=True, slots=True)
class Ready:
    """A call that was performed.

    Args:
        chain: whose call it is.
        number: which one of the chain's work.
        produced: what it left.
        objects: its finished objects, which whoever takes this publishes or discards.
    """

    chain: int
    number: int
    produced: Produced
    objects: list[LocalStaging]


class Lanes:
    """Performs chains; iterate it for what is ready, in lists that are empty when nothing came for a while.

    Within a chain calls are ready in order. When one fails, what was ready before it is still given, then its
    error is raised. Call :meth:`close` afterwards in any case.

    Args:
        store: where objects are written.
        step: the step.
        works: the chains, by a number of the caller's.
        workers: processes that perform them; with none, everything is done in a thread of this process.
        check: raises when the work must stop.
        cache: the folder for what may be gone.
    """

    def __init__(
        self,
        store: LocalStore,
        step: Step[Any],
        works: Mapping[int, Work],
        workers: Sequence[Worker],
        check: Callable[[], None],
        *,
        cache: Path | None = None,
    ) -> None:
        self._cache = cache
        self._store = store
        self._step = step
        self._works = works
        self._workers = workers
        self._stop = check
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        small, large, heavy = _sorted_out(works, has_workers=bool(workers))
        # heavy chains are for the first process alone, small ones also for this one
        self._sources = ((heavy, large, small), (large, small), (small,))
        self._ready: queue.Queue[Ready | Exception | None] = queue.Queue(_UNCOMMITTED)
        self.patience = 0.0
        """Seconds for which something that is ready waits for more."""
        self.under_way: dict[tuple[int, int], int] = {}
        """Bytes that were read in calls which aren't taken yet, by chain and number."""
        self.failed: tuple[int, int] | None = None
        """Chain and number of the call that failed."""

    def __iter__(self) -> Iterator[list[Ready]]:
        lanes = [self._here]
        for index, worker in enumerate(self._workers):
            lanes.append(partial(self._there, worker, *self._sources[min(index, 1)]))
        for lane in lanes:
            thread = threading.Thread(target=self._guarded, args=(lane,), name="lane", daemon=True)
            thread.start()
            self._threads.append(thread)
        running = len(lanes)
        while running:
            self._stop()
            ready: list[Ready] = []
            error: Exception | None = None
            for item in self._taken():
                if item is None:
                    running -= 1
                elif isinstance(item, Ready):
                    ready.append(item)
                else:
                    error = item
                    break
            for each in ready:
                self.under_way.pop((each.chain, each.number), None)
            yield ready
            if error is not None:
                raise error

    def close(self) -> None:
        """Stop the lanes, wait a moment for them, and discard what nobody took. Idempotent."""
        self._over.set()
        until = time.monotonic() + _GRACE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        with suppress(queue.Empty):
            while True:
                self._drop(self._ready.get_nowait())

    def _taken(self) -> list[Ready | Exception | None]:
        """Wait for something, then a little for more."""
        items: list[Ready | Exception | None] = []
        with suppress(queue.Empty):
            items.append(self._ready.get(timeout=_LOOK_SECONDS))
            until = time.monotonic() + self.patience
            # the end of a lane, or an error, is no reason to wait
            while len(items) < _UNCOMMITTED and isinstance(items[-1], Ready):
                items.append(self._ready.get(timeout=max(0.0, until - time.monotonic())))
        return items

    def _guarded(self, lane: Callable[[], None]) -> None:
        try:
            lane()
        except Exception as error:  # noqa: BLE001 - raised where the lanes are iterated
            self._put(error)
        self._put(None)

    def _put(self, item: Ready | Exception | None) -> None:
        while not self._over.is_set():
            with suppress(queue.Full):
                self._ready.put(item, timeout=_LOOK_SECONDS)
                return
        self._drop(item)

    @staticmethod
    def _drop(item: Ready | Exception | None) -> None:
        if isinstance(item, Ready):
            for staging in item.objects:
                staging.discard()

    def _check(self) -> None:
        self._stop()
        if self._over.is_set():
            raise AttemptEnded("Another call of this batch failed.")

    def _next(self, *sources: deque[int]) -> int | None:
        with self._lock:
            for source in sources:
                if source:
                    return source.popleft()
        return None

    def _here(self) -> None:
        """Perform chains in this thread: all of them, or some until the processes are there."""
        while not (self._workers and all(worker.is_ready for worker in self._workers)):
            chain = self._next(*self._sources[2])
            if chain is None:
                return
            self._perform(chain)

    def _perform(self, chain: int) -> None:
        number = 0

        def tell(done: int) -> None:
            self.under_way[chain, number] = done

        context = ApartContext(self._store, self._check, tell, self._cache)
        work = self._works[chain]
        try:
            for done in perform(context, self._step, work.calls, work.before):
                tell(work.calls[number].size)
                self._put(Ready(chain, number, done.produced, done.objects))
                number += 1
        except Exception:
            self._note(chain, number)
            raise

    def _there(self, worker: Worker, *sources: deque[int]) -> None:
        """Feed one process, a little ahead, and take what it has done."""
        given: dict[int, int] = {}
        while given or any(sources):
            if worker.is_ready and not self._feed(worker, given, *sources):
                return
            self._check()
            message = worker.receive(_LOOK_SECONDS)
            if message is not None:
                self._take(message, given)

    def _feed(self, worker: Worker, given: dict[int, int], *sources: deque[int]) -> bool:
        """Send what comes next; return whether the process has something to do."""
        while len(given) < _AHEAD and sum(given.values()) < _AHEAD_SIZE:
            chain = self._next(*sources)
            if chain is None:
                break
            work = self._works[chain]
            given[chain] = work.size
            worker.run(chain, list(work.calls), work.before)
        return bool(given)

    def _take(self, message: tuple[Any, ...], given: dict[int, int]) -> None:
        kind, chain, *rest = message
        if kind == "done":
            number, produced, handed = rest
            self.under_way[chain, number] = self._works[chain].calls[number].size
            self._put(Ready(chain, number, produced, [self._store.adopt(each) for each in handed]))
        elif kind == "progress":
            number, done = rest
            self.under_way[chain, number] = done
        elif kind == "end":
            del given[chain]
        else:
            number, error = rest
            self._note(chain, number)
            raise error

    def _note(self, chain: int, number: int) -> None:
        if self.failed is None and not self._over.is_set():
            self.failed = (chain, number)


def _sorted_out(works: Mapping[int, Work], *, has_workers: bool) -> tuple[deque[int], deque[int], deque[int]]:
    """Return the small, the large and the heavy chains, each in order; all are small without workers."""
    small: deque[int] = deque()
    large: deque[int] = deque()
    heavy: deque[int] = deque()
    for chain, work in works.items():
        if has_workers and any(call.size > _HEAVY for call in work.calls):
            heavy.append(chain)
        elif has_workers and work.size > _SMALL:
            large.append(chain)
        else:
            small.append(chain)
    return small, large, heavy
