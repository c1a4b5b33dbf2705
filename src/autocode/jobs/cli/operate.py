"""``autocode-jobs jobs retry`` and ``jobs cancel``: what a person does with jobs, shown before it is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from autocode.jobs.cli.desk import Desk, at_desk
from autocode.jobs.cli.questions import confirmed
from autocode.jobs.cli.screen import Screen, plural
from autocode.jobs.errors import JobNotDead, JobsError, RevisionMoved, UsageError
from autocode.jobs.ledger.retries import ATTEMPTS, Start
from autocode.jobs.ledger.words import required
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.resource import Job, RetryPreview
from autocode.jobs.settings import CANCEL_GRACE_SECONDS

__all__ = ["Choice", "cancel", "outlook", "retry"]

T = TypeVar("T", Job, RetryPreview)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which jobs are meant: those named, or the dead letters that fit."""

    ids: tuple[str, ...] = ()
    dead_letters: bool = False
    kind: str | None = None
    reason: str | None = None
    text: str | None = None
    session: str | None = None

    def jobs(self, desk: Desk) -> list[str]:
        """Return the ids of the jobs.

        Raises:
            UsageError: none was chosen, both ways were taken, or the filter contradicts itself.
        """
        if bool(self.ids) == self.dead_letters:
            raise UsageError(
                "Name jobs, or say --dead-letters; one of the two.",
                hint="autocode-jobs jobs retry ID --reason TEXT, or: autocode-jobs jobs list",
            )
        if not self.dead_letters and (self.kind or self.reason or self.text or self.session):
            raise UsageError("--kind, --session, --dead-because and --search choose among --dead-letters.")
        if self.reason == DeadReason.CANCELLED:
            raise UsageError(
                "A job that a person called off is no dead letter, so --dead-because cancelled chooses none.",
                hint="`autocode-jobs jobs list --status dead` shows which there are. "
                "Name it: autocode-jobs jobs retry ID --reason TEXT",
            )
        if self.ids:
            return list(dict.fromkeys(self.ids))
        found = desk.dead_letters(kind=self.kind, session=self.session, reason=self.reason, text=self.text)
        return [job.job_id for job in found]


def retry(choice: Choice, *, reason: str | None, start: Start, attempts: int, yes: bool, json: bool) -> int:
    """Retry dead jobs after showing what that does; return 1 if one of them was refused.

    What can only be refused is refused before anything is shown or asked, and each refusal is in the audit.

    Raises:
        JobNotDead: the only job that was named isn't dead.
        JobNotFound: a job that was named doesn't exist; nothing was changed.
        UsageError: no reason, nothing was chosen, or nobody is there to ask; nothing was changed.
    """
    screen = Screen(json_mode=json)
    if reason is None:
        raise UsageError(
            "A retry needs a reason, which the audit keeps.", hint="Say --reason TEXT, or --dry-run to look."
        )
    reason = required(reason, "reason")
    with at_desk() as desk:
        previews = [desk.preview(job_id) for job_id in choice.jobs(desk)]
        if not previews:
            screen.note("No dead letter fits; nothing was changed.")
            return 0

        def ask(each: RetryPreview) -> str:
            try:
                job = desk.retry(each.job_id, reason=reason, rev=each.rev, start=start, attempts=attempts)
            except RevisionMoved:
                # what lives moves all the time, and that isn't why it can't be retried
                if (now := desk.get(each.job_id)).status is JobStatus.DEAD or each.dead:
                    raise
                raise JobNotDead(f"Job {each.job_id} is {now.status}, not dead.") from None
            if json:
                screen.emit(job)
            return _retried(job, each.rev)

        refused = _each(screen, [each for each in previews if not each.dead], ask, alone=len(previews) == 1)
        previews = [each for each in previews if each.dead]
        if not previews:
            return 1
        for each in previews:
            _show(screen, each, start, attempts)
        if not yes and not confirmed(
            screen,
            f"Retry {plural(len(previews), 'job')}?",
            nobody="Nobody is there to ask whether to retry.",
            hint="Say --yes.",
        ):
            raise UsageError("Nothing was retried.", hint="Name the jobs to retry.")
        refused += _each(screen, previews, ask, alone=len(previews) + refused == 1)
    return 1 if refused else 0


def outlook(choice: Choice, *, start: Start, attempts: int, json: bool) -> int:
    """Show what a retry of these jobs would do, and change nothing; return 1 if one of them would be refused.

    Raises:
        JobNotFound: a job that was named doesn't exist.
        UsageError: nothing was chosen.
    """
    screen = Screen(json_mode=json)
    with at_desk() as desk:
        previews = [desk.preview(job_id) for job_id in choice.jobs(desk)]
    for each in previews:
        if json:
            screen.emit(each.model_dump(mode="json"))
        elif each.dead:
            _show(screen, each, start, attempts)
        else:
            screen.note(f"{each.job_id}\n  would be refused: it isn't dead")
    if not previews:
        screen.note("No dead letter fits.")
    return 0 if all(each.dead for each in previews) else 1


def cancel(ids: Sequence[str], *, reason: str, json: bool) -> int:
    """Call jobs off; return 1 if one of them was refused.

    Raises:
        JobFinished: the only job that was named has a result, or died without having been called off.
        JobNotFound: there is no such job; nothing was changed.
        UsageError: no reason; nothing was changed.
    """
    screen = Screen(json_mode=json)
    reason = required(reason, "reason")
    with at_desk() as desk:
        before = [desk.get(job_id) for job_id in dict.fromkeys(ids)]

        def ask(each: Job) -> str:
            job = desk.cancel(each.job_id, reason=reason)
            if json:
                screen.emit(job)
            return _called_off(job, before=each)

        return 1 if _each(screen, before, ask, alone=len(before) == 1) else 0


def _each(screen: Screen, chosen: Sequence[T], ask: Callable[[T], str], *, alone: bool) -> int:
    """Ask for each and say what came of it; return how many were refused. One that is *alone* raises."""
    refused = 0
    for each in chosen:
        try:
            told = ask(each)
        except JobsError as error:
            if alone:
                raise
            refused += 1
            screen.fail(error.detail, error.hint)
            continue
        if not screen.json_mode:
            screen.say(told)
    return refused


def _state(job: Job) -> str:
    state = str(job.status) if job.reason is None else f"{job.status} ({job.reason})"
    called_off = job.status not in {"dead", "complete"} and job.note
    return f"{state}, {job.note}" if called_off else state


def _retried(job: Job, rev: int) -> str:
    if job.rev == rev:
        return (
            f"{job.job_id}  retry taken; the service has yet to show it: autocode-jobs jobs show {job.job_id}"
        )
    return f"{job.job_id}  {_state(job)}"


def _called_off(job: Job, *, before: Job) -> str:
    if before.reason is DeadReason.CANCELLED:
        return f"{job.job_id}  {_state(job)}: it was called off before"
    if job.status is JobStatus.DEAD:
        return f"{job.job_id}  {_state(job)}"
    if job.status is JobStatus.RUNNING:
        ends = f"it ends itself, or is ended after {CANCEL_GRACE_SECONDS:g} s"
        return f"{job.job_id}  {_state(job)}; asked to stop: {ends}"
    return f"{job.job_id}  {_state(job)}; called off: no further attempt begins"


def _show(screen: Screen, preview: RetryPreview, start: Start, attempts: int) -> None:
    """Say what will be reused, what runs again and what may happen twice."""
    screen.note(preview.job_id)
    if start == "start":
        screen.note(f"  runs again: every step ({plural(len(preview.reused), 'checkpoint')} not reused)")
    else:
        kinds = Counter(entry.step.partition(" ")[0] for entry in preview.reused)
        named = ", ".join(name if count == 1 else f"{name} x{count:,}" for name, count in kinds.items())
        screen.note(f"  reused: {named or 'nothing'}")
        left = ", ".join(preview.steps) or "what comes after that"
        screen.note(f"  runs: {left}")
    if preview.effects_done:
        screen.note(f"  not repeated: {', '.join(preview.effects_done)}")
    if preview.effects_open:
        screen.note(f"  MAY HAPPEN AGAIN: {', '.join(preview.effects_open)}")
    in_all = preview.max_attempts_after - ATTEMPTS + attempts
    screen.note(f"  dead again after {attempts} more that fail, {in_all} in all")
