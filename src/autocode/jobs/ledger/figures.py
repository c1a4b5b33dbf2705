"""The figures by which somebody watches a service: counted from what is persisted, as of one moment."""

from __future__ import annotations

from collections import Counter
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
    """Count in one transaction, so that all figures are of one moment. Reads only; goes through jobs once."""
    with db.read() as tx:
        at = db.clock.now()
        found = _Jobs(tx)
        tried = _Attempts(tx)
        untold, untold_since = tx.execute(
            sa.select(sa.func.count(), sa.func.min(t.events.c.at)).where(t.events.c.cursor.is_(None))
        ).one()
        return Figures(
            at=at,
            jobs={(kind, each): found.status[kind, each] for kind in found.kinds for each in JobStatus},
            dead={(kind, each): found.reason[kind, each] for kind in found.kinds for each in DeadReason},
            queued_since=found.queued_since,
            due_since={kind: due for kind, due in found.due_since.items() if due <= at},
            begun=tried.begun,
            ended=tried.ended,
            busy=_busy(tx),
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


class _Jobs:
    """The jobs by kind, state and reason, and the oldest of them."""

    def __init__(self, tx: sa.Connection) -> None:
        self.status: Counter[tuple[str, JobStatus]] = Counter()
        self.reason: Counter[tuple[str, DeadReason]] = Counter()
        self.queued_since: dict[str, datetime] = {}
        self.due_since: dict[str, datetime] = {}
        kind, status, reason = t.jobs.c.kind, t.statuses.c.status, t.statuses.c.reason
        query = sa.select(
            kind,
            status,
            reason,
            sa.func.count().label("many"),
            sa.func.min(t.jobs.c.enqueued_at).label("enqueued_at"),
            sa.func.min(t.statuses.c.next_attempt_at).label("due_at"),
        )
        for row in tx.execute(query.select_from(t.jobs.join(t.statuses)).group_by(kind, status, reason)):
            self.status[row.kind, JobStatus(row.status)] += row.many
            if row.reason is not None:
                self.reason[row.kind, DeadReason(row.reason)] += row.many
            if row.status == JobStatus.QUEUED.value:
                self.queued_since[row.kind] = row.enqueued_at
            if row.status == JobStatus.RETRY.value and row.due_at is not None:
                self.due_since[row.kind] = row.due_at

    @property
    def kinds(self) -> list[str]:
        """Every kind that has a job."""
        return sorted({kind for kind, _ in self.status})


class _Attempts:
    """The attempts by kind: how many began, and how they ended."""

    def __init__(self, tx: sa.Connection) -> None:
        self.begun: Counter[str] = Counter()
        self.ended: Counter[tuple[str, Outcome]] = Counter()
        kind, outcome = t.jobs.c.kind, t.attempts.c.outcome
        began = t.attempts.c.begun_at.is_not(None).label("began")
        query = sa.select(kind, outcome, began, sa.func.count().label("many"))
        for row in tx.execute(query.select_from(t.attempts.join(t.jobs)).group_by(kind, outcome, began)):
            if row.began:
                self.begun[row.kind] += row.many
            if row.outcome is not None:
                self.ended[row.kind, Outcome(row.outcome)] += row.many


def _busy(tx: sa.Connection) -> Counter[str]:
    # an attempt that has ended and whose run is open is on the index, too, and few are
    open_ = sa.and_(
        t.attempts.c.run_closed.is_(False),
        t.attempts.c.begun_at.is_not(None),
        t.attempts.c.ended_at.is_(None),
    )
    holders = tx.execute(sa.select(t.attempts.c.holder).where(open_)).scalars()
    # a holder is host:process:token
    return Counter(str(holder).partition(":")[0] for holder in holders)


def _deliveries(tx: sa.Connection) -> dict[DeliveryState, int]:
    query = sa.select(deliveries.c.state, sa.func.count()).group_by(deliveries.c.state)
    counted: dict[str, int] = {row[0]: row[1] for row in tx.execute(query)}
    return {state: counted.get(state.value, 0) for state in DeliveryState}
