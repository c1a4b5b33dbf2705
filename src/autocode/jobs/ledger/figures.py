"""The figures by which somebody watches a service: counted from what is persisted, as of one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.schema_notifications import deliveries
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.notification_resource import DeliveryState
from autocode.jobs.projection import Outcome

__all__ = ["Figures", "figures"]


@dataclass(frozen=True, slots=True)
class Figures:
    """What the ledger says of all jobs.

    Args:
        at: the clock at which it was counted.
        jobs: how many jobs of a kind are in a state. A kind that has any job has every state.
        dead: how many jobs of a kind are dead for a reason. A kind that has any job has every reason.
        queued_since: when the job was accepted that has been queued for longest, by kind; a kind of which
            none is queued isn't here.
        due_since: when the next attempt of the retrying job was due that is overdue for longest, by kind.
        begun: how many attempts have begun, by kind.
        ended: how many attempts have ended, by kind and how.
        busy: how many attempts have begun and not ended, by the machine that their process is on.
        cursor: the newest event that was told.
        untold: how many facts are committed that no event has told of yet.
        untold_since: when the first of these was committed; ``None`` where there is none.
        deliveries: how many notifications are in a state; every state, also with 0.
        leaders: the term and the renewals of who leads, by role.
    """

    at: datetime
    jobs: Mapping[tuple[str, JobStatus], int]
    dead: Mapping[tuple[str, DeadReason], int]
    queued_since: Mapping[str, datetime]
    due_since: Mapping[str, datetime]
    begun: Mapping[str, int]
    ended: Mapping[tuple[str, Outcome], int]
    busy: Mapping[str, int]
    cursor: int
    untold: int
    untold_since: datetime | None
    deliveries: Mapping[DeliveryState, int]
    leaders: Mapping[str, tuple[int, int]]


def figures(db: Database) -> Figures:
    """Count, in one transaction, so that all figures are of one moment. Reads only."""
    with db.read() as tx:
        at = db.clock.now()
        by_status = _grouped(tx, t.jobs.c.kind, t.statuses.c.status)
        kinds = sorted({kind for kind, _ in by_status})
        by_reason = _grouped(tx, t.jobs.c.kind, t.statuses.c.reason)
        open_ = sa.and_(t.attempts.c.begun_at.is_not(None), t.attempts.c.ended_at.is_(None))
        untold, untold_since = tx.execute(
            sa.select(sa.func.count(), sa.func.min(t.events.c.at)).where(t.events.c.cursor.is_(None))
        ).one()
        return Figures(
            at=at,
            jobs={(kind, each): by_status.get((kind, each), 0) for kind in kinds for each in JobStatus},
            dead={(kind, each): by_reason.get((kind, each), 0) for kind in kinds for each in DeadReason},
            queued_since=_oldest(tx, t.jobs.c.enqueued_at, JobStatus.QUEUED),
            due_since={
                kind: due
                for kind, due in _oldest(tx, t.statuses.c.next_attempt_at, JobStatus.RETRY).items()
                if due <= at
            },
            begun=_begun(tx),
            ended=_ended(tx),
            busy=_busy(tx, open_),
            cursor=tx.execute(
                sa.select(t.counters.c.value).where(t.counters.c.name == "cursor")
            ).scalar_one(),
            untold=untold,
            untold_since=untold_since,
            deliveries=_deliveries(tx),
            leaders={
                row.role: (row.term, row.renewals)
                for row in tx.execute(sa.select(t.leaders).where(t.leaders.c.holder != ""))
            },
        )


def _grouped(tx: sa.Connection, kind: sa.Column[str], value: sa.Column[str]) -> dict[tuple[str, str], int]:
    query = sa.select(kind, value, sa.func.count()).select_from(t.jobs.join(t.statuses))
    rows = tx.execute(query.where(value.is_not(None)).group_by(kind, value))
    return {(row[0], row[1]): row[2] for row in rows}


def _oldest(tx: sa.Connection, moment: sa.Column[datetime], status: JobStatus) -> dict[str, datetime]:
    query = sa.select(t.jobs.c.kind, sa.func.min(moment)).select_from(t.jobs.join(t.statuses))
    rows = tx.execute(query.where(t.statuses.c.status == status.value).group_by(t.jobs.c.kind))
    return {kind: oldest for kind, oldest in rows if oldest is not None}


def _begun(tx: sa.Connection) -> dict[str, int]:
    query = sa.select(t.jobs.c.kind, sa.func.count()).select_from(t.attempts.join(t.jobs))
    rows = tx.execute(query.where(t.attempts.c.begun_at.is_not(None)).group_by(t.jobs.c.kind))
    return {row[0]: row[1] for row in rows}


def _ended(tx: sa.Connection) -> dict[tuple[str, Outcome], int]:
    outcome = t.attempts.c.outcome
    query = sa.select(t.jobs.c.kind, outcome, sa.func.count()).select_from(t.attempts.join(t.jobs))
    rows = tx.execute(query.where(outcome.is_not(None)).group_by(t.jobs.c.kind, outcome))
    return {(row[0], Outcome(row[1])): row[2] for row in rows}


def _busy(tx: sa.Connection, running: sa.ColumnElement[bool]) -> dict[str, int]:
    found: dict[str, int] = {}
    # a holder is host:process:token; only few attempts are open at once
    for holder in tx.execute(sa.select(t.attempts.c.holder).where(running)).scalars():
        host = str(holder).partition(":")[0]
        found[host] = found.get(host, 0) + 1
    return found


def _deliveries(tx: sa.Connection) -> dict[DeliveryState, int]:
    query = sa.select(deliveries.c.state, sa.func.count()).group_by(deliveries.c.state)
    counted: dict[str, int] = {row[0]: row[1] for row in tx.execute(query)}
    return {state: counted.get(state.value, 0) for state in DeliveryState}
