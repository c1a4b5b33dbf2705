"""From intent to flow run: exactly one run an attempt, whoever dies in between."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import FlowRunCreate
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.states import Scheduled, to_state_create

from autocode.jobs import crash, kinds
from autocode.jobs.canonical import canonical_json
from autocode.jobs.engine.deployments import Deployments
from autocode.jobs.engine.holder import driven
from autocode.jobs.engine.loading import load_flow
from autocode.jobs.engine.naming import adopted_name, run_name, run_tags
from autocode.jobs.engine.problems import problem
from autocode.jobs.engine.system import System
from autocode.jobs.engine.trouble import Trouble
from autocode.jobs.errors import KindUnknown, Transient
from autocode.jobs.kinds import Kind
from autocode.jobs.ledger import attempts, glances, jobs
from autocode.jobs.projection import Outcome

__all__ = ["RunRefused", "Submitter", "attempt_key", "identify", "submit_adopted", "submit_planned"]

_ANSWER_SECONDS: Final = 10.0
"""How long Prefect may take to make a run; its client would try again for a minute on its own."""

_AT_ONCE: Final = 8
"""How many runs are being made at the same time."""

_REFUSALS: Final = frozenset({400, 413, 422})
"""Answers that say that this very run can't be made; others come from a server in trouble."""

_EPOCH: Final = re.compile(r"[0-9a-f]{12}")
"""The name of a ledger, as ``Database.migrate`` draws it."""

logger = logging.getLogger(__name__)


class RunRefused(Transient):
    """Prefect doesn't make the run of an attempt, or has another one under its key."""

    type = "run-refused"
    title = "Prefect has no run for this attempt"
    default_hint = "Look at the job's parameters and at the Prefect server; then retry the job."


def attempt_key(epoch: str, job_id: str, n: int) -> str:
    """Return the idempotency key of attempt *n*'s flow run in the ledger *epoch*.

    A ledger that was restored from a backup has another epoch: its next attempts have the numbers of attempts
    that ran before, and Prefect may still have those runs.
    """
    return f"job:{epoch}:{job_id}:{n}"


def identify(run: FlowRun) -> tuple[str, int | None]:
    """Return the job and the attempt that *run* executes; no attempt where Prefect itself started it.

    Keys of earlier versions have no epoch. Where an id could be taken for one, the run's tags decide.
    """
    prefix, _, rest = (run.idempotency_key or "").partition(":")
    named, _, number = rest.rpartition(":")
    if prefix != "job" or not named or not number.isdecimal():
        return f"{jobs.ADOPTED}{run.id}", None
    epoch, _, job_id = named.partition(":")
    if job_id and _EPOCH.fullmatch(epoch) and f"job:{named}" not in run.tags:
        return job_id, int(number)
    return named, int(number)


@dataclass(frozen=True, slots=True)
class _Wanted:
    kind: Kind[Any]
    payload: dict[str, Any]
    session: str | None
    job_id: str
    n: int
    due_at: datetime


class Submitter:
    """Gives planned attempts their flow runs through the service's deployments.

    Args:
        system: the opened home.
        client: an open client.
        deployments: where the runs go.
    """

    def __init__(self, system: System, client: PrefectClient, deployments: Deployments) -> None:
        self._system = system
        self._client = client
        self._deployments = deployments
        self._unknown: set[str] = set()
        self._trouble = Trouble(system.db.clock)
        self._epoch = ""

    async def submit_all(self) -> int:
        """Give every planned attempt without a flow run one, and return how many were made. Idempotent.

        A job that a living one-shot command drives is left to it. A process that died after the run was made
        and before the ledger knew finds the same run again by its key.

        Raises:
            httpx.HTTPError: Prefect is away; what was made is noted, the rest comes with the next call.
            TimeoutError: as before.
            LedgerUnavailable: the ledger's database can't be reached.
        """
        wanted = await asyncio.to_thread(attempts.wants_run, self._system.db)
        wanted = [each for each in wanted if self._trouble.may_try((each[0], each[1]))]
        if wanted:
            # a ledger keeps it for as long as anybody has it open
            self._epoch = self._epoch or await asyncio.to_thread(glances.epoch, self._system.db)
            taken = await asyncio.to_thread(driven, self._system.home)
            wanted = [each for each in wanted if each[0] not in taken]
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(job_id: str, n: int, due_at: datetime) -> bool:
            async with gate:
                try:
                    made = await self._submit(job_id, n, due_at)
                except Exception as error:
                    self._trouble.note((job_id, n))
                    if self._trouble.is_its_own((job_id, n)):
                        told = RunRefused(f"Prefect makes runs of others, and not this one: {error!r:.300}")
                        await asyncio.to_thread(_refused, self._system, job_id, n, told)
                        return False
                    raise
                self._trouble.worked((job_id, n))
                return made

        done = await asyncio.gather(*(one(*each) for each in wanted), return_exceptions=True)
        errors = [each for each in done if isinstance(each, BaseException)]
        if errors:
            raise errors[0]
        return sum(each is True for each in done)

    async def _submit(self, job_id: str, n: int, due_at: datetime) -> bool:
        about = {"job_id": job_id, "attempt": n}
        name, payload = await asyncio.to_thread(jobs.payload_of, self._system.db, job_id)
        session = await asyncio.to_thread(jobs.session_of, self._system.db, job_id)
        try:
            wanted = _Wanted(kinds.get(name), payload, session, job_id, n, due_at)
            run = await self._create(wanted)
            _compare(run, payload)
        except KindUnknown as error:
            # it waits for a service that knows its kind
            if job_id not in self._unknown:
                logger.warning("%s", error, extra=about)
            self._unknown.add(job_id)
            return False
        except RunRefused as refused:
            await asyncio.to_thread(_refused, self._system, job_id, n, refused)
            return False
        crash.at("submit.after-create")
        await asyncio.to_thread(attempts.set_run, self._system.db, job_id, n, str(run.id))
        logger.info("run %s submitted", run.name, extra=about)
        return True

    async def _create(self, wanted: _Wanted) -> FlowRun:
        model = await _adopted_run(self._client, wanted.job_id)
        name = _name(wanted, model)
        if model is not None and model.deployment_id is not None:
            made = await self._on(model.deployment_id, wanted, name, model)
            if made is not None:
                return made
        # looked for twice: the deployment may have been deleted since it was last seen
        for _ in range(2):
            made = await self._on(await self._deployments.of(wanted.kind), wanted, name, None)
            if made is not None:
                return made
            self._deployments.forget(wanted.kind)
        raise RunRefused(f"The deployment of kind {wanted.kind.name} vanishes as soon as it is made.")

    async def _on(
        self, deployment: UUID, wanted: _Wanted, name: str, model: FlowRun | None
    ) -> FlowRun | None:
        """Make the run on *deployment*; ``None``: Prefect has no such deployment."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self._client.create_flow_run_from_deployment(
                    deployment,
                    name=name,
                    parameters=wanted.payload,
                    idempotency_key=attempt_key(self._epoch, wanted.job_id, wanted.n),
                    tags=run_tags(wanted.kind.name, wanted.job_id, wanted.session),
                    state=Scheduled(scheduled_time=wanted.due_at),
                    work_queue_name=model.work_queue_name if model else None,
                    job_variables=model.job_variables if model else None,
                )
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.NOT_FOUND:
                return None
            if error.response.status_code in _REFUSALS:
                answer = f"{error.response.status_code} {error.response.text[:500]}"
                raise RunRefused(f"Prefect refused the run: {answer}") from error
            raise


def _name(wanted: _Wanted, model: FlowRun | None) -> str:
    if model is not None:
        return adopted_name(wanted.kind.name, model.name, wanted.n)
    return run_name(wanted.kind.name, wanted.job_id, wanted.n, wanted.session)


def _compare(run: FlowRun, payload: Mapping[str, Any]) -> None:
    """Refuse a run that Prefect has under the attempt's key with other parameters.

    A ledger that was begun anew beside an old Prefect database meets the runs of its predecessor.
    """
    if canonical_json(run.parameters) != canonical_json(dict(payload)):
        raise RunRefused(
            f"Prefect has run {run.id} under the key {run.idempotency_key}, with other parameters.",
            hint="Was the ledger replaced? Jobs with ids of their own are not affected.",
        )


def _refused(system: System, job_id: str, n: int, refused: RunRefused) -> None:
    told = problem(refused, step=None, attempt=n, at=system.db.clock.now())
    attempts.end(system.db, job_id, n, Outcome.FAILED, error=told, renewals=0)
    logger.warning("%s", refused, extra={"job_id": job_id, "attempt": n})


async def submit_planned(system: System, client: PrefectClient, job_id: str) -> None:
    """Give every planned attempt of the job that has no flow run one, without a deployment. Idempotent.

    Such a run is run by the one-shot command that made it, and by nobody else.
    """
    epoch = await asyncio.to_thread(glances.epoch, system.db)
    for wanting, n, due_at in await asyncio.to_thread(attempts.wants_run, system.db):
        if wanting != job_id:
            continue
        run = await _create(system, client, job_id, n, due_at, key=attempt_key(epoch, job_id, n))
        crash.at("submit.after-create")
        await asyncio.to_thread(attempts.set_run, system.db, job_id, n, str(run.id))


async def submit_adopted(system: System, client: PrefectClient) -> None:
    """Give every planned attempt of an adopted job another run of its deployment. Idempotent.

    A worker takes it when it is due; until then the attempt holds no slot anywhere.
    """
    epoch = await asyncio.to_thread(glances.epoch, system.db)
    for job_id, n, due_at in await asyncio.to_thread(attempts.wants_run, system.db):
        model = await _adopted_run(client, job_id)
        if model is None or model.deployment_id is None:
            continue
        name, payload = await asyncio.to_thread(jobs.payload_of, system.db, job_id)
        run = await client.create_flow_run_from_deployment(
            model.deployment_id,
            name=adopted_name(name, model.name, n),
            parameters=payload,
            idempotency_key=attempt_key(epoch, job_id, n),
            tags=run_tags(name, job_id, None),
            state=Scheduled(scheduled_time=due_at),
            work_queue_name=model.work_queue_name,
            job_variables=model.job_variables,
        )
        await asyncio.to_thread(attempts.set_run, system.db, job_id, n, str(run.id))


async def _adopted_run(client: PrefectClient, job_id: str) -> FlowRun | None:
    if not job_id.startswith(jobs.ADOPTED):
        return None
    try:
        return await client.read_flow_run(UUID(job_id.removeprefix(jobs.ADOPTED)))
    except (ObjectNotFound, ValueError):
        return None


async def _create(
    system: System, client: PrefectClient, job_id: str, n: int, due_at: datetime, *, key: str
) -> FlowRun:
    name, payload = await asyncio.to_thread(jobs.payload_of, system.db, job_id)
    session = await asyncio.to_thread(jobs.session_of, system.db, job_id)
    flow = load_flow(kinds.get(name))
    flow_id = await client.create_flow(flow)
    body = FlowRunCreate(
        flow_id=flow_id,
        flow_version=flow.version,
        name=run_name(name, job_id, n, session),
        parameters=payload,
        idempotency_key=key,
        tags=run_tags(name, job_id, session),
        state=to_state_create(Scheduled(scheduled_time=due_at)),
    )
    # PrefectClient.create_flow_run takes no idempotency key (prefect/client/orchestration/_flow_runs)
    response: httpx.Response = await client.request("POST", "/flow_runs/", json=_json(body))
    response.raise_for_status()
    return FlowRun.model_validate(response.json())


def _json(body: FlowRunCreate) -> dict[str, Any]:
    return body.model_dump(mode="json", exclude_unset=True)
