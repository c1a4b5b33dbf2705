"""Ctrl-C at a moment of our choosing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

__all__ = ["PATIENCE", "deferred"]

PATIENCE: Final = 2.0
"""Seconds that a deferred Ctrl-C waits for the work to look up, before it interrupts wherever that is."""


@contextmanager
def deferred(*, patience: float = PATIENCE) -> Iterator[Callable[[], None]]:
    """Hold Ctrl-C back for the length of the block; give the function that lets it through.

    Python raises ``KeyboardInterrupt`` between any two instructions, also between making a file and the
    ``try`` that would remove it. Work that makes files calls the function often, at places where it can be
    stopped. A second Ctrl-C, or *patience* seconds without a call, interrupts all the same.

    Does nothing outside of the main thread, which alone hears signals.

    Raises:
        KeyboardInterrupt: from the function or at the end of the block, if Ctrl-C came.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    pending = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal pending
        if pending:
            raise KeyboardInterrupt
        pending = True
        signal.setitimer(signal.ITIMER_REAL, patience)

    def lose_patience(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def check() -> None:
        if pending:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note), signal.signal(signal.SIGALRM, lose_patience)
    try:
        yield check
        check()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGALRM, before[1])
