"""The judge of the kill matrix: a good job breaks no rule, and each thing that is wrong breaks its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from autocode.jobs.model import JobStatus
from autocode.jobs.testing.crashes.event_log import EventRow
from autocode.jobs.testing.crashes.evidence import Evidence
from autocode.jobs.testing.crashes.facts import (
    AttemptRow,
    CheckpointRow,
    Facts,
    RecordedEffect,
    StatusRow,
)
from autocode.jobs.testing.crashes.judge import SHOWN_SECONDS, judge
from autocode.jobs.testing.crashes.rules import CLEARED_LATER, RULES
from autocode.jobs.testing.crashes.violations import Violation

JOB = "order-1"
DIGESTS = {label: f"sha256:{number:064x}" for number, label in enumerate(["reserve", "charge", "ship"], 1)}
RESULT = f"sha256:{99:064x}"
OTHER = f"sha256:{100:064x}"


@dataclass(frozen=True)
class Effect:
    """An effect as the witness counts it."""

    path: str
    body: str
    key: str | None
    applied: int = 1
    deliveries: int = 1


@dataclass(frozen=True)
class Peace:
    """The run that nobody disturbed."""

    digest: str
    checkpoints: Mapping[str, str]


UNDISTURBED = Peace(RESULT, DIGESTS)
RAN_ONCE = (Effect("ran/reserve", "", None), Effect("ran/ship", "", None))
RAN_TWICE = (RAN_ONCE[0], Effect("ran/ship", "", None, 2, 2))
EFFECTS = (Effect("charge", "12.50", "charge:a"), Effect("ship", "order a", "ship:a"))


def attempt(n: int, outcome: str | None, **changes: Any) -> AttemptRow:
    """Return an attempt that is over in every respect."""
    row = AttemptRow(
        n=n,
        flow_run_id=f"run-{n}",
        holder=f"host:{n}:abc{n}",
        begun=True,
        ended=True,
        outcome=outcome,
        run_closed=True,
    )
    return replace(row, **changes)


def log(*told: tuple[str, int, str]) -> list[EventRow]:
    """Return events with consecutive cursors, of job, revision and status."""
    return [
        EventRow(job_id, "fact", cursor, rev, JobStatus(status))
        for cursor, (job_id, rev, status) in enumerate(told, 1)
    ]


def checkpoint(seq: int, label: str, digest: str, n: int = 1) -> CheckpointRow:
    """Return a checkpoint."""
    return CheckpointRow(seq, label, digest, n, reused=False)


GOOD_LOG = log(
    (JOB, 1, "queued"),
    ("other", 1, "queued"),
    (JOB, 2, "running"),
    (JOB, 2, "running"),
    (JOB, 3, "retrying"),
    ("other", 2, "dead"),
    (JOB, 4, "running"),
    (JOB, 5, "complete"),
)

GOOD = Evidence(
    job_id=JOB,
    ledger=Facts(
        status=StatusRow("complete", None, possible_double_run=False, rev=5),
        result=RESULT,
        result_attempt=2,
        attempts=[attempt(1, "crashed", ended_event=5), attempt(2, "completed", ended_event=8)],
        checkpoints=[
            checkpoint(1, "reserve", DIGESTS["reserve"]),
            checkpoint(2, "charge", DIGESTS["charge"]),
            checkpoint(3, "ship", DIGESTS["ship"], 2),
        ],
        recorded=[RecordedEffect("charge:a", 1, done=True), RecordedEffect("ship:a", 2, done=True)],
        references=frozenset(
            {(digest, f"job:{JOB}") for digest in DIGESTS.values()} | {(RESULT, f"result:{JOB}")}
        ),
        events=GOOD_LOG,
        checkpoint_events={1: [3], 2: [4], 3: [7]},
    ),
    effects=(*EFFECTS, *RAN_TWICE),
    run_states={"run-1": "CRASHED", "run-2": "COMPLETED"},
    shown_running=SHOWN_SECONDS,
)


def judged(evidence: Evidence, **changes: Any) -> list[Violation]:
    """Judge with what is expected of the good job."""
    expected: dict[str, Any] = {
        "undisturbed": UNDISTURBED,
        "effects": (*EFFECTS, *RAN_ONCE),
        "max_attempts_expected": 2,
    }
    return judge(evidence, **{**expected, **changes})


def broken(violations: list[Violation]) -> set[str]:
    """Return the rules that were broken; each violation names the job first."""
    assert all(violation.job_id == JOB for violation in violations), violations
    return {violation.rule for violation in violations}


Change = Callable[[Evidence], Evidence]


def ledger(**changes: Any) -> Change:
    """Replace fields of what the ledger has."""
    return lambda evidence: replace(evidence, ledger=replace(evidence.ledger, **changes))


def around(**changes: Any) -> Change:
    """Replace fields of what was found beside the ledger."""
    return lambda evidence: replace(evidence, **changes)


def status(**changes: Any) -> Change:
    """Replace fields of the status."""

    def change(evidence: Evidence) -> Evidence:
        assert evidence.ledger.status is not None
        return ledger(status=replace(evidence.ledger.status, **changes))(evidence)

    return change


def both(*changes: Change) -> Change:
    """Make one change after the other: what can't happen alone."""

    def change(evidence: Evidence) -> Evidence:
        for each in changes:
            evidence = each(evidence)
        return evidence

    return change


def events(*told: tuple[str, int, str]) -> Change:
    """Replace the event log."""
    return ledger(events=log(*told))


def first_attempt(**changes: Any) -> Change:
    """Replace fields of the first attempt."""
    first = replace(attempt(1, "crashed"), **changes)
    return ledger(attempts=[first, attempt(2, "completed")])


def ran(**times: int) -> Change:
    """Replace how often each step ran."""
    told = [Effect(f"ran/{step}", "", None, count, count) for step, count in times.items()]
    return around(effects=(*EFFECTS, *told))


CHECKPOINTS = GOOD.ledger.checkpoints
REFERENCES = GOOD.ledger.references

CORRUPTIONS: dict[str, tuple[str, Change]] = {
    "the job died": (
        "status",
        both(
            status(status="dead", reason="exhausted"),
            ledger(events=[*GOOD_LOG[:-1], replace(GOOD_LOG[-1], status=JobStatus.DEAD)]),
        ),
    ),
    "another result": (
        "result",
        ledger(
            result=OTHER, references=REFERENCES - {(RESULT, f"result:{JOB}")} | {(OTHER, f"result:{JOB}")}
        ),
    ),
    "no result": ("result", ledger(result=None)),
    "a damaged object": ("objects", around(damaged={RESULT: "Object … is damaged."})),
    "a checkpoint is missing": ("checkpoints", ledger(checkpoints=CHECKPOINTS[:-1])),
    "a checkpoint that nobody expects": (
        "checkpoints",
        ledger(
            checkpoints=[*CHECKPOINTS, checkpoint(4, "more", DIGESTS["ship"], 2)],
            checkpoint_events={1: [3], 2: [4], 3: [7], 4: [7]},
        ),
    ),
    "a checkpoint that nobody was told of": ("checkpoints told", ledger(checkpoint_events={1: [3], 2: [4]})),
    "a checkpoint that was told twice": (
        "checkpoints told",
        ledger(checkpoint_events={1: [3, 4], 2: [4], 3: [7]}),
    ),
    "an attempt commits after its end": ("fence", ledger(checkpoint_events={1: [3], 2: [6], 3: [7]})),
    "a step that was done is done again": ("work", ran(reserve=2, ship=2)),
    "a step runs again and again": ("work", ran(reserve=1, ship=3)),
    "a step never runs": ("work", ran(ship=2)),
    "a step that nobody expects": ("work", ran(reserve=1, ship=1, sink=1)),
    "a checkpoint with another digest": (
        "checkpoints",
        ledger(checkpoints=[*CHECKPOINTS[:-1], checkpoint(3, "ship", DIGESTS["charge"], 2)]),
    ),
    "the result of an attempt that was over": ("maker of the result", ledger(result_attempt=1)),
    "a checkpoint twice": (
        "checkpoints",
        ledger(
            checkpoints=[*CHECKPOINTS, checkpoint(4, "ship", DIGESTS["ship"], 2)],
            checkpoint_events={1: [3], 2: [4], 3: [7], 4: [7]},
        ),
    ),
    "a checkpoint by an attempt that isn't there": (
        "makers of checkpoints",
        ledger(checkpoints=[*CHECKPOINTS[:-1], checkpoint(3, "ship", DIGESTS["ship"], 3)]),
    ),
    "a checkpoint by an attempt that never began": ("makers of checkpoints", first_attempt(begun=False)),
    "an effect is missing": ("effects", around(effects=[*RAN_TWICE, EFFECTS[0]])),
    "an effect of its own": (
        "effects",
        around(effects=[*RAN_TWICE, *EFFECTS, Effect("ship", "order b", "ship:b")]),
    ),
    "an effect with another body": (
        "effects",
        around(effects=[*RAN_TWICE, EFFECTS[0], Effect("ship", "order b", "ship:a")]),
    ),
    "an effect twice": (
        "effects",
        around(effects=[*RAN_TWICE, EFFECTS[0], Effect("ship", "order a", None, 2, 2)]),
    ),
    "an effect under two keys": (
        "effects",
        around(effects=[*RAN_TWICE, *EFFECTS, Effect("ship", "order a", "ship:again")]),
    ),
    "an effect asked for again": (
        "deliveries",
        around(effects=[*RAN_TWICE, EFFECTS[0], Effect("ship", "order a", "ship:a", 1, 2)]),
    ),
    "an effect that isn't known to be done": (
        "records of effects",
        ledger(recorded=[RecordedEffect("charge:a", 1, done=False)]),
    ),
    "an effect that an attempt began after its end": (
        "fence of effects",
        ledger(recorded=[RecordedEffect("charge:a", 1, done=True, late=True)]),
    ),
    "one attempt too many": (
        "number of attempts",
        both(
            ledger(
                attempts=[attempt(1, "crashed"), attempt(2, "lost"), attempt(3, "completed")],
                result_attempt=3,
            ),
            around(run_states={f"run-{n}": "COMPLETED" for n in (1, 2, 3)}),
        ),
    ),
    "an attempt is left out": (
        "number of attempts",
        both(
            ledger(
                attempts=[attempt(1, "crashed"), attempt(3, "completed")],
                result_attempt=3,
                checkpoints=[replace(each, attempt=1) for each in CHECKPOINTS],
            ),
            around(run_states={"run-1": "CRASHED", "run-3": "COMPLETED"}),
        ),
    ),
    "an open attempt": ("ends of attempts", first_attempt(ended=False, outcome=None)),
    "an attempt without an outcome": ("ends of attempts", first_attempt(outcome=None)),
    "an outcome that nobody knows": ("ends of attempts", first_attempt(outcome="odd")),
    "two attempts completed": ("ends of attempts", first_attempt(outcome="completed")),
    "no attempt completed": (
        "ends of attempts",
        ledger(attempts=[attempt(1, "crashed"), attempt(2, "lost")]),
    ),
    "a run isn't closed": ("runs closed", first_attempt(run_closed=False)),
    "a run goes on in Prefect": (
        "runs in Prefect",
        around(run_states={"run-1": "RUNNING", "run-2": "COMPLETED"}),
    ),
    "Prefect doesn't answer": (
        "runs in Prefect",
        around(run_states={"run-1": "no answer (502)", "run-2": "COMPLETED"}),
    ),
    "nobody asked for a run": ("runs in Prefect", around(run_states={"run-2": "COMPLETED"})),
    "a cursor is left out": (
        "event log",
        ledger(
            events=[*GOOD_LOG[:2], *(replace(each, cursor=(each.cursor or 0) + 1) for each in GOOD_LOG[2:])]
        ),
    ),
    "a cursor twice": ("event log", ledger(events=[GOOD_LOG[0], *GOOD_LOG])),
    "the log doesn't begin with 1": (
        "event log",
        ledger(events=[replace(each, cursor=(each.cursor or 0) + 1) for each in GOOD_LOG]),
    ),
    "a revision is left out": (
        "event log",
        events((JOB, 1, "queued"), (JOB, 3, "running"), (JOB, 4, "running"), (JOB, 5, "complete")),
    ),
    "a revision falls": (
        "event log",
        events((JOB, 1, "queued"), (JOB, 2, "running"), (JOB, 1, "running"), (JOB, 5, "complete")),
    ),
    "a move that the contract doesn't know": (
        "event log",
        events(
            (JOB, 1, "queued"),
            (JOB, 2, "running"),
            (JOB, 3, "running"),
            (JOB, 4, "queued"),
            (JOB, 5, "running"),
            (JOB, 5, "complete"),
        ),
    ),
    "complete is left": (
        "event log",
        events(
            *(
                (JOB, rev, each)
                for rev, each in enumerate(["queued", "running", "complete", "running", "complete"], 1)
            )
        ),
    ),
    "a move under one revision": (
        "event log",
        events(
            (JOB, 1, "queued"),
            (JOB, 1, "running"),
            *((JOB, rev, "running") for rev in (2, 3, 4)),
            (JOB, 5, "complete"),
        ),
    ),
    "the first event isn't queued": (
        "event log",
        events(*((JOB, rev, "running") for rev in (1, 2, 3, 4)), (JOB, 5, "complete")),
    ),
    "an illegal move of another job": (
        "event log",
        ledger(events=[*GOOD_LOG, EventRow("other", "fact", 9, 3, JobStatus.COMPLETE)]),
    ),
    "an event without a cursor": (
        "events told",
        ledger(events=[*GOOD_LOG, EventRow(JOB, "progress", None, None, None)]),
    ),
    "the status is behind the log": ("events told", status(rev=4)),
    "the log ends in another status": ("events told", ledger(events=GOOD_LOG[:-1])),
    "no event of the job": ("events told", events(("other", 1, "queued"))),
    "an attempt still holds an object": (
        "references",
        ledger(references=REFERENCES | {(OTHER, f"attempt:{JOB}:1")}),
    ),
    "nothing holds the result": ("references", ledger(references=REFERENCES - {(RESULT, f"result:{JOB}")})),
    "nothing holds a checkpoint": (
        "references",
        ledger(references=REFERENCES - {(DIGESTS["ship"], f"job:{JOB}")}),
    ),
    "a temporary file": ("temporary files", around(temp_files=["1234.tmp"])),
    "a holder's file": ("holder files", around(holder_files=["abc1"])),
    "a child's file": ("child files", around(child_files=["4711"])),
    "a living process": ("processes", around(living=[4711])),
    "a possible double run": ("double run", status(possible_double_run=True)),
    "the poller saw something": ("poller", around(wrong=[f"{JOB}: attempts fell"])),
    "shown as running for too long": ("shown as running", around(shown_running=SHOWN_SECONDS + 0.1)),
}


def test_a_good_job_breaks_no_rule() -> None:
    """A job that crashed once and left nothing behind is as good as one that nobody disturbed."""
    assert judged(GOOD) == []


@pytest.mark.parametrize(("rule", "change"), CORRUPTIONS.values(), ids=CORRUPTIONS)
def test_each_corruption_breaks_its_own_rule(rule: str, change: Change) -> None:
    """One thing that is wrong is found once, and by the rule that is about it."""
    violations = judged(change(GOOD))

    assert broken(violations) == {rule}, violations


def test_no_rule_goes_untried() -> None:
    """Each rule has a corruption that it alone finds."""
    assert {rule for rule, _ in CORRUPTIONS.values()} == set(RULES)


def test_a_violation_says_what_was_expected_and_what_was_found() -> None:
    """The words are enough to see what went wrong."""
    violations = judged(
        replace(GOOD, effects=[*RAN_TWICE, EFFECTS[0], Effect("ship", "order a", None, 2, 2)])
    )

    assert [*map(str, violations)] == [
        f"{JOB}: effects: expected the effect ship (order a) once, found 2 times"
    ]


def test_a_job_that_the_ledger_forgot_is_named_as_that() -> None:
    """A job without rows isn't taken for one that is merely late."""
    nothing = Facts(None, None, [], [], [], frozenset(), [])

    violations = judged(Evidence(JOB, nothing))

    assert f"{JOB}: status: expected complete, found no such job in the ledger" in map(str, violations)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [({"one_attempt": True}, "number of attempts"), ({"bound": 1.0}, "shown as running")],
    ids=["one attempt", "bound"],
)
def test_what_a_case_allows_is_kept_to(changes: Mapping[str, Any], rule: str) -> None:
    """A second attempt, and a dead one that is shown for a while, are wrong where no fault explains them."""
    assert broken(judged(GOOD, **changes)) == {rule}


def test_a_repeated_delivery_is_right_where_an_effect_lost_its_record() -> None:
    """A crash between an effect and its record makes it be asked for again, and never applied again."""
    again = replace(GOOD, effects=[*RAN_TWICE, EFFECTS[0], Effect("ship", "order a", "ship:a", 1, 2)])
    twice = replace(GOOD, effects=[*RAN_TWICE, EFFECTS[0], Effect("ship", "order a", "ship:a", 2, 2)])

    assert judged(again, may_redeliver=True) == []
    assert broken(judged(twice, may_redeliver=True)) == {"effects"}


def test_times_are_not_compared_where_a_clock_was_put_wrong() -> None:
    """An intent that seems to be an hour behind its attempt's end proves nothing then."""
    late = ledger(recorded=[RecordedEffect("charge:a", 1, done=True, late=True)])(GOOD)

    assert judged(late, clocks_agree=False) == []


def test_a_step_may_cure_by_itself_the_error_that_the_fault_gave_it() -> None:
    """A disk that is full once makes a step run again within its attempt, and no other step."""
    once, twice = ran(reserve=1, ship=3)(GOOD), ran(reserve=2, ship=3)(GOOD)

    assert broken(judged(once)) == {"work"}
    assert judged(once, own_retries=1) == []
    assert broken(judged(twice, own_retries=1)) == {"work"}


@pytest.mark.parametrize(
    "change",
    [
        around(run_states=None),
        around(run_states={"run-1": "GONE", "run-2": "COMPLETED"}),
        both(first_attempt(flow_run_id=None), around(run_states={"run-2": "COMPLETED"})),
        around(shown_running=None),
        ledger(events=GOOD_LOG[1:], events_after=1),
    ],
    ids=["Prefect not asked", "run forgotten", "no run", "nobody struck", "from a cursor on"],
)
def test_what_is_not_known_is_not_held_against_the_job(change: Change) -> None:
    """Rules are about what was looked at."""
    assert judged(change(GOOD)) == []


def test_what_is_cleared_later_is_a_rule() -> None:
    """A name that no rule has would make the judge give up too early."""
    assert set(RULES) >= CLEARED_LATER
