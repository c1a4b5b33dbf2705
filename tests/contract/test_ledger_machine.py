"""Random lives of jobs, led by several pretended processes, against a model simple enough to believe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from autocode.jobs.errors import AttemptEnded, JobConflict, JobNotDead, RevisionMoved
from autocode.jobs.ledger import attempts, audit, events, jobs, queries, results, retries, schema, statuses
from autocode.jobs.ledger.attempts import Attempt
from autocode.jobs.ledger.database import Database
from autocode.jobs.model import TERMINAL, TRANSITIONS, JobStatus
from autocode.jobs.projection import KNOWN_STATES, AttemptFacts, JobFacts, Lease, Outcome, RunState, project
from ledger_world import TickingClock, commit, memo_key, new_job, problem, produced, rows, wipe

ENDINGS = [outcome for outcome in Outcome if outcome is not Outcome.COMPLETED]
RUNS = [RunState(), RunState("GONE"), *(RunState(state, state.title()) for state in sorted(KNOWN_STATES))]
NUMBERS = st.integers(0, 9)


@dataclass
class ModelJob:
    """What the machine believes of a job."""

    payload: int
    max_attempts: int
    begun: list[bool] = field(default_factory=lambda: [False])
    outcomes: list[Outcome | None] = field(default_factory=lambda: [None])
    cancelled: bool = False
    result: str | None = None
    result_attempt: int = 0
    verified: bool = False
    steps: list[tuple[str, str]] = field(default_factory=list)
    facts: list[str] = field(default_factory=lambda: ["enqueued"])
    told: int = 0
    retried_after: int = 0
    fresh_after: int = 0
    told_before: int = 0

    @property
    def failures(self) -> int:
        """How many attempts used up budget."""
        return sum(outcome is not None and outcome.counts for outcome in self.outcomes)

    def end(self, n: int, outcome: Outcome) -> None:
        """End attempt *n* and plan the next where the contract says so."""
        self.outcomes[n - 1] = outcome
        self.facts.append("ended")
        final = outcome in {Outcome.COMPLETED, Outcome.PERMANENT}
        if not final and not self.cancelled and self.failures < self.max_attempts:
            self.begun.append(False)
            self.outcomes.append(None)

    def retry(self, start: str, more: int) -> None:
        """Give the job further attempts, the next of them planned."""
        self.facts.append("retry-requested")
        self.cancelled = False
        self.retried_after = len(self.begun)
        if self.outcomes[-1] is None:
            self.outcomes[-1] = Outcome.CANCELLED
            self.facts.append("ended")
        self.begun.append(False)
        self.outcomes.append(None)
        self.max_attempts = self.failures + more
        if start == "start":
            self.fresh_after = len(self.steps)

    def project(self, clock: TickingClock, run: RunState, lease: Lease) -> tuple[JobStatus, Any]:
        """Return the state and reason that the contract gives these facts."""
        known = [
            AttemptFacts(n, clock.now(), begun, outcome, outcome is not None and outcome.counts)
            for n, (begun, outcome) in enumerate(zip(self.begun, self.outcomes, strict=True), start=1)
        ]
        facts = JobFacts(self.max_attempts, self.verified, self.cancelled, self.retried_after)
        verdict = project(facts, known, run, lease)
        return verdict.status, verdict.reason


class Ledger(RuleBasedStateMachine):
    """A ledger, and handles of processes that may have lost their attempts long ago."""

    url: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.clock = TickingClock()
        self.db = Database(self.url, clock=self.clock)
        wipe(self.db)
        self.jobs: dict[str, ModelJob] = {}
        self.handles: list[Attempt] = []
        self.heard: list[dict[str, Any]] = []

    def teardown(self) -> None:
        """Close the connections."""
        self.db.close()

    def job(self, number: int) -> tuple[str, ModelJob]:
        """Choose a job that exists."""
        job_id = sorted(self.jobs)[number % len(self.jobs)]
        return job_id, self.jobs[job_id]

    def handle(self, number: int) -> tuple[Attempt, ModelJob, bool]:
        """Choose a process; say whether it still holds its attempt."""
        # the newest is the likeliest to be alive
        attempt = self.handles[-1 - number % len(self.handles)]
        job = self.jobs[attempt.job_id]
        return attempt, job, job.outcomes[attempt.n - 1] is None

    def attempt_write(self, allowed: bool, write: Callable[[], object]) -> None:
        """Write, and expect a refusal unless *allowed*."""
        try:
            write()
        except AttemptEnded:
            assert not allowed
        else:
            assert allowed

    @rule(number=st.integers(0, 2), payload=st.integers(0, 1), max_attempts=st.integers(1, 3))
    def enqueue(self, number: int, payload: int, max_attempts: int) -> None:
        """Somebody asks for a job."""
        job_id = f"job-{number}"
        known = self.jobs.get(job_id)
        request = new_job(job_id, payload={"size": payload}, max_attempts=max_attempts)
        try:
            created = jobs.enqueue(self.db, request)
        except JobConflict:
            assert known is not None
            assert known.payload != payload
            return
        assert created == (job_id, known is None)
        assert known is None or known.payload == payload
        self.jobs.setdefault(job_id, ModelJob(payload, max_attempts))

    @precondition(lambda self: self.jobs)
    @rule(number=NUMBERS, back=st.integers(0, 1), mine=st.integers(0, 4))
    def begin(self, number: int, back: int, mine: int) -> None:
        """A process claims the latest attempt, or the one before; rarely as another flow run."""
        job_id, job = self.job(number)
        n = len(job.begun) - back
        run = f"{job_id}-{n}" if mine else "a-stranger"
        if not mine:
            attempts.set_run(self.db, job_id, n, f"{job_id}-{n}")
        free = n >= 1 and not job.begun[n - 1] and job.outcomes[n - 1] is None
        allowed = free and not job.cancelled and bool(mine)

        def claim() -> None:
            self.handles.append(attempts.begin(self.db, job_id, n, flow_run_id=run, holder="process"))

        self.attempt_write(allowed, claim)
        if allowed:
            job.begun[n - 1] = True
            job.facts.append("begun")

    @precondition(lambda self: self.handles)
    @rule(number=NUMBERS)
    def renew(self, number: int) -> None:
        """A process renews."""
        attempt, _, alive = self.handle(number)
        self.attempt_write(alive, lambda: attempts.renew(self.db, attempt))

    @precondition(lambda self: self.handles)
    @rule(number=NUMBERS, step=st.sampled_from("ab"), text=st.sampled_from("xy"))
    def commit_step(self, number: int, step: str, text: str) -> None:
        """A process commits a step."""
        attempt, job, alive = self.handle(number)
        self.attempt_write(alive, lambda: commit(self.db, attempt, text, label=step))
        counted = job.steps[job.fresh_after :]
        last = next((digest for label, digest in reversed(counted) if label == step), None)
        if alive and last != produced(text).digest:
            job.steps.append((step, produced(text).digest))
            job.facts.append("checkpoint")

    @precondition(lambda self: self.handles)
    @rule(number=NUMBERS, done=st.integers(0, 100))
    def progress(self, number: int, done: int) -> None:
        """A process reports progress."""
        attempt, job, alive = self.handle(number)
        self.attempt_write(alive, lambda: results.set_progress(self.db, attempt, done=done))
        if alive:
            fresh = [fact for fact in job.facts[job.told :] if fact != "progress"]
            job.facts = [*job.facts[: job.told], *fresh, "progress"]

    @precondition(lambda self: self.jobs)
    @rule(number=NUMBERS, back=st.integers(0, 1), outcome=st.sampled_from(ENDINGS), stale=st.booleans())
    def end(self, number: int, back: int, outcome: Outcome, stale: bool) -> None:
        """Reconcile, or the process itself, ends an attempt; sometimes on an old reading of its counter."""
        job_id, job = self.job(number)
        n = len(job.begun) - back
        ended = attempts.end(
            self.db, job_id, n, outcome, error=problem(attempt=max(n, 1)), renewals=-1 if stale else None
        )
        assert ended == (n >= 1 and job.outcomes[n - 1] is None and not stale)
        if ended:
            job.end(n, outcome)

    @precondition(lambda self: self.jobs)
    @rule(number=NUMBERS)
    def cancel(self, number: int) -> None:
        """A person calls the job off."""
        job_id, job = self.job(number)
        possible = job.result is None and None in job.outcomes
        asked = results.request_cancel(self.db, job_id)
        assert asked == (possible or job.cancelled)
        if possible and not job.cancelled:
            job.cancelled = True
            job.facts.append("cancel-requested")

    @precondition(lambda self: any(queries.get(self.db, each).status is JobStatus.DEAD for each in self.jobs))
    @rule(
        number=NUMBERS, start=st.sampled_from(["checkpoint", "start"]), more=st.integers(1, 2), late=NUMBERS
    )
    def retry(self, number: int, start: retries.Start, more: int, late: int) -> None:
        """A person retries a job that may be dead, having seen its revision, or rarely an older one."""
        everyone = {each: queries.get(self.db, each) for each in sorted(self.jobs)}
        likely = [each for each, shown in everyone.items() if shown.status is JobStatus.DEAD or not number]
        job_id = likely[number % len(likely)]
        job, shown = self.jobs[job_id], everyone[job_id]
        stale = late == 0
        before = len(audit.entries(self.db))
        allowed = shown.status is JobStatus.DEAD and job.told == len(job.facts) and not stale
        try:
            retries.request_retry(
                self.db,
                job_id,
                actor="ann",
                reason="try",
                start=start,
                expected_rev=shown.rev - stale,
                attempts=more,
            )
        except (JobNotDead, RevisionMoved):
            assert not allowed
        else:
            assert allowed
            job.retry(start, more)
        assert len(audit.entries(self.db)) == before + 1
        assert audit.broken_link(self.db) is None

    @precondition(lambda self: self.handles)
    @rule(number=NUMBERS, text=st.sampled_from("rs"))
    def commit_result(self, number: int, text: str) -> None:
        """A process commits its result, perhaps for the second time."""
        attempt, job, alive = self.handle(number)
        again = job.result == produced(text).digest and job.result_attempt == attempt.n
        allowed = alive and not job.cancelled and job.result is None
        self.attempt_write(allowed or again, lambda: results.commit_result(self.db, attempt, produced(text)))
        if allowed:
            job.result, job.result_attempt = produced(text).digest, attempt.n
            job.end(attempt.n, Outcome.COMPLETED)

    @precondition(lambda self: self.jobs)
    @rule(number=NUMBERS, text=st.sampled_from("rs"))
    def verify(self, number: int, text: str) -> None:
        """Reconcile finds an object in the store."""
        job_id, job = self.job(number)
        expected = job.result == produced(text).digest and not job.verified
        assert results.mark_verified(self.db, job_id, produced(text).digest) == expected
        job.verified = job.verified or expected

    @precondition(lambda self: self.jobs)
    @rule(number=NUMBERS, back=st.integers(0, 1))
    def reject(self, number: int, back: int) -> None:
        """Reconcile doesn't find the result in the store."""
        job_id, job = self.job(number)
        n = len(job.begun) - back
        results.reject_result(self.db, job_id, n, problem(attempt=max(n, 1)))
        if job.result is not None and not job.verified and job.result_attempt == n:
            job.result = None
            if "ended" in job.facts[job.told :]:
                last = len(job.facts) - 1 - job.facts[::-1].index("ended")
                del job.facts[last]
            job.end(n, Outcome.FAILED)

    @precondition(lambda self: self.jobs)
    @rule(number=NUMBERS, run=st.sampled_from(RUNS), lease=st.sampled_from(Lease))
    def stamp(self, number: int, run: RunState, lease: Lease) -> None:
        """A reconciler looks, whatever Prefect and the lease say."""
        job_id, job = self.job(number)
        before = queries.get(self.db, job_id)
        statuses.stamp(self.db, job_id, run, lease)
        job.told_before, job.told = job.told, len(job.facts)
        shown = queries.get(self.db, job_id)
        assert (shown.status, shown.reason) == job.project(self.clock, run, lease)
        assert shown.attempts == max(
            (
                n
                for n, (begun, outcome) in enumerate(zip(job.begun, job.outcomes, strict=True), start=1)
                if begun or outcome not in {None, Outcome.CANCELLED}
            ),
            default=0,
        )
        assert [(entry.step, entry.digest) for entry in shown.history] == job.steps
        if before.status in TERMINAL and "retry-requested" not in job.facts[job.told_before :]:
            assert (shown.status, shown.reason, shown.result) == (before.status, before.reason, before.result)
        assert not statuses.stamp(self.db, job_id, run, lease)

    @invariant()
    def one_live_attempt(self) -> None:
        """A job has one open attempt at most, and attempts are numbered without gaps."""
        for job_id, job in self.jobs.items():
            found = rows(self.db, schema.attempts, schema.attempts.c.job_id == job_id)
            assert [row.n for row in found] == list(range(1, len(job.begun) + 1))
            assert [row.begun_at is not None for row in found] == job.begun
            assert [row.outcome and Outcome(row.outcome) for row in found] == job.outcomes
            assert sum(row.ended_at is None for row in found) <= 1

    @invariant()
    def nothing_is_lost(self) -> None:
        """Facts and checkpoints are all there, in order."""
        recorded = rows(self.db, schema.events, schema.events.c.fact != "projected")
        for job_id, job in self.jobs.items():
            assert [row.fact for row in recorded if row.job_id == job_id] == job.facts
            found = rows(self.db, schema.checkpoints, schema.checkpoints.c.job_id == job_id)
            assert [(row.step, row.digest) for row in found] == job.steps

    @invariant()
    def events_only_grow(self) -> None:
        """Events that were read stay, cursors have no gap, and each job moves by legal moves."""
        heard = [dict(row._mapping) for row in events.read_after(self.db, 0)]
        assert [event["cursor"] for event in heard] == list(range(1, len(heard) + 1))
        assert heard[: len(self.heard)] == self.heard
        self.heard = heard
        for job_id in self.jobs:
            mine = [event["data"] for event in heard if event["job_id"] == job_id]
            for before, after in pairwise(mine):
                old, new = JobStatus(before["status"]), JobStatus(after["status"])
                assert old is new or new in TRANSITIONS[old]
                bare = [{**data, "rev": 0, "as_of": ""} for data in (before, after)]
                assert after["rev"] == before["rev"] + (bare[0] != bare[1])
            if mine:
                assert queries.get(self.db, job_id).rev == mine[-1]["rev"]

    @invariant()
    def what_is_named_is_held(self) -> None:
        """Each object that memo, checkpoint or result names is referenced, and no ended attempt holds any."""
        held = {(row.digest, row.holder) for row in rows(self.db, schema.references)}
        for row in rows(self.db, schema.checkpoints):
            assert (row.digest, f"job:{row.job_id}") in held
        for row in rows(self.db, schema.memo):
            keys = [memo_key(inputs=text) for text in "xy"]
            assert any((row.digest, key.holder) in held for key in keys if key.inputs == row.inputs)
        for job_id, job in self.jobs.items():
            results_held = {digest for digest, holder in held if holder == f"result:{job_id}"}
            assert results_held == ({job.result} if job.result is not None else set())
        assert not any(holder.startswith("attempt:") for _, holder in held)

    @invariant()
    def complete_means_verified(self) -> None:
        """Nothing shows as complete without a verified result."""
        for job_id, job in self.jobs.items():
            shown = queries.get(self.db, job_id)
            if shown.status is JobStatus.COMPLETE:
                assert job.verified
                assert shown.result is not None
                assert shown.result.digest == job.result


@pytest.mark.timeout(600)
def test_random_lives(ledger_url: str, dialect: str) -> None:
    """Whatever several processes do in whatever order, the ledger keeps its invariants."""
    bounded = settings(
        max_examples=25 if dialect == "sqlite" else 8,
        stateful_step_count=35,
        deadline=None,
        database=None,
        # shrinking takes minutes; the steps that are printed can be replayed as they are
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    class Here(Ledger):
        url = ledger_url

    run_state_machine_as_test(Here, settings=bounded)
