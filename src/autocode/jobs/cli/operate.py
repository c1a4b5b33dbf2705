"""``autocode-jobs jobs retry`` and ``jobs cancel``: what a person does with jobs, shown before it is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autocode.jobs.cli.desk import Desk, at_desk
from autocode.jobs.cli.questions import confirmed
from autocode.jobs.cli.screen import Screen, plural
from autocode.jobs.errors import JobsError, UsageError
from autocode.jobs.ledger.retries import Start
from autocode.jobs.resource import Job, RetryPreview

__all__ = ["Choice", "cancel", "retry"]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which jobs are meant: those named, or the dead letters that fit."""

    ids: tuple[str, ...] = ()
    dead_letters: bool = False
    kind: str | None = None
    reason: str | None = None
    text: str | None = None

    def jobs(self, desk: Desk) -> list[str]:
        """Return the ids of the jobs.

        Raises:
            UsageError: none was chosen, or both ways were taken.
        """
        if bool(self.ids) == self.dead_letters:
            raise UsageError(
                "Name jobs, or say --dead-letters; one of the two.",
                hint="autocode-jobs jobs retry ID --reason TEXT, or: autocode-jobs jobs list",
            )
        if not self.dead_letters and (self.kind or self.reason or self.text):
            raise UsageError("--kind, --dead-because and --search choose among --dead-letters.")
        if self.ids:
            return list(dict.fromkeys(self.ids))
        return [job.job_id for job in desk.dead_letters(kind=self.kind, reason=self.reason, text=self.text)]


def retry(choice: Choice, *, reason: str, start: Start, attempts: int, yes: bool, json: bool) -> int:
    """Retry dead jobs after showing what that does; return 1 if one of them was refused.

    Raises:
        JobNotFound: a job that was named doesn't exist; nothing was changed.
        UsageError: nothing was chosen, or nobody is there to ask; nothing was changed.
    """
    screen = Screen(json_mode=json)
    with at_desk() as desk:
        previews = [desk.preview(job_id) for job_id in choice.jobs(desk)]
        if not previews:
            screen.note("No dead letter fits; nothing was changed.")
            return 0
        for each in previews:
            _show(screen, each, start)
        if not yes and not confirmed(
            screen,
            f"Retry {plural(len(previews), 'job')}?",
            nobody="Nobody is there to ask whether to retry.",
            hint="Say --yes.",
        ):
            raise UsageError("Nothing was retried.", hint="Name the jobs to retry.")
        return _each(
            screen,
            [each.job_id for each in previews],
            {each.job_id: each for each in previews},
            lambda job_id, rev: desk.retry(job_id, reason=reason, rev=rev, start=start, attempts=attempts),
            json=json,
        )


def cancel(ids: Sequence[str], *, reason: str, json: bool) -> int:
    """Call jobs off; return 1 if one of them was refused.

    Raises:
        JobNotFound: there is no such job; nothing was changed.
    """
    screen = Screen(json_mode=json)
    with at_desk() as desk:
        chosen = list(dict.fromkeys(ids))
        for job_id in chosen:
            desk.get(job_id)
        return _each(screen, chosen, {}, lambda job_id, _: desk.cancel(job_id, reason=reason), json=json)


def _each(
    screen: Screen,
    ids: Sequence[str],
    previews: dict[str, RetryPreview],
    act: Callable[[str, int], Job],
    *,
    json: bool,
) -> int:
    failed = 0
    for job_id in ids:
        try:
            job = act(job_id, previews[job_id].rev if job_id in previews else 0)
        except JobsError as error:
            if len(ids) == 1:
                raise
            failed += 1
            screen.fail(error.detail, error.hint)
            continue
        if json:
            screen.emit(job)
        else:
            screen.say(f"{job.job_id}  {_state(job)}")
    return 1 if failed else 0


def _state(job: Job) -> str:
    state = str(job.status) if job.reason is None else f"{job.status} ({job.reason})"
    called_off = job.status not in {"dead", "complete"} and job.note
    return f"{state}, {job.note}" if called_off else state


def _show(screen: Screen, preview: RetryPreview, start: Start) -> None:
    """Say what will be reused, what runs again and what may happen twice."""
    state = "" if preview.dead else "  (not dead: it will be refused)"
    screen.note(f"{preview.job_id}{state}")
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
    screen.note(f"  dead again after {preview.max_attempts_after} failed attempts in all")
