"""Work that leaves the interpreter most of the time (reading, hashing), on the cores that are there."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

__all__ = ["side_by_side"]

T = TypeVar("T")
R = TypeVar("R")

_MOST: Final = 4


def side_by_side(items: Iterable[T], work: Callable[[T], R]) -> Iterator[R]:
    """Yield what *work* makes of each item, in the order in which it is ready.

    Daemon threads do it, one a core: where a file never answers, the process can end all the same. *items* is
    iterated in these threads, by one of them at a time. When the caller stops early, each thread still
    finishes its item.

    Raises whatever iterating *items* or *work* raises; nothing new is begun then.
    """
    source = iter(items)
    taking = threading.Lock()
    over = threading.Event()
    ready: queue.SimpleQueue[tuple[R] | BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            while not over.is_set():
                with taking:
                    item = next(source, _END)
                if item is _END:
                    break
                ready.put((work(item),))  # type: ignore[arg-type]  # not the end, so an item
        except BaseException as error:  # noqa: BLE001 - raised where the results are taken
            ready.put(error)
        ready.put(None)

    threads = [threading.Thread(target=run, name="side", daemon=True) for _ in range(_cores())]
    for thread in threads:
        thread.start()
    running = len(threads)
    try:
        while running:
            result = ready.get()
            if result is None:
                running -= 1
            elif isinstance(result, BaseException):
                raise result
            else:
                yield result[0]
    finally:
        over.set()


_END: Final = object()


def _cores() -> int:
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(here, _MOST)
