"""``POST /v1/jobs``: accepted once, durable before the answer; a refusal stores nothing."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from fastapi import APIRouter, Request
from starlette.responses import Response

from autocode.jobs import kinds
from autocode.jobs.api import refusals, resources
from autocode.jobs.api.access import Operator
from autocode.jobs.api.bodies import idempotency_key, model_of, pointer, read_json
from autocode.jobs.api.models import EnqueueBody
from autocode.jobs.api.service import Calls, Shared
from autocode.jobs.clock import Clock
from autocode.jobs.engine.context import known_roots
from autocode.jobs.engine.system import System
from autocode.jobs.errors import HomeUnusable, JobConflict, KindUnknown, PayloadInvalid
from autocode.jobs.ledger import audit, jobs, queries, scopes, uploads
from autocode.jobs.ledger.access import Principal
from autocode.jobs.ledger.jobs import Accepted, NewJob
from autocode.jobs.request_errors import NotAllowed
from autocode.jobs.resource import Job
from autocode.jobs.settings import Home

__all__ = ["router"]

router: Final = APIRouter(tags=["jobs"])

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": Job, "description": "accepted before; `Idempotency-Replayed: true`"},
    202: {"model": Job, "description": "accepted, and durable; `Location` is the job"},
    409: {"description": "the id or key belongs to a job that this token may not see"},
    422: {"description": "unknown kind, bad payload, or the id or key belongs to another request"},
    503: {"description": "the ledger can't be reached; ask again with the same id or key"},
}
_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": EnqueueBody.model_json_schema()}},
    },
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "schema": {"type": "string", "maxLength": 255},
            "description": "the same key with the same request is the same job",
        }
    ],
}


@router.post("/v1/jobs", response_model=None, status_code=202, responses=_ANSWERS, openapi_extra=_BODY)
async def enqueue(request: Request, service: Shared, calls: Calls, caller: Operator) -> Response:
    """Ask for a job. Without `job_id` one is made; the id or an `Idempotency-Key` makes asking again safe."""
    key = idempotency_key(request)
    body = model_of(EnqueueBody, await read_json(request, service.settings.body_limit))
    refusals.about(request, target=body.job_id)
    new = _new_job(body, key, service.db.clock)
    _may_submit(caller, new)
    asked = _Asked(new, caller, body.job_id is not None, refusals.request_id(request))
    job, created = await calls(_accept, service.system, asked, service.settings.prefect_ui)
    return resources.answer(job, status=202 if created else 200, created=created)


def _may_submit(caller: Principal, new: NewJob) -> None:
    """Let *caller* ask for a job of which it may see everything.

    Raises:
        NotAllowed: its token is for some sessions, and the job isn't for these alone.
    """
    if caller.sees(new.sessions):
        return
    bound = f"The token {caller.token_id} is for some sessions only, and"
    if new.reads is None:
        raise NotAllowed(
            f"{bound} nobody can say which sessions a job of kind {new.kind!r} with this payload reads.",
            hint="Use a token that isn't bound to sessions, or a kind that declares what it reads.",
        )
    if not new.sessions:
        raise NotAllowed(
            f"{bound} the request names none of them.", hint="Send the session_id that the job belongs to."
        )
    assert caller.sessions is not None
    others = ", ".join(sorted(new.sessions - caller.sessions)[:5])
    raise NotAllowed(
        f"{bound} the request is also about others: {others}.",
        hint="Ask for a job that reads and belongs to the token's sessions alone.",
    )


def _new_job(body: EnqueueBody, key: str | None, clock: Clock) -> NewJob:
    """Return the request in the ledger's words.

    Raises:
        KindUnknown: no such kind is registered.
        PayloadInvalid: the payload doesn't fit it; each field is named by its place in the body.
    """
    try:
        kind = kinds.get(body.kind)
    except KindUnknown as error:
        field = {"pointer": "/kind", "detail": error.detail}
        raise KindUnknown(error.detail, hint=error.hint, fields=[field]) from None
    try:
        parsed = kind.parse(body.payload)
    except PayloadInvalid as error:
        fields = [_placed(field) for field in error.data["fields"]]
        raise PayloadInvalid(error.detail, hint=error.hint, fields=fields) from None
    return NewJob(
        job_id=body.job_id or f"{kind.name}-{clock.now():%Y%m%d-%H%M%S}-{secrets.token_hex(5)}",
        kind=kind.name,
        payload=parsed.model_dump(mode="json"),
        max_attempts=kind.max_attempts,
        backoff=kind.backoff,
        time_limit=kind.time_limit,
        session_id=body.session_id,
        origin="api",
        idempotency_key=key,
        reads=kind.sessions(parsed),
    )


def _placed(field: dict[str, str]) -> dict[str, str]:
    own = field["pointer"].removeprefix("/")
    return {"pointer": pointer(("payload",)) + (f"/{own}" if own else ""), "detail": field["message"]}


def _unknown_root(home: Home, new: NewJob) -> PayloadInvalid | None:
    """Return why *new* would die at once: it names a folder that nobody knows here; ``None``: it doesn't."""
    kind = kinds.get(new.kind)
    named = list(kind.roots(kind.parse(new.payload)))
    if not named:
        return None
    try:
        known = known_roots(home, os.environ, Path.home())
    except (HomeUnusable, RuntimeError):
        # a list that can't be read says nothing about a name; the job itself will tell
        return None
    fields = [
        {"pointer": f"/payload{place}", "detail": f"No root is called {root!r}."}
        for place, root in named
        if root not in known
    ]
    if not fields:
        return None
    return PayloadInvalid(
        " ".join(field["detail"] for field in fields),
        hint=f"Known roots: {', '.join(sorted(known)) or 'none'}. A folder gets a name when it is first "
        "exported on the service's machine: autocode-jobs export PATH",
        fields=fields,
    )


def _hold_snapshots(tx: sa.Connection, caller: Principal, new: NewJob, now: datetime) -> None:
    """Let the job hold the snapshots that it names.

    Raises:
        PayloadInvalid: there is no such snapshot, the caller may not see it, or it is of another session.
    """
    kind = kinds.get(new.kind)
    named = list(kind.snapshots(kind.parse(new.payload)))
    fields = [
        {"pointer": f"/payload{place}", "detail": f"There is no snapshot {digest} for this job."}
        for place, digest in named
        if not uploads.hold_snapshot(
            tx, caller, digest, session_id=new.session_id, job_id=new.job_id, now=now
        )
    ]
    if fields:
        raise PayloadInvalid(
            " ".join(field["detail"] for field in fields),
            hint="Name one with POST /v1/snapshots, with the session_id of the job if it has one.",
            fields=fields,
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request for a job; *named*: the caller chose its id."""

    new: NewJob
    caller: Principal
    named: bool
    request_id: str | None


def _accept(system: System, asked: _Asked, ui: str | None) -> tuple[Job, bool]:
    """Accept the job, with an entry in the audit where it is new, and read it back: one transaction.

    Raises:
        JobConflict: id or key belong to another request, or to a job that the caller may not see; of that one
            nothing is said, not even what differs.
        PayloadInvalid: it names a root that nobody knows, or a snapshot that isn't for it; a request that was
            accepted before is answered.
    """
    db, new = system.db, asked.new
    read: list[Job] = []
    unknown = _unknown_root(system.home, new)

    def within(tx: sa.Connection, accepted: Accepted) -> None:
        if accepted.new:
            if unknown is not None:
                raise unknown
            _hold_snapshots(tx, asked.caller, new, db.clock.now())
            # the counter of the audit stays locked until the end, so its entry comes last
            read.append(queries.get_within(tx, accepted.job_id))
            _audit(tx, asked, db.clock.now())
            return
        if not asked.caller.sees(scopes.of_job(tx, accepted.job_id)):
            raise _taken()
        read.append(queries.get_within(tx, accepted.job_id))

    try:
        accepted = jobs.enqueue(db, new, within=within)
    except JobConflict as conflict:
        if "differs" not in conflict.data:
            raise
        with db.read() as tx:
            seen = asked.caller.sees(scopes.of_job(tx, conflict.data["job_id"]))
        raise conflict if seen else _taken() from None
    job = resources.with_runs(db, read, ui)[0]
    differs = []
    if asked.named and job.job_id != new.job_id:
        differs.append("job_id")
    if new.session_id is not None and job.session_id != new.session_id:
        differs.append("session_id")
    if differs:
        raise JobConflict(
            f"Job {job.job_id!r} exists and was asked for with another {', '.join(differs)}.",
            differs=differs,
            job_id=job.job_id,
        )
    return job, accepted.new


def _taken() -> JobConflict:
    return JobConflict("The id or key is taken.", hint="Use another id, and a fresh Idempotency-Key.")


def _audit(tx: sa.Connection, asked: _Asked, now: datetime) -> None:
    new = asked.new
    audit.append_in(
        tx,
        now,
        actor=asked.caller.actor,
        action="enqueue",
        target=new.job_id,
        reason="",
        outcome="accepted",
        request_id=asked.request_id,
        # what was asked for shows by its fingerprint alone: payloads aren't for everybody
        after={
            "kind": new.kind,
            "session_id": new.session_id,
            "sessions": sorted(new.sessions),
            "fingerprint": jobs.fingerprint(new.kind, new.payload),
            "max_attempts": new.max_attempts,
        },
    )
