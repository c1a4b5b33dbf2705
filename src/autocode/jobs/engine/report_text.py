"""The page about an attempt that people read in Prefect: Markdown, made of facts of the ledger; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from autocode.jobs.clock import rfc3339
from autocode.jobs.engine.messages import what_follows
from autocode.jobs.ledger.reports import AttemptReport
from autocode.jobs.projection import Outcome

__all__ = ["progress_text", "report_text"]

_ENDINGS: Final = {
    Outcome.COMPLETED: "completed",
    Outcome.FAILED: "failed",
    Outcome.PERMANENT: "failed for good: no further attempt can help",
    Outcome.CRASHED: "crashed: its process died",
    Outcome.LOST: "lost: nothing was heard of its process for a lease",
    Outcome.INTERRUPTED: "handed back before its end",
    Outcome.CANCELLED: "called off",
    Outcome.TIMED_OUT: "ended for running longer than it may",
    Outcome.GONE: "never began",
}

_SHORT: Final = 12
"""Characters of a digest that a table shows; ``jobs explain`` has all of them."""

_MARKED: Final = frozenset("\\`*_{}[]<>()#+!|~&$")


def progress_text(job_id: str, n: int, done: int, total: int, unit: str | None) -> str:
    """Return the line above the bar: how far attempt *n* is, in plain numbers."""
    what = f" {_plain(unit)}" if unit else ""
    return f"Job {_code(job_id)}, attempt {n}: {done:,} of {total:,}{what}"


def report_text(report: AttemptReport, numbers: Mapping[str, int]) -> str:
    """Return the page about an attempt that is over.

    Args:
        report: its facts.
        numbers: its result in numbers, as the kind tells them; shown where there are any.
    """
    sections = [_outcome(report), _checkpoints(report)]
    if numbers:
        sections.append(["## The result in numbers", "", *_table(("what", "how many"), _counted(numbers))])
    sections.append(_where(report))
    return "\n".join(line for section in sections for line in (*section, ""))


def _outcome(report: AttemptReport) -> list[str]:
    job, attempt = report.rows.job, report.attempt
    rows = [
        ("attempt", f"{attempt.n}: {_ENDINGS[Outcome(attempt.outcome)]}"),
        ("began", _moment(attempt.begun_at)),
        ("ended", _moment(attempt.ended_at)),
    ]
    if attempt.error is not None:
        error = attempt.error
        rows.append(("problem", f"{_plain(error['title'])} ({_code(error['type'])})"))
        rows += [("in step", _plain(error["step"]))] if error["step"] else []
    if report.result is not None:
        result = report.result
        rows.append(("result", f"{_code(result.digest)}, {result.size:,} bytes"))
    elif attempt.outcome != Outcome.COMPLETED:
        rows.append(("then", _plain(what_follows(report.rows, attempt).partition(": autocode-jobs")[0])))
    return [f"# {_plain(job.kind)}, attempt {attempt.n}", "", *_table(("job", _code(job.job_id)), rows)]


def _checkpoints(report: AttemptReport) -> list[str]:
    told = (
        f"{report.new:,} new in this attempt, {report.reused:,} reused, {report.earlier:,} from earlier ones."
    )
    total = report.new + report.reused + report.earlier
    rows = [
        (str(row.seq), _plain(row.step), _code(_short(row.digest)), _origin(report, row.attempt, row.reused))
        for row in report.newest
    ]
    left_out = total - len(rows)
    more = [f"The newest {len(rows)} of {total:,} are listed.", ""] if left_out else []
    table = _table(("seq", "step", "digest", "made"), rows) if rows else []
    return ["## Checkpoints", "", told, "", *more, *table]


def _origin(report: AttemptReport, attempt: int, reused: bool) -> str:
    if attempt != report.attempt.n:
        return f"in attempt {attempt}"
    return "reused" if reused else "new"


def _where(report: AttemptReport) -> list[str]:
    job_id = report.rows.job.job_id
    commands = [f"autocode-jobs jobs explain {job_id}"]
    if report.rows.job.result_digest is not None:
        commands.append(f"autocode-jobs artifacts get {report.rows.job.result_digest}")
    elif report.rows.attempts[-1].ended_at is not None:
        commands.append(f"autocode-jobs jobs retry {job_id} --reason TEXT")
    note = "Restarting this run in Prefect does nothing: one run is one attempt. Look here:"
    return ["## Where to go on", "", note, "", "```", *commands, "```"]


def _counted(numbers: Mapping[str, int]) -> Iterable[tuple[str, str]]:
    return ((_plain(name), f"{int(number):,}") for name, number in numbers.items())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def _moment(moment: datetime | None) -> str:
    return "never" if moment is None else rfc3339(moment) or ""


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:_SHORT]


def _code(text: str) -> str:
    """Return a value of a fixed alphabet (ids, digests, types) as code."""
    return f"`{text}`"


def _plain(text: str) -> str:
    """Return *text* so that Markdown shows it as it is, in one line."""
    one_line = " ".join(text.split())
    return "".join(f"\\{char}" if char in _MARKED else char for char in one_line)
