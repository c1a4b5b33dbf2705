"""A job kind that tells a receiver of an order, and tells it twice when it is killed at the wrong moment.

Load it with ``PYTHONPATH=docs/examples AUTOCODE_KINDS=notify_order``. ``notify_order_cured.py`` mends it.
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


NOTIFY = Kind("notify-order", payload=Notice, flow=f"{Path(__file__).resolve()}:notify_order")


@NOTIFY.step(per_job=True)
def notify(context: StepContext, notice: Notice) -> Produced:
    """Tell the receiver of the order, and keep what was told."""
    httpx.post(notice.receiver, json={"order": notice.order}, timeout=10.0).raise_for_status()
    return context.put([f"told of order {notice.order}".encode()], "text/plain")


@NOTIFY.main
async def _main(job: JobContext[Notice]) -> Produced:
    return await job.step(notify, job.payload)


@job_flow(NOTIFY)
async def notify_order(receiver: str, order: str) -> str:
    """Run one attempt of a job."""
    return await run_attempt(NOTIFY, {"receiver": receiver, "order": order}, [step_task(notify)])
