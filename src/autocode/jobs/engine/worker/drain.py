"""The orderly end of a worker's children: a grace time, then each attempt is handed back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from prefect.client.schemas.objects import FlowRun

from autocode.jobs.engine.system import System
from autocode.jobs.engine.worker.children import Child, Children
from autocode.jobs.engine.worker.handback import hand_back, tell_prefect
from autocode.jobs.engine.worker.messages import HAND_BACK
from autocode.jobs.engine.worker.stopping import HAND_BACK_SECONDS
from autocode.jobs.errors import JobsError

__all__ = ["drain"]

_TELL_SECONDS: Final = 2.0
"""How long Prefect may take to hear about attempts that the worker itself handed back."""


async def drain(
    children: Children, system: Callable[[], System], *, grace: float, hurry: asyncio.Event
) -> None:
    """Return when no child lives any more.

    A child that can't hand its attempt back itself, since it is stopped or stuck, is killed; the worker hands
    it back for it before that, so that it uses no budget either.

    Args:
        children: the worker's children.
        system: opens the home; called in a thread.
        grace: seconds in which they may still end by themselves.
        hurry: ends the grace time at once.
    """
    await _ended(children, grace, hurry)
    for child in children.living:
        child.say(HAND_BACK)
    await _ended(children, HAND_BACK_SECONDS + 0.5, asyncio.Event())
    stuck = children.living
    await asyncio.gather(*(_hand_back(child, children, system) for child in stuck))
    await _ended(children, HAND_BACK_SECONDS, asyncio.Event())


async def _ended(children: Children, seconds: float, hurry: asyncio.Event) -> None:
    endings = [child.ended.wait() for child in children.living]
    if not endings:
        return
    waiting = {
        asyncio.ensure_future(asyncio.wait_for(_all(endings), seconds)),
        asyncio.ensure_future(hurry.wait()),
    }
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _all(endings: list[Coroutine[Any, Any, Any]]) -> None:
    await asyncio.gather(*endings)


async def _hand_back(child: Child, children: Children, system: Callable[[], System]) -> None:
    run = FlowRun.model_validate(child.order.flow_run)
    handed: bool | None = False
    with suppress(JobsError, OSError):
        handed = await asyncio.to_thread(lambda: hand_back(system(), run, None))
    # ended in the ledger by now: Prefect is told below, and not that its process was killed
    child.silenced = handed is not False
    children.kill(child)
    if handed is not False:
        with suppress(TimeoutError):
            async with asyncio.timeout(_TELL_SECONDS):
                await asyncio.to_thread(tell_prefect, run, ours=handed is True)
