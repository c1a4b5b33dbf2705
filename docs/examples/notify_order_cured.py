"""``notify_order.py`` with its effect in ``context.once``: a receiver that knows the key is told once.

Load it with ``PYTHONPATH=docs/examples AUTOCODE_KINDS=notify_order_cured``.
"""

from __future__ import annotations

from pathlib import Path

import httpx
from pydantic import BaseModel

from autocode.jobs.engine.attempt import run_attempt
from autocode.jobs.engine.steps import job_flow, step_task
from autocode.jobs.kinds import JobContext, Kind, Produced, StepContext


class Notice(BaseModel):
    """Who is told, and of which order."""

    receiver: str
    order: str


NOTIFY = Kind("notify-order-cured", payload=Notice, flow=f"{Path(__file__).resolve()}:notify_order")


@NOTIFY.step(per_job=True)
def notify(context: StepContext, notice: Notice) -> Produced:
    """Tell the receiver of the order, and keep what was told."""

    def tell(key: str) -> None:
        headers = {"Idempotency-Key": key}
        told = httpx.post(notice.receiver, json={"order": notice.order}, headers=headers, timeout=10.0)
        told.raise_for_status()

    context.once(f"notify:{notice.order}", tell)
    return context.put([f"told of order {notice.order}".encode()], "text/plain")


@NOTIFY.main
async def _main(job: JobContext[Notice]) -> Produced:
    return await job.step(notify, job.payload)


@job_flow(NOTIFY)
async def notify_order(receiver: str, order: str) -> str:
    """Run one attempt of a job."""
    return await run_attempt(NOTIFY, {"receiver": receiver, "order": order}, [step_task(notify)])
