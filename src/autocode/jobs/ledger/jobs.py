"""What was asked for: accepted once, durable before the id returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from autocode.jobs import crash
from autocode.jobs.canonical import canonical_json, digest_of
from autocode.jobs.errors import JobConflict, JobNotFound, UsageError
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger import scopes
from autocode.jobs.ledger.database import Database, insert_missing
from autocode.jobs.ledger.events import Fact, record
from autocode.jobs.model import TERMINAL, JobStatus
from autocode.jobs.retry import Backoff

__all__ = [
    "ADOPTED",
    "JOB_ID",
    "NewJob",
    "attach_or_enqueue",
    "enqueue",
    "find_unfinished",
    "fingerprint",
    "lock",
    "payload_of",
    "session_of",
]

_LONGEST_KEY: Final = 255

ADOPTED: Final = "prefect:"
"""What the id of a job begins with that Prefect started; its first run's id follows."""

JOB_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


@dataclass(frozen=True, slots=True)
class NewJob:
    """A request for a job, already checked against its kind.

    Args:
        job_id: the caller's id, or one made for it.
        kind: the job kind's name.
        payload: the payload in its model's JSON form.
        max_attempts: how many attempts may fail before a person must act.
        backoff: the pauses between attempts.
        time_limit: seconds that one attempt may run.
        session_id: whose session the job belongs to, where there is one.
        origin: ``cli``, ``api`` or ``prefect``.
        file_saved_at: when the file was saved whose save caused the job.
        idempotency_key: the caller's name for this very request: sent again, it finds the same job.
        reads: the sessions that the payload reads; ``None`` where the kind can't say, which counts as all.
    """

    job_id: str
    kind: str
    payload: Mapping[str, Any]
    max_attempts: int
    backoff: Backoff
    time_limit: float
    session_id: str | None = None
    origin: str = "cli"
    file_saved_at: datetime | None = field(default=None)
    idempotency_key: str | None = None
    reads: frozenset[str] | None = None

    @property
    def sessions(self) -> frozenset[str]:
        """The job's sessions, as :mod:`autocode.jobs.ledger.scopes` has them."""
        return scopes.sessions_of(self.session_id, self.reads)


def fingerprint(kind: str, payload: Mapping[str, Any]) -> str:
    """Return the digest by which two requests are the same request."""
    return digest_of(canonical_json({"kind": kind, "payload": dict(payload)}))


class Accepted(NamedTuple):
    """The job that answers a request; true where it is new.

    Args:
        job_id: its id, which is another than was asked for where an idempotency key found an earlier job.
        new: whether this request made it.
    """

    job_id: str
    new: bool

    def __bool__(self) -> bool:
        return self.new


def enqueue(
    db: Database,
    new: NewJob,
    *,
    flow_run_id: str | None = None,
    within: Callable[[sa.Connection, Accepted], None] | None = None,
) -> Accepted:
    """Accept *new*: its row, its first attempt and its first event in one transaction.

    Idempotent by idempotency key, where there is one, and by id: the same request again changes nothing. Of
    several callers that ask at once one makes the job.

    Args:
        db: the ledger.
        new: the request.
        flow_run_id: the run that the first attempt has already, where Prefect itself started it.
        within: called in the same transaction, which spares whoever reads the job back another one; what it
            raises undoes everything.

    Returns:
        The job that was made, or that the same request made before.

    Raises:
        JobConflict: key or id belong to another kind or payload; ``data['differs']`` names what differs, and
            ``data['job_id']`` the job.
        UsageError: the id isn't one that the contract allows, or the key isn't 1 to 255 characters of text.
    """
    if not JOB_ID.fullmatch(new.job_id):
        raise UsageError(
            f"{new.job_id!r} is no job id.",
            hint="Use letters, digits, '.', '_', ':' and '-', at most 128, starting with a letter or digit.",
        )
    if new.job_id.startswith(ADOPTED) and new.origin != "prefect":
        raise UsageError(
            f"{new.job_id!r} is the id that a run of Prefect's own would get.",
            hint=f"Choose an id that doesn't begin with {ADOPTED!r}.",
        )
    _check_key(new.idempotency_key)
    with db.write() as tx:
        known = _by_key(tx, new)
        created = known is None and _insert(tx, new, db.clock.now(), flow_run_id)
        if not created:
            # somebody may have come between the look and the insert, with the same key or the same id
            known = known or _by_key(tx, new) or new.job_id
            _same_request(tx, known, new)
        accepted = Accepted(known or new.job_id, created)
        if within is not None:
            within(tx, accepted)
    if created:
        crash.at("enqueue.after-commit")
    return accepted


def find_unfinished(db: Database, kind: str, payload: Mapping[str, Any]) -> str | None:
    """Return the id of the newest job of this very request that may still complete, or ``None``.

    The facts decide beside the status, which follows them: a job that was called off a moment ago is none.
    """
    with db.read() as tx:
        return _find_unfinished(tx, kind, payload)


def _find_unfinished(tx: sa.Connection, kind: str, payload: Mapping[str, Any]) -> str | None:
    open_attempt = sa.exists().where(t.attempts.c.job_id == t.jobs.c.job_id, t.attempts.c.ended_at.is_(None))
    open_states = [status.value for status in JobStatus if status not in TERMINAL]
    query = (
        sa.select(t.jobs.c.job_id)
        .join(t.statuses, t.statuses.c.job_id == t.jobs.c.job_id)
        .where(
            t.jobs.c.kind == kind,
            t.jobs.c.fingerprint == fingerprint(kind, payload),
            t.statuses.c.status.in_(open_states),
            t.jobs.c.cancel_requested_at.is_(None),
            sa.or_(open_attempt, t.jobs.c.result_digest.is_not(None)),
        )
        .order_by(t.jobs.c.enqueued_at.desc(), t.jobs.c.job_id.desc())
        .limit(1)
    )
    return tx.execute(query).scalar()


def attach_or_enqueue(db: Database, new: NewJob) -> Accepted:
    """Return the newest unfinished job of this very request, or accept *new*; and whether it is new. Atomic.

    Two callers at once get the same job.
    """
    with db.write() as tx:
        if tx.dialect.name == "postgresql":
            key = int(fingerprint(new.kind, new.payload).removeprefix("sha256:")[:15], 16)
            tx.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
        found = _find_unfinished(tx, new.kind, new.payload)
        if found is None and not _insert(tx, new, db.clock.now()):
            raise JobConflict(f"Job {new.job_id!r} exists already.", differs=[])
    if found is not None:
        return Accepted(found, new=False)
    crash.at("enqueue.after-commit")
    return Accepted(new.job_id, new=True)


def payload_of(db: Database, job_id: str) -> tuple[str, dict[str, Any]]:
    """Return a job's kind and payload.

    Raises:
        JobNotFound: no job has this id.
    """
    with db.read() as tx:
        row = tx.execute(sa.select(t.jobs.c.kind, t.jobs.c.payload).where(t.jobs.c.job_id == job_id)).first()
    if row is None:
        raise JobNotFound(f"There is no job {job_id!r}.")
    return row.kind, row.payload


def session_of(db: Database, job_id: str) -> str | None:
    """Return the session that the job belongs to, where there is one."""
    with db.read() as tx:
        return tx.execute(sa.select(t.jobs.c.session_id).where(t.jobs.c.job_id == job_id)).scalar()


def lock(tx: sa.Connection, job_id: str) -> None:
    """Take the job's row lock for the rest of the transaction; every writer of its facts does it first.

    On PostgreSQL the lock makes the order of event ids within a job the order of commits; SQLite has one
    writer at a time anyway. It isn't an update, so that a look that finds nothing new writes nothing.

    Raises:
        JobNotFound: no job has this id.
    """
    # FOR NO KEY UPDATE: the foreign keys of rows that are being inserted don't wait for it
    row = sa.select(t.jobs.c.job_id).where(t.jobs.c.job_id == job_id).with_for_update(key_share=True)
    if tx.execute(row).first() is None:
        raise JobNotFound(f"There is no job {job_id!r}.")


def _check_key(key: str | None) -> None:
    if key is not None and not (0 < len(key) <= _LONGEST_KEY and key.isprintable()):
        raise UsageError(
            f"An idempotency key has 1 to {_LONGEST_KEY} printable characters.",
            hint="Make one key for each request, such as a UUID, and send it again with each repeat.",
        )


def _by_key(tx: sa.Connection, new: NewJob) -> str | None:
    if new.idempotency_key is None:
        return None
    query = sa.select(t.jobs.c.job_id).where(t.jobs.c.idempotency_key == new.idempotency_key)
    return tx.execute(query).scalar()


def _insert(tx: sa.Connection, new: NewJob, now: datetime, flow_run_id: str | None = None) -> bool:
    created = insert_missing(
        tx,
        t.jobs,
        job_id=new.job_id,
        kind=new.kind,
        payload=dict(new.payload),
        fingerprint=fingerprint(new.kind, new.payload),
        session_id=new.session_id,
        origin=new.origin,
        idempotency_key=new.idempotency_key,
        max_attempts=new.max_attempts,
        backoff=[new.backoff.first, new.backoff.factor, new.backoff.ceiling, new.backoff.jitter],
        time_limit=new.time_limit,
        file_saved_at=new.file_saved_at,
        enqueued_at=now,
    )
    if not created:
        return False
    scopes.keep(tx, new.job_id, new.sessions)
    tx.execute(
        sa.insert(t.statuses).values(
            job_id=new.job_id,
            status=JobStatus.QUEUED.value,
            attempts=0,
            max_attempts=new.max_attempts,
            checkpoint_seq=0,
            possible_double_run=False,
            rev=1,
            as_of=now,
        )
    )
    tx.execute(
        sa.insert(t.attempts).values(
            job_id=new.job_id,
            n=1,
            due_at=now,
            flow_run_id=flow_run_id,
            renewals=0,
            counts=False,
            run_closed=False,
        )
    )
    record(tx, new.job_id, Fact.ENQUEUED, {}, now)
    return True


def _same_request(tx: sa.Connection, job_id: str, new: NewJob) -> None:
    row = tx.execute(
        sa.select(t.jobs.c.kind, t.jobs.c.payload, t.jobs.c.fingerprint).where(t.jobs.c.job_id == job_id)
    ).one()
    if row.fingerprint == fingerprint(new.kind, new.payload):
        return
    differs = [] if row.kind == new.kind else ["kind"]
    # compared as JSON, in which 1, 1.0 and true differ and a tuple is a list
    had = {name: canonical_json(value) for name, value in row.payload.items()}
    asked = {name: canonical_json(value) for name, value in new.payload.items()}
    fields = sorted(had.keys() | asked.keys())
    differs += [f"payload.{name}" for name in fields if had.get(name) != asked.get(name)]
    raise JobConflict(
        f"Job {job_id!r} exists and was asked for with another {', '.join(differs)}.",
        hint=None if job_id == new.job_id else "Use another idempotency key, or send the same payload again.",
        differs=differs,
        job_id=job_id,
    )
