"""Work that blocks, in a thread that nobody has to wait for."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from autocode.jobs.errors import Transient

__all__ = ["StepExited", "in_daemon_thread"]

T = TypeVar("T")


class StepExited(Transient):
    """A step tried to end the whole process, which is not its to end."""

    type = "step-exited"
    title = "A step tried to end the process"
    default_hint = "Raise an error in the step instead of leaving with sys.exit."


def in_daemon_thread(function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
    """Call *function* in a daemon thread of its own; return a future of the running loop.

    ``asyncio.to_thread`` uses a pool that the loop waits for when it closes, so one step that never looks up
    would keep Ctrl-C waiting for as long as it likes. A thread whose future was cancelled is left to itself:
    the fence keeps it from changing anything.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]  # None is a T where there was no error
        else:
            future.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            result = context.run(function, *args)
        except Exception as raised:  # noqa: BLE001 - handed to whoever awaits the future
            error = raised
        except BaseException as raised:  # noqa: BLE001 - as above; the loop would end the process for these
            error = StepExited(f"The step ended with {type(raised).__name__}: {raised}")
        # a closed loop: nobody waits any more
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name=getattr(function, "__name__", "step"), daemon=True).start()
    return future
