"""What an attempt shows on the page of its run in Prefect while it works, and when it is over.

All of it is an aid for people: it has a task of its own and short time-outs, and whatever goes wrong with it
is logged and changes nothing. One-shot commands on a home whose Prefect server has no pages go without.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from uuid import UUID

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.objects import FlowRun

from autocode.jobs.engine.context import AttemptContext
from autocode.jobs.engine.environment import on_postgresql
from autocode.jobs.engine.naming import artifact_key, introduction
from autocode.jobs.engine.report_text import progress_text
from autocode.jobs.engine.run_reports import write_report
from autocode.jobs.engine.submit import identify
from autocode.jobs.settings import Home

__all__ = ["RunPage", "is_read"]

_PROGRESS: Final = "progress"
_INTERVAL: Final = 0.5
"""Seconds between two looks at the progress, which is persisted twice a second at most."""

_TROUBLE_SECONDS: Final = 5.0
"""Pause after Prefect didn't take something."""

_CALL_SECONDS: Final = 1.0
_END_SECONDS: Final = 2.0
"""How long the end of a run waits for its page at most; the job itself is over by then."""

_log = logging.getLogger(__name__)


def is_read(home: Home, run: FlowRun) -> bool:
    """Say whether people may look at the page of *run*: under a worker, or where the server has pages."""
    served = run.deployment_id is not None or bool(os.environ.get("AUTOCODE_RECONCILED"))
    return served or on_postgresql(home)


class RunPage:
    """The page of one attempt's run.

    Args:
        context: the attempt.
        kind: the kind's name.
        run: its flow run.
    """

    def __init__(self, context: AttemptContext, kind: str, run: FlowRun) -> None:
        self._context = context
        self._kind = kind
        self._run = run
        self._shown: tuple[int, int | None, str | None] | None = None
        self._artifact: UUID | None = None
        self._wanted = is_read(context.system.home, run)
        self._introduced = identify(run)[1] is not None
        self._over = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Show the progress of what happens in the block."""
        if self._wanted:
            self._following = asyncio.create_task(self._follow())
        try:
            yield
        except asyncio.CancelledError:
            if self._following is not None:
                self._following.cancel()
            raise
        finally:
            # not cancelled: Prefect may be making an artifact that would then be made twice
            self._over.set()

    async def finish(self) -> None:
        """Show the last progress and the report of the attempt, which is over; waits 2 s at most."""
        if self._wanted:
            await self._tried(self._finish(), _END_SECONDS)

    async def _finish(self) -> None:
        if self._following is not None:
            await asyncio.wait({self._following})
        attempt = self._context.attempt
        async with get_client() as client:
            report = write_report(client, self._context.system, attempt.job_id, attempt.n, self._run.id)
            await asyncio.gather(
                self._tried(self._introduce(client), _CALL_SECONDS),
                self._tried(self._show(client), _CALL_SECONDS),
                report,
            )

    async def _follow(self) -> None:
        async with get_client() as client:
            pause = 0.0 if not self._introduced else _INTERVAL
            while not await self._is_over_after(pause):
                shown = await self._tried(self._introduce(client), _CALL_SECONDS)
                shown = await self._tried(self._show(client), _CALL_SECONDS) and shown
                pause = _INTERVAL if shown else _TROUBLE_SECONDS

    async def _is_over_after(self, pause: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._over.wait()
        return self._over.is_set()

    async def _introduce(self, client: PrefectClient) -> None:
        if not self._introduced:
            job_id, _ = identify(self._run)
            change = introduction(self._kind, job_id, self._run)
            if change is not None:
                await client.update_flow_run(self._run.id, name=change.name, tags=change.tags)
            self._introduced = True

    async def _show(self, client: PrefectClient) -> None:
        """Bring the bar up to date with what was persisted; there is none before something was measured."""
        told = self._context.told
        if told is None or told == self._shown:
            return
        done, total, unit = told
        if not total:
            return
        attempt = self._context.attempt
        text = progress_text(attempt.job_id, attempt.n, done, total, unit)
        percent = min(100.0, max(0.0, 100.0 * done / total))
        if self._artifact is None:
            made = await client.create_artifact(
                ArtifactCreate(
                    key=artifact_key(attempt.job_id, _PROGRESS),
                    type=_PROGRESS,
                    description=text,
                    data=percent,
                    flow_run_id=self._run.id,
                )
            )
            self._artifact = made.id
        else:
            body = ArtifactUpdate(data=percent, description=text)
            # PrefectClient.update_artifact makes an event of each update, and there are two a second
            await client.request(
                "PATCH",
                "/artifacts/{id}",
                path_params={"id": self._artifact},
                json=body.model_dump(mode="json", exclude_unset=True),
            )
        self._shown = told

    async def _tried(self, work: Awaitable[Any], seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await work
        except Exception as error:  # noqa: BLE001 - an aid must not fail the job
            # not louder: a one-shot command would show it in the middle of its own screen
            _log.info("the run's page in Prefect: %s: %s", type(error).__name__, error)
            return False
        return True
