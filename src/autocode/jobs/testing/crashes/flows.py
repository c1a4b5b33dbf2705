"""The flows of :mod:`autocode.jobs.testing.crashes.kinds`."""

from __future__ import annotations

from autocode.jobs.engine.attempt import run_attempt
from autocode.jobs.engine.steps import job_flow, step_task
from autocode.jobs.testing.crashes import kinds as k

_order = tuple(step_task(step) for step in (k.item, k.reserve, k.charge, k.ship, k.confirm))


@job_flow(k.ORDER)
async def order(witness: str, order: str, items: int = 3) -> str:
    """Take a few small steps, and then two that change the world."""
    return await run_attempt(k.ORDER, {"witness": witness, "order": order, "items": items}, _order)
