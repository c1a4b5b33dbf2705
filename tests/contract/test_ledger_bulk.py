"""Many dead letters at once: which ones are meant, on both databases."""

from __future__ import annotations

import pytest

from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import attempts, bulk, effects, jobs, results
from autocode.jobs.ledger.bulk import Standing
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.listing import Filter
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.projection import Outcome
from ledger_world import begin, look, new_job, problem


def dead(database: Database, job_id: str, session: str, *, effect: str | None = None) -> None:
    """Let a job of a session have died of a permanent error, perhaps with an effect that is open."""
    jobs.enqueue(database, new_job(job_id, session_id=session, reads=frozenset()))
    attempt = begin(database, job_id)
    if effect is not None:
        effects.intend(database, attempt, effect)
    attempts.end(database, job_id, 1, Outcome.PERMANENT, error=problem())
    look(database, job_id)


@pytest.fixture
def letters(database: Database) -> Database:
    """Give a ledger with two dead letters, a job that was called off and one that waits."""
    dead(database, "one", "mine", effect="mail:one")
    dead(database, "two", "other")
    for job_id in ("cancelled", "queued"):
        jobs.enqueue(database, new_job(job_id, session_id="mine", reads=frozenset()))
        look(database, job_id)
    results.request_cancel(database, "cancelled", actor="somebody", reason="no need")
    look(database, "cancelled")
    return database


def test_dead_letters_are_meant_and_no_other_jobs(letters: Database) -> None:
    """Newest first, with their revisions and the effects that may happen again."""
    found = bulk.dead_letters(letters, Filter())

    assert [each.job_id for each in found] == ["two", "one"]
    assert {each.status for each in found} == {JobStatus.DEAD}
    assert [each.effects_open for each in found] == [(), ("mail:one",)]
    assert all(each.rev for each in found)


def test_cancelled_jobs_are_meant_where_they_are_asked_for(letters: Database) -> None:
    """By their reason, which no dead letter has."""
    found = bulk.dead_letters(letters, Filter(reason=frozenset({DeadReason.CANCELLED})))

    assert [each.job_id for each in found] == ["cancelled"]


def test_what_a_reader_may_not_see_is_as_if_it_werent_there(letters: Database) -> None:
    """By a filter it is left out, and by its name nothing is said of it."""
    mine = frozenset({"mine"})

    assert [each.job_id for each in bulk.dead_letters(letters, Filter(sessions=mine))] == ["one"]
    assert bulk.named(letters, ["two", "gone"], mine) == (
        Standing("two", None, None),
        Standing("gone", None, None),
    )


def test_a_job_that_is_about_to_change_says_so(letters: Database) -> None:
    """A fact that nobody was told of yet is one."""
    results.request_cancel(letters, "queued", actor="somebody", reason="no need")

    (found,) = bulk.named(letters, ["queued"], None)

    assert (found.status, found.moves) == (JobStatus.QUEUED, True)


def test_too_many_are_refused_with_their_number(letters: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody gets a part of what was asked for."""
    monkeypatch.setattr(bulk, "MOST_JOBS", 1)

    with pytest.raises(UsageError, match="2 dead letters"):
        bulk.dead_letters(letters, Filter())
