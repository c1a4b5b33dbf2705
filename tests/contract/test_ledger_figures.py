"""The figures of a ledger: what is counted agrees with the lists, on both databases."""

from __future__ import annotations

from datetime import timedelta

from autocode.jobs.ledger import attempts, jobs, listing
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.figures import figures
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.notification_resource import DeliveryState
from autocode.jobs.projection import Outcome
from ledger_world import begin, look, new_job, problem


def test_an_empty_ledger_has_no_kinds(database: Database) -> None:
    """No job means no figure by kind; the rest is zero."""
    found = figures(database)
    assert (found.jobs, found.dead, found.begun, found.ended, found.busy) == ({}, {}, {}, {}, {})
    assert (found.cursor, found.untold, found.untold_since) == (0, 0, None)
    assert found.deliveries == dict.fromkeys(DeliveryState, 0)


def test_figures_agree_with_the_counts(database: Database) -> None:
    """Every state and reason of a kind has the number of jobs that a list would have."""
    for job_id in ("queued", "running", "retrying", "dead"):
        jobs.enqueue(database, new_job(job_id))
    for job_id in ("running", "retrying", "dead"):
        begin(database, job_id)
    attempts.end(database, "retrying", 1, Outcome.CRASHED, error=problem())
    attempts.end(database, "dead", 1, Outcome.PERMANENT, error=problem())
    for job_id in ("queued", "running", "retrying", "dead"):
        look(database, job_id)
    found, counted = figures(database), listing.counts(database)
    (kind,) = {kind for kind, _ in found.jobs}
    assert {status: found.jobs[kind, status] for status in JobStatus} == counted.by_status
    assert {reason: found.dead[kind, reason] for reason in DeadReason} == counted.dead
    assert found.begun == {kind: 3}
    assert found.ended == {(kind, Outcome.CRASHED): 1, (kind, Outcome.PERMANENT): 1}
    assert sum(found.busy.values()) == 1
    assert set(found.queued_since) == {kind}
    assert timedelta(0) <= found.at - found.queued_since[kind] < timedelta(minutes=5)
    assert found.cursor == counted.event_cursor
    assert found.untold == 0


def test_what_nobody_told_of_is_counted(database: Database) -> None:
    """A fact counts as untold from its commit until reconcile stamps it."""
    jobs.enqueue(database, new_job("job"))
    before = figures(database)
    look(database, "job")
    after = figures(database)
    assert (before.untold, after.untold) == (1, 0)
    assert before.untold_since is not None
    assert after.untold_since is None
    assert after.cursor == 1
