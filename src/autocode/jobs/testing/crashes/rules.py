"""What has to be true of a job that was disturbed: one small function a rule, and a table of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from autocode.jobs.ledger.attempts import attempt_holder
from autocode.jobs.projection import ENDED_STATES, Outcome
from autocode.jobs.testing.crashes.event_log import event_faults
from autocode.jobs.testing.crashes.evidence import AppliedEffect, Evidence

__all__ = ["CLEARED_LATER", "RAN", "RULES", "Expected", "Peaceful", "Rule"]


class Peaceful(Protocol):
    """A run of the same job that nobody disturbed; what ``run_undisturbed`` gives."""

    @property
    def digest(self) -> str:
        """The result's digest."""
        ...

    @property
    def checkpoints(self) -> Mapping[str, str]:
        """The digest of each checkpoint, by its label."""
        ...


@dataclass(frozen=True, slots=True)
class Expected:
    """What the job has to be like.

    Args:
        undisturbed: the same job without a fault.
        effects: what that one did to the world.
        max_attempts: how many attempts may be used.
        one_attempt: nothing that ran the job was struck, so it takes exactly one.
        may_redeliver: the fault may fall between an effect and its record, so that it is asked for again.
        clocks_agree: nobody put a clock wrong, so that persisted times can be compared.
        own_retries: how many steps may run again within an attempt, after an error that the fault gave them.
        shown_seconds: how long a dead attempt may be shown as running.
    """

    undisturbed: Peaceful
    effects: Sequence[AppliedEffect]
    max_attempts: int
    one_attempt: bool
    may_redeliver: bool
    own_retries: int
    clocks_agree: bool
    shown_seconds: float


RAN: Final = "ran/"
"""Begins the path of what isn't an effect but a step's word that it runs; it may be told again."""

_Breach = tuple[str, str]

Rule = Callable[[Evidence, Expected], Iterable[_Breach]]
"""Gives what was expected and what was found for each breach; nothing where all is well."""


def _status(evidence: Evidence, _: Expected) -> Iterator[_Breach]:
    status = evidence.ledger.status
    if status is None:
        yield "complete", "no such job in the ledger"
    elif status.status != "complete":
        yield "complete", status.status if status.reason is None else f"{status.status}, {status.reason}"


def _double_run(evidence: Evidence, _: Expected) -> Iterator[_Breach]:
    if evidence.ledger.status is not None and evidence.ledger.status.possible_double_run:
        yield "none at the end", "possible_double_run is still shown"


def _result(evidence: Evidence, expected: Expected) -> Iterator[_Breach]:
    if evidence.ledger.result != expected.undisturbed.digest:
        yield f"that of an undisturbed run, {expected.undisturbed.digest}", str(evidence.ledger.result)


def _maker(evidence: Evidence, _: Expected) -> Iterator[_Breach]:
    """The result is that of the attempt that ended last: no other one may commit any more."""
    ended = [each.n for each in evidence.ledger.attempts if each.ended]
    if evidence.ledger.result is not None and evidence.ledger.result_attempt != max(ended, default=None):
        yield f"the result of attempt {max(ended, default=0)}", f"that of {evidence.ledger.result_attempt}"


def _objects(evidence: Evidence, _: Expected) -> Iterator[_Breach]:
    return (("a whole object", reason) for reason in evidence.damaged.values())


def _checkpoints(evidence: Evidence, expected: Expected) -> Iterator[_Breach]:
    wanted = Counter(expected.undisturbed.checkpoints.items())
    found = Counter((each.label, each.digest) for each in evidence.ledger.checkpoints)
    yield from _compared("checkpoint", wanted, found)


def _makers(evidence: Evidence, _: Expected) -> Iterator[_Breach]:
    begun = {each.n for each in evidence.ledger.attempts if each.begun}
    for each in evidence.ledger.checkpoints:
        if each.attempt not in begun:
            yield f"{each.label!r} by an attempt that began", f"attempt {each.attempt}"


def _checkpoints_told(evidence: Evidence, _: Expected) -> Iterator[_Breach]:
    for each in evidence.ledger.checkpoints:
        times = len(evidence.ledger.checkpoint_events.get(each.seq, ()))
        if times != 1:
            yield f"the checkpoint {each.label!r} told once", _times(times)


def _fence(evidence: Evidence, _: Expected) -> Iterator[_Breach]:
    """No process commits anything once its attempt is over, whatever it does."""
    ends = {each.n: each.ended_event for each in evidence.ledger.attempts}
    for each in evidence.ledger.checkpoints:
        # within a job the numbers of events follow the order of the commits
        told, end = evidence.ledger.checkpoint_events.get(each.seq, ()), ends.get(each.attempt)
        if end is not None and any(event > end for event in told):
            yield f"no checkpoint by attempt {each.attempt} after its end", each.label


def _work(evidence: Evidence, expected: Expected) -> Iterator[_Breach]:
    """What was done before the fault isn't done again: an attempt repeats at most the step it fell into."""
    wanted, found = _run(expected.effects), _run(evidence.effects)
    for step in sorted(wanted.keys() | found.keys()):
        if not found[step] or not wanted[step]:
            yield f"{step} run {_times(wanted[step])}", _times(found[step])
    again = found.total() - wanted.total()
    most = max(0, len(evidence.ledger.attempts) - 1) + expected.own_retries
    if again > most:
        steps = ", ".join(f"{step} {_times(found[step])}" for step in found if found[step] > wanted[step])
        yield f"{most} steps run again at most", f"{again}: {steps}"


def _effects(evidence: Evidence, expected: Expected) -> Iterator[_Breach]:
    wanted, found = _applied(expected.effects), _applied(evidence.effects)
    yield from _compared("effect", wanted, found)


def _deliveries(evidence: Evidence, expected: Expected) -> Iterator[_Breach]:
    for each in evidence.effects:
        if each.deliveries > each.applied and not expected.may_redeliver:
            yield f"{each.path} asked for once", f"{each.deliveries} times under key {each.key}"


def _recorded(evidence: Evidence, _: Expected) -> Iterator[_Breach]:
    for each in evidence.ledger.recorded:
        if not each.done:
            yield f"the effect {each.key} recorded as done", f"an intent of attempt {each.attempt}"


def _intents(evidence: Evidence, expected: Expected) -> Iterator[_Breach]:
    """No process begins an effect once its attempt is over."""
    for each in evidence.ledger.recorded:
        if each.late and expected.clocks_agree:
            yield f"no intent of {each.key} by attempt {each.attempt} after its end", "one"


def _attempt_numbers(evidence: Evidence, expected: Expected) -> Iterator[_Breach]:
    numbers = [each.n for each in evidence.ledger.attempts]
    most = 1 if expected.one_attempt else expected.max_attempts
    if not 1 <= len(numbers) <= most or numbers != list(range(1, len(numbers) + 1)):
        wanted = "attempt 1 alone" if most == 1 else f"attempts 1 to {most} at most"
        yield wanted, ", ".join(map(str, numbers)) or "none"


def _attempt_ends(evidence: Evidence, _: Expected) -> Iterator[_Breach]:
    attempts = evidence.ledger.attempts
    for each in attempts:
        last = each is attempts[-1]
        if not each.ended:
            yield f"attempt {each.n} ended", "it is open"
        elif each.outcome not in set(Outcome):
            yield f"an outcome of attempt {each.n}", str(each.outcome)
        elif (each.outcome == Outcome.COMPLETED) != last:
            yield f"attempt {each.n} {'completed' if last else 'without a result'}", str(each.outcome)


def _runs_closed(evidence: Evidence, _: Expected) -> Iterator[_Breach]:
    for each in evidence.ledger.attempts:
        if not each.run_closed:
            yield f"the run of attempt {each.n} closed", f"{each.flow_run_id} is open"


def _prefect(evidence: Evidence, _: Expected) -> Iterator[_Breach]:
    if evidence.run_states is None:
        return
    for each in evidence.ledger.attempts:
        # an attempt that was over before it was submitted has no run
        state = None if each.flow_run_id is None else evidence.run_states.get(each.flow_run_id, "nothing")
        if state is not None and state not in ENDED_STATES | {"GONE"}:
            yield f"a final state of the run of attempt {each.n}", state


def _events(evidence: Evidence, _: Expected) -> Iterator[_Breach]:
    faults = event_faults(evidence.ledger.events, after=evidence.ledger.events_after)
    return ((wanted, f"{found}, of {job_id}") for job_id, wanted, found in faults)


def _told(evidence: Evidence, _: Expected) -> Iterator[_Breach]:
    mine = [each for each in evidence.ledger.events if each.job_id == evidence.job_id]
    untold = [each.fact for each in mine if each.cursor is None]
    if untold:
        yield "every event told", f"no cursor for {', '.join(untold)}"
    status, last = evidence.ledger.status, next((each for each in reversed(mine) if each.cursor), None)
    if last is None or last.status is None:
        yield "events of the job", "none"
    elif status is not None and (last.status, last.rev) != (status.status, status.rev):
        wanted = f"a last event {status.status} at revision {status.rev}, as the status is"
        yield wanted, f"{last.status} at revision {last.rev}"


def _references(evidence: Evidence, _: Expected) -> Iterator[_Breach]:
    """An attempt that is over holds nothing; the job and its result hold what they need."""
    facts, job_id = evidence.ledger, evidence.job_id
    prefix = attempt_holder(job_id, 0).removesuffix("0")
    for digest, holder in sorted(facts.references):
        if holder.startswith(prefix):
            yield "no reference by an attempt", f"{holder} holds {digest}"
    needed = {(each.digest, f"job:{job_id}") for each in facts.checkpoints}
    if facts.result is not None:
        needed.add((facts.result, f"result:{job_id}"))
    for digest, holder in sorted(needed - facts.references):
        yield f"{holder} to hold {digest}", "no such reference"


def _shown_running(evidence: Evidence, expected: Expected) -> Iterator[_Breach]:
    seconds = evidence.shown_running
    if seconds is not None and seconds > expected.shown_seconds:
        yield f"a dead attempt shown as running for {expected.shown_seconds:g} s at most", f"{seconds:.1f} s"


def _left(what: str, found: Callable[[Evidence], Iterable[object]]) -> Rule:
    """Return the rule that nothing of a kind is left."""

    def rule(evidence: Evidence, _: Expected) -> Iterator[_Breach]:
        return ((f"no {what}", str(each)) for each in found(evidence))

    return rule


def _applied(effects: Iterable[AppliedEffect]) -> Counter[tuple[str, str]]:
    counted: Counter[tuple[str, str]] = Counter()
    for each in effects:
        if not each.path.startswith(RAN):
            counted[each.path, each.body] += each.applied
    return counted


def _run(effects: Iterable[AppliedEffect]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for each in effects:
        if each.path.startswith(RAN):
            counted[each.path.removeprefix(RAN)] += each.applied
    return counted


def _compared(
    what: str, wanted: Counter[tuple[str, str]], found: Counter[tuple[str, str]]
) -> Iterator[_Breach]:
    for name, content in sorted(wanted | found):
        times, expected = found[name, content], wanted[name, content]
        if times != expected:
            yield f"the {what} {name} ({content}) {_times(expected)}", _times(times)


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "status": _status,
        "result": _result,
        "maker of the result": _maker,
        "objects": _objects,
        "checkpoints": _checkpoints,
        "makers of checkpoints": _makers,
        "checkpoints told": _checkpoints_told,
        "fence": _fence,
        "work": _work,
        "effects": _effects,
        "deliveries": _deliveries,
        "records of effects": _recorded,
        "fence of effects": _intents,
        "number of attempts": _attempt_numbers,
        "ends of attempts": _attempt_ends,
        "runs closed": _runs_closed,
        "runs in Prefect": _prefect,
        "event log": _events,
        "events told": _told,
        "references": _references,
        "temporary files": _left("temporary file", lambda evidence: evidence.temp_files),
        "holder files": _left("file of a holder", lambda evidence: evidence.holder_files),
        "child files": _left("file of a child", lambda evidence: evidence.child_files),
        "processes": _left("process of the job", lambda evidence: evidence.living),
        "double run": _double_run,
        "poller": _left("word that the contract forbids", lambda evidence: evidence.wrong),
        "shown as running": _shown_running,
    }
)
"""Every rule by its name, which stands in what it finds."""

CLEARED_LATER: Final = frozenset(
    {
        "ends of attempts",
        "runs closed",
        "runs in Prefect",
        "events told",
        "references",
        "temporary files",
        "holder files",
        "child files",
        "processes",
    }
)
"""Rules that a job may break for a moment after its end: what it left is cleared away behind it."""
