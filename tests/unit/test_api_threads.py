"""Blocking calls from an event loop: bounded, in time, and told as they ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from autocode.jobs.api.threads import RequestCalls, Threads
from autocode.jobs.errors import JobNotFound, LedgerUnavailable


def run(size: int, work: Callable[[Threads], Any]) -> Any:
    """Run *work* with that many threads."""

    async def inside() -> Any:
        threads = Threads(size)
        try:
            return await work(threads)
        finally:
            threads.close()

    return asyncio.run(inside())


def test_results_and_errors_come_back() -> None:
    """A call returns what the function returns, and raises what it raises."""

    async def work(threads: Threads) -> int:
        calls = RequestCalls(threads, 30.0)
        with pytest.raises(JobNotFound):
            await calls(_refuse, "job")
        return await calls(int, "7")

    assert run(1, work) == 7


def test_what_is_done_as_the_time_ends_is_told() -> None:
    """A call that ends in the very moment of its deadline is told as it ended, not as an unexpected error."""

    async def work(threads: Threads) -> bool:
        loop = asyncio.get_running_loop()
        finished = threading.Event()
        call = asyncio.ensure_future(threads.call(loop.time() + 0.2, lambda: finished.wait(5)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        # while the loop is busy both happen: the call ends, and its time is over
        finished.set()
        threading.Event().wait(0.5)
        return await call

    assert run(1, work) is True


def test_calls_that_were_given_up_free_their_threads_in_the_end() -> None:
    """While every thread is held calls fail at once; they work again when the threads are free."""
    answering = threading.Event()

    async def work(threads: Threads) -> int:
        held = [RequestCalls(threads, 0.1)(answering.wait, 30) for _ in range(2)]
        outcomes = await asyncio.gather(*held, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [LedgerUnavailable] * 2
        with pytest.raises(LedgerUnavailable, match="doesn't answer"):
            await RequestCalls(threads, 60.0)(int, "1")
        answering.set()
        async with asyncio.timeout(30):
            while True:
                try:
                    return await RequestCalls(threads, 5.0)(int, "1")
                except LedgerUnavailable:
                    await asyncio.sleep(0.01)

    assert run(2, work) == 1


def _refuse(job_id: str) -> None:
    raise JobNotFound(f"There is no job {job_id!r}.")
