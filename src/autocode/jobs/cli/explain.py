"""``autocode-jobs jobs explain``: how a job went, in plain words, in the order of time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from rich.text import Text

from autocode.jobs.cli.desk import catch_up, elsewhere
from autocode.jobs.cli.outlook import what_is_next
from autocode.jobs.cli.runtime import opened
from autocode.jobs.cli.screen import Screen, bytes_text, local_time, plural, visible, zone
from autocode.jobs.clock import rfc3339
from autocode.jobs.engine.announce import lives
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import timeline
from autocode.jobs.ledger.portable import AttemptNotRestored
from autocode.jobs.ledger.timeline import Entry, Timeline
from autocode.jobs.projection import Outcome
from autocode.jobs.service.single import running

__all__ = ["explain", "words"]

_ENDINGS: Final = {
    Outcome.COMPLETED: "completed",
    Outcome.FAILED: "failed",
    Outcome.PERMANENT: "met an error that no further attempt can get past",
    Outcome.CRASHED: "lost its process: it was killed or died",
    Outcome.LOST: "went quiet: nothing was heard of its process for a lease",
    Outcome.INTERRUPTED: "was handed back before its end",
    Outcome.CANCELLED: "was called off",
    Outcome.TIMED_OUT: "ran longer than it may",
    Outcome.GONE: "never began: its run vanished from Prefect",
}

_ACTIONS: Final = {"enqueue": "this job", "retry": "a retry", "cancel": "to call the job off"}

_ORIGINS: Final = {
    "cli": "from the command line",
    "api": "over HTTP",
    "prefect": "by Prefect itself (a schedule, its command line or its pages)",
}


def explain(job_id: str, *, json: bool) -> int:
    """Show one job's timeline.

    Raises:
        JobNotFound: there is no such job.
        UsageError: ``AUTOCODE_URL`` points elsewhere, and a timeline can't be fetched over HTTP.
    """
    if elsewhere():
        raise UsageError(
            "A timeline is read from the data folder, and AUTOCODE_URL points elsewhere.",
            hint="Run the command on the machine of that service, without AUTOCODE_URL.",
        )
    screen = Screen(json_mode=json)
    with opened() as system:
        catch_up(system)
        found = timeline.explain(system.db, job_id)
        service = running(system.home)
        served = lives(system.home, "reconcile")
    if json:
        screen.emit(_json(found))
    else:
        _show(screen, found, None if service is None else service.prefect_url, served=served)
    return 0


def words(entry: Entry) -> str:
    """Return what happened, in one sentence without its time."""
    return _SENTENCES[type(entry)](entry)


def _due(entry: timeline.Due) -> str:
    return f"attempt {entry.attempt} was due"


def _begun(entry: timeline.Begun) -> str:
    host, _, rest = entry.holder.partition(":")
    return f"attempt {entry.attempt} began in process {rest.partition(':')[0]} on {host}"


def _steps(entry: timeline.StepsDone) -> str:
    count = entry.new + entry.reused
    reused = f", {entry.reused:,} of them reused from earlier jobs" if entry.reused else ""
    which = entry.first_step if count == 1 else f"{entry.first_step} … {entry.last_step}"
    return f"attempt {entry.attempt} had saved {plural(count, 'checkpoint')}{reused}: {which}"


def _ended(entry: timeline.Ended) -> str:
    if entry.error is not None and entry.error.type == AttemptNotRestored.type:
        return f"attempt {entry.attempt} was running when the backup was made, and ends with the restore"
    uses = "" if entry.counts or entry.outcome is Outcome.COMPLETED else "; that uses up no attempt"
    error = "" if entry.error is None else f": {entry.error.detail}"
    return f"attempt {entry.attempt} {_ENDINGS[entry.outcome]}{uses}{error}"


def _asked(entry: timeline.Asked) -> str:
    what = _ACTIONS.get(entry.action, entry.action)
    start = " from the start" if entry.data.get("start") == "start" else ""
    outcome = "" if entry.accepted else f" ({entry.outcome})"
    reason = f": “{entry.reason}”" if entry.reason else ""
    return f"{entry.actor} asked for {what}{start}{outcome}{reason}".replace("asked for to", "asked to")


def _notified(entry: timeline.Notified) -> str:
    tries = "" if entry.attempts == 1 else f" at try {entry.attempts}"
    if entry.done:
        return f"{entry.channel} to {entry.place}: delivered{tries}"
    return f"{entry.channel} to {entry.place}: given up{tries}: {entry.error}"


_SENTENCES: Final[dict[type, Callable[[Any], str]]] = {
    timeline.Enqueued: lambda each: f"asked for {_ORIGINS.get(each.origin, 'by ' + each.origin)}",
    timeline.Due: _due,
    timeline.Begun: _begun,
    timeline.StepsDone: _steps,
    timeline.StepRetry: lambda each: f"a step failed and was tried again at {_clock(each.retry_at)}",
    timeline.Ended: _ended,
    timeline.Asked: _asked,
    timeline.CancelSeen: lambda _: "called off by a command on this data folder",
    timeline.ResultCommitted: lambda each: (
        f"attempt {each.attempt} committed the result {each.digest[:19]}, {bytes_text(each.size)}"
    ),
    timeline.ResultVerified: lambda _: "the result was found whole in the store: complete",
    timeline.Notified: _notified,
    timeline.ResultExpired: lambda _: "retention removed the result",
}


def _show(screen: Screen, found: Timeline, prefect_url: str | None, *, served: bool) -> None:
    job = found.job
    state = str(job.status) if job.reason is None else f"{job.status} ({job.reason})"
    screen.say(f"{job.job_id}  {state}", style="bold")
    day = ""
    for entry in found.entries:
        moment = local_time(rfc3339(entry.at))
        if moment[:10] != day:
            day = moment[:10]
            screen.say(f"{day} ({zone()})", style="dim")
        told = Text(visible(words(entry)), style="default")
        screen.say(Text(f"  {moment[11:19]}  ", style="dim").append(told))
    _show_runs(screen, found, prefect_url)
    for label, step in what_is_next(job, served=served):
        screen.row(label, step, wrap=label == "next")


def _show_runs(screen: Screen, found: Timeline, prefect_url: str | None) -> None:
    pages = None if prefect_url is None else prefect_url.removesuffix("/api")
    for entry in found.entries:
        if isinstance(entry, timeline.Due) and entry.flow_run_id is not None:
            run = entry.flow_run_id
            where = run if pages is None else f"{pages}/runs/flow-run/{run}"
            if found.is_restored(entry.attempt):
                where = f"{run}, of before the restore: this Prefect may not have it"
            screen.row(f"run {entry.attempt}", where)


def _clock(moment: datetime) -> str:
    return local_time(rfc3339(moment))[11:19]


def _json(found: Timeline) -> dict[str, Any]:
    entries = [
        {"at": rfc3339(entry.at), "what": type(entry).__name__, "words": words(entry)}
        | ({"flow_run_id": entry.flow_run_id} if isinstance(entry, timeline.Due) else {})
        for entry in found.entries
    ]
    return {"job": found.job.to_json(), "timeline": entries}
