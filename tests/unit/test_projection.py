"""The projection: every row of the contract's table, and that nothing falls between the rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefect import states as prefect_states
from prefect.client.schemas.objects import State, StateType

from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.projection import (
    ENDED_STATES,
    KNOWN_STATES,
    LIVE_STATES,
    AttemptFacts,
    Ending,
    JobFacts,
    Lease,
    Outcome,
    RunState,
    Verdict,
    budget_spent,
    counted_failures,
    project,
)

DUE = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
EVERY_RUN = [RunState(), RunState("GONE"), *(RunState(state) for state in sorted(KNOWN_STATES))]


def attempt(n: int, outcome: Outcome | None = None, *, begun: bool = True) -> AttemptFacts:
    """Return attempt *n*, running unless it has an *outcome* or hasn't begun."""
    counts = outcome is not None and outcome.counts
    return AttemptFacts(n, DUE + timedelta(minutes=n), begun=begun, outcome=outcome, counts=counts)


def planned(n: int) -> AttemptFacts:
    """Return attempt *n*, not begun."""
    return attempt(n, begun=False)


def judged(
    *attempts: AttemptFacts,
    run: RunState | None = None,
    lease: Lease = Lease.ALIVE,
    max_attempts: int = 3,
    **job: bool,
) -> Verdict:
    """Project these facts."""
    return project(JobFacts(max_attempts, **job), attempts, run or RunState(), lease)


def decided(verdict: Verdict) -> tuple[str, JobStatus, DeadReason | None]:
    """Return the row that decided, and the state."""
    return verdict.row, verdict.status, verdict.reason


@pytest.mark.parametrize("run", EVERY_RUN, ids=str)
@pytest.mark.parametrize("lease", Lease)
@pytest.mark.parametrize(
    "last", [attempt(1, Outcome.COMPLETED), attempt(1, Outcome.PERMANENT), attempt(1), planned(1)], ids=str
)
def test_a_verified_result_is_complete(run: RunState, lease: Lease, last: AttemptFacts) -> None:
    """Row 1: result committed and verified, any Prefect state: complete, whatever else is known."""
    verdict = judged(last, run=run, lease=lease, result_verified=True, cancel_requested=True)

    assert decided(verdict) == ("result", JobStatus.COMPLETE, None)
    assert verdict.ends is None


@pytest.mark.parametrize("run", EVERY_RUN, ids=str)
def test_a_committed_result_is_verified_first(run: RunState) -> None:
    """A result that is committed and not yet verified shows as running, with a note; no cancel beats it."""
    verdict = judged(attempt(1, Outcome.COMPLETED), run=run, cancel_requested=True)

    assert decided(verdict) == ("committed", JobStatus.RUNNING, None)
    assert verdict.note == "verifying the result"


@pytest.mark.parametrize("run", EVERY_RUN, ids=str)
@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.COMPLETED])
def test_cancelled_and_ended_is_dead(run: RunState, outcome: Outcome) -> None:
    """Row 2: cancelled, attempt ended, any Prefect state: dead, cancelled, however the attempt ended."""
    verdict = judged(attempt(1, outcome), run=run, cancel_requested=True)

    assert decided(verdict) == ("cancelled", JobStatus.DEAD, DeadReason.CANCELLED)
    assert verdict.ends is None


@pytest.mark.parametrize("run", EVERY_RUN, ids=str)
@pytest.mark.parametrize("attempts", [[planned(1)], [attempt(1, Outcome.FAILED), planned(2)]], ids=len)
def test_cancelled_before_it_began_is_dead(run: RunState, attempts: list[AttemptFacts]) -> None:
    """A job that is called off while no attempt runs is dead at once, and its planned attempt is to end."""
    verdict = judged(*attempts, run=run, cancel_requested=True)

    assert decided(verdict) == ("cancelled", JobStatus.DEAD, DeadReason.CANCELLED)
    assert verdict.ends is not None
    assert verdict.ends.outcome is Outcome.CANCELLED


@pytest.mark.parametrize("state", sorted(LIVE_STATES))
def test_cancelled_while_it_runs_is_running(state: str) -> None:
    """A cancel that no attempt has answered yet shows as running."""
    verdict = judged(attempt(1), run=RunState(state), cancel_requested=True)

    assert verdict.status is JobStatus.RUNNING


@pytest.mark.parametrize("run", EVERY_RUN, ids=str)
def test_a_permanent_error_is_dead(run: RunState) -> None:
    """Row 3: latest attempt ended with a permanent error, any Prefect state: dead, permanent."""
    verdict = judged(attempt(1, Outcome.PERMANENT), run=run)

    assert decided(verdict) == ("permanent", JobStatus.DEAD, DeadReason.PERMANENT)


@pytest.mark.parametrize("run", EVERY_RUN, ids=str)
@pytest.mark.parametrize(
    ("outcomes", "reason"),
    [
        ([Outcome.FAILED, Outcome.FAILED], DeadReason.EXHAUSTED),
        ([Outcome.CRASHED, Outcome.TIMED_OUT], DeadReason.EXHAUSTED),
        ([Outcome.FAILED, Outcome.LOST], DeadReason.EXHAUSTED),
        ([Outcome.CRASHED, Outcome.LOST], DeadReason.POISON),
        ([Outcome.CRASHED, Outcome.INTERRUPTED, Outcome.CRASHED], DeadReason.POISON),
        ([Outcome.GONE, Outcome.FAILED, Outcome.CRASHED], DeadReason.EXHAUSTED),
    ],
)
def test_a_spent_budget_is_dead(run: RunState, outcomes: list[Outcome], reason: DeadReason) -> None:
    """Row 4: latest attempt ended, budget spent: dead, exhausted, or poison when each killed its process."""
    attempts = [attempt(n, outcome) for n, outcome in enumerate(outcomes, start=1)]

    verdict = judged(*attempts, run=run, max_attempts=2)

    assert decided(verdict) == ("spent", JobStatus.DEAD, reason)


@pytest.mark.parametrize("run", [RunState(), RunState("SCHEDULED"), RunState("PENDING")], ids=str)
def test_budget_left_is_retrying(run: RunState) -> None:
    """Row 5: latest attempt ended, budget left, no run yet or one that waits: retrying."""
    verdict = judged(attempt(1, Outcome.FAILED), run=run)

    assert decided(verdict) == ("budget left", JobStatus.RETRY, None)


def test_the_next_attempt_is_due_when_the_plan_says() -> None:
    """Row 5, as the ledger has it: the next attempt is planned at once, and its time is shown."""
    verdict = judged(attempt(1, Outcome.FAILED), planned(2))

    assert decided(verdict) == ("waiting", JobStatus.RETRY, None)
    assert verdict.next_attempt_at == DUE + timedelta(minutes=2)


@pytest.mark.parametrize(
    ("run", "note"),
    [
        (RunState("RUNNING", "Running"), None),
        (RunState("RUNNING", "Retrying"), None),
        (RunState(), None),
        (RunState("PENDING", "Pending"), "Prefect says Pending"),
        (RunState("PAUSED", "Suspended"), "Prefect says Suspended"),
        (RunState("CANCELLING"), "Prefect says CANCELLING"),
        (RunState("SCHEDULED", "AwaitingRetry"), "Prefect says AwaitingRetry"),
    ],
    ids=str,
)
def test_begun_and_alive_is_running(run: RunState, note: str | None) -> None:
    """Row 6: attempt begun, lease alive, run not ended: running; a note says which where it isn't RUNNING."""
    verdict = judged(attempt(1, Outcome.FAILED), attempt(2), run=run)

    assert decided(verdict) == ("alive", JobStatus.RUNNING, None)
    assert (verdict.note, verdict.ends) == (note, None)


@pytest.mark.parametrize("run", EVERY_RUN, ids=str)
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_lost_lease_is_retrying(run: RunState, cancelled: bool) -> None:
    """Row 7: attempt begun, lease lost, any Prefect state: retrying, worker lost; it is to be ended."""
    verdict = judged(attempt(1), run=run, lease=Lease.LOST, cancel_requested=cancelled)

    assert decided(verdict) == ("lease lost", JobStatus.RETRY, None)
    assert verdict.note == "worker lost"
    assert verdict.ends is not None
    assert verdict.ends.outcome is Outcome.LOST


@pytest.mark.parametrize(
    ("run", "cancelled", "outcome"),
    [
        (RunState("FAILED"), False, Outcome.FAILED),
        (RunState("CRASHED"), False, Outcome.CRASHED),
        (RunState("COMPLETED"), False, Outcome.FAILED),
        (RunState("CANCELLED"), False, Outcome.FAILED),
        (RunState("CANCELLED"), True, Outcome.CANCELLED),
        (RunState("GONE"), False, Outcome.LOST),
    ],
    ids=str,
)
def test_ended_in_prefect_is_ended_here(run: RunState, cancelled: bool, outcome: Outcome) -> None:
    """Row 8: attempt begun, lease alive, run ended: the attempt is to be ended with what Prefect says."""
    said = RunState(run.type, "Name", "the message")

    verdict = judged(attempt(1), run=said, cancel_requested=cancelled)

    assert decided(verdict) == ("ended in Prefect", JobStatus.RETRY, None)
    assert verdict.ends == Ending(
        outcome, "Prefect ended the run as Name without a committed result: the message"
    )


@pytest.mark.parametrize("run", [RunState(), *(RunState(state) for state in sorted(LIVE_STATES))], ids=str)
def test_not_begun_is_queued(run: RunState) -> None:
    """Row 9: no attempt begun, no run or one that hasn't ended: queued, with no time of a next attempt."""
    verdict = judged(planned(1), run=run, lease=Lease.LOST)

    assert decided(verdict) == ("waiting", JobStatus.QUEUED, None)
    assert (verdict.next_attempt_at, verdict.ends) == (None, None)


@pytest.mark.parametrize(
    "first", [attempt(1, Outcome.FAILED), attempt(1, Outcome.GONE, begun=False)], ids=str
)
def test_not_begun_after_the_first_is_retrying(first: AttemptFacts) -> None:
    """Row 9: a later attempt that hasn't begun shows as retrying."""
    verdict = judged(first, planned(2), run=RunState("SCHEDULED", "Late"))

    assert decided(verdict) == ("waiting", JobStatus.RETRY, None)


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("FAILED", Outcome.FAILED),
        ("CRASHED", Outcome.FAILED),
        ("CANCELLED", Outcome.FAILED),
        ("COMPLETED", Outcome.FAILED),
        ("GONE", Outcome.GONE),
    ],
)
@pytest.mark.parametrize("n", [1, 2])
def test_a_run_that_ended_unbegun_is_replaced(state: str, outcome: Outcome, n: int) -> None:
    """Row 10: no attempt begun, run ended or gone: it is replaced, and counts unless it is gone."""
    earlier = [attempt(k, Outcome.FAILED) for k in range(1, n)]

    verdict = judged(*earlier, planned(n), run=RunState(state))

    assert decided(verdict) == ("replaced", JobStatus.QUEUED if n == 1 else JobStatus.RETRY, None)
    assert verdict.ends is not None
    assert verdict.ends.outcome is outcome
    assert outcome.counts == (state != "GONE")


def test_prefect_has_no_state_that_the_table_lacks() -> None:
    """Each of Prefect's state types is in one of the table's two sets, and the table has no others."""
    types = {state.value for state in StateType}

    assert types == KNOWN_STATES
    assert LIVE_STATES.isdisjoint(ENDED_STATES)


def test_final_means_the_same_to_prefect() -> None:
    """What the table takes for ended is what Prefect takes for final."""
    final = {state.value for state in StateType if State(type=state).is_final()}

    assert final == ENDED_STATES


def named_states() -> list[State[Any]]:
    """Return one state from each of Prefect's named constructors."""
    made: list[State[Any]] = [
        prefect_states.Scheduled(),
        prefect_states.Late(),
        prefect_states.AwaitingRetry(),
        prefect_states.AwaitingConcurrencySlot(),
        prefect_states.Pending(),
        prefect_states.Running(),
        prefect_states.Retrying(),
        prefect_states.Paused(timeout_seconds=1),
        prefect_states.Suspended(timeout_seconds=1),
        prefect_states.Cancelling(),
        prefect_states.Cancelled(),
        prefect_states.Completed(),
        prefect_states.Failed(),
        prefect_states.Crashed(),
    ]
    cached = State[Any](type=StateType.COMPLETED, name="Cached")
    timed_out = State[Any](type=StateType.FAILED, name="TimedOut")
    return [*made, cached, timed_out]


@pytest.mark.parametrize("state", named_states(), ids=lambda state: state.name)
@pytest.mark.parametrize("last", [planned(1), attempt(1), attempt(1, Outcome.FAILED)], ids=str)
@pytest.mark.parametrize("lease", Lease)
def test_names_change_nothing(state: State[Any], last: AttemptFacts, lease: Lease) -> None:
    """The name that Prefect gives a state decides nothing: its type does."""
    named = judged(last, run=RunState(state.type.value, state.name or ""), lease=lease)
    plain = judged(last, run=RunState(state.type.value), lease=lease)

    assert decided(named) == decided(plain)
    assert (named.ends and named.ends.outcome) == (plain.ends and plain.ends.outcome)
    assert named.next_attempt_at == plain.next_attempt_at


def test_a_state_that_nobody_knows_is_refused() -> None:
    """A state type that the table doesn't name is an error, never a guess."""
    with pytest.raises(ValueError, match="DREAMING"):
        judged(attempt(1), run=RunState("DREAMING"))


def test_a_job_without_attempts_is_refused() -> None:
    """A job has an attempt from the moment it was accepted."""
    with pytest.raises(ValueError, match="at least one attempt"):
        judged()


def histories() -> st.SearchStrategy[list[AttemptFacts]]:
    """Return any list of attempts in which all but the last have ended."""
    last = st.sampled_from([("planned", None), ("begun", None), *(("ended", outcome) for outcome in Outcome)])
    ended = st.lists(st.sampled_from(Outcome), max_size=6)

    def build(parts: tuple[list[Outcome], tuple[str, Outcome | None], bool]) -> list[AttemptFacts]:
        earlier, (kind, outcome), begun = parts
        made = [attempt(n, o, begun=begun) for n, o in enumerate(earlier, start=1)]
        return [
            *made,
            attempt(len(made) + 1, outcome, begun=kind != "planned" and (begun or outcome is None)),
        ]

    return st.tuples(ended, last, st.booleans()).map(build)


@given(
    attempts=histories(),
    run=st.sampled_from(EVERY_RUN),
    lease=st.sampled_from(Lease),
    max_attempts=st.integers(1, 5),
    verified=st.booleans(),
    cancelled=st.booleans(),
)
def test_every_situation_has_one_answer(
    *,
    attempts: list[AttemptFacts],
    run: RunState,
    lease: Lease,
    max_attempts: int,
    verified: bool,
    cancelled: bool,
) -> None:
    """Whatever the facts, one state comes out, the same each time, with a reason exactly where it is dead."""
    job = JobFacts(max_attempts, result_verified=verified, cancel_requested=cancelled)

    verdict = project(job, attempts, run, lease)

    assert project(job, attempts, run, lease) == verdict
    assert (verdict.reason is not None) == (verdict.status is JobStatus.DEAD)
    assert (verdict.status is JobStatus.COMPLETE) == verified
    if verdict.ends is not None:
        assert not attempts[-1].ended
    if verdict.status is JobStatus.QUEUED:
        assert not any(each.begun for each in attempts)


@given(attempts=histories(), run=st.sampled_from(EVERY_RUN), max_attempts=st.integers(1, 5))
def test_doing_what_the_verdict_asks_settles_it(
    attempts: list[AttemptFacts], run: RunState, max_attempts: int
) -> None:
    """Once the attempt is ended as asked, and the next one planned while budget is left, nothing is asked."""
    job = JobFacts(max_attempts)
    asked = project(job, attempts, run, Lease.LOST).ends
    if asked is None:
        return
    last = attempts[-1]
    ended = [*attempts[:-1], attempt(last.n, asked.outcome, begun=last.begun)]
    if not budget_spent(job, ended):
        ended.append(planned(last.n + 1))

    settled = project(job, ended, RunState(), Lease.ALIVE)

    assert settled.ends is None
    assert settled.status in {JobStatus.RETRY, JobStatus.DEAD}


def test_what_counts_against_the_budget() -> None:
    """Handing back, a run that vanished unbegun and success use no budget; everything else does."""
    free = {outcome for outcome in Outcome if not outcome.counts}
    attempts = [attempt(n, outcome) for n, outcome in enumerate(Outcome, start=1)]

    assert free == {Outcome.INTERRUPTED, Outcome.GONE, Outcome.COMPLETED}
    assert counted_failures(attempts) == len(Outcome) - 3
    assert budget_spent(JobFacts(len(Outcome) - 3), attempts)
    assert not budget_spent(JobFacts(len(Outcome) - 2), attempts)
