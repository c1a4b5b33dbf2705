"""The commands on single jobs that a person decides on: ``retry``, ``cancel``, ``explain``.

Each body imports its work when it is called, so that ``--help`` waits for no database and no engine.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

__all__ = ["register"]

Reason = Annotated[str, Parameter(name=["--reason", "-m"], help="Why, in your own words; kept in the audit.")]
Json = Annotated[
    bool, Parameter(negative="", show_default=False, help="Print job resources as JSON, one a line.")
]
Ids = Annotated[list[str] | None, Parameter(name="ID", help="The jobs' ids, as `jobs list` shows them.")]


def register(app: App) -> None:
    """Add the commands to *app*."""
    app.command(retry, help_epilogue=_RETRY_EXAMPLES)
    app.command(cancel, help_epilogue=_CANCEL_EXAMPLES)
    app.command(explain, help_epilogue=_EXPLAIN_EXAMPLES)


_RETRY_EXAMPLES: Final = """\
Examples:
  autocode-jobs jobs retry nightly-7 --reason "disk is free again"
  autocode-jobs jobs retry nightly-7 --from start -m "reader was wrong"
  autocode-jobs jobs retry --dead-letters --kind export --dry-run
  autocode-jobs jobs retry --dead-letters --kind export -m "after the fix"

Exit status: 0 retried, 1 refused, 2 usage (nothing was changed),
130 interrupted."""


def retry(
    ids: Ids = None,
    /,
    *,
    reason: Reason | None = None,
    start: Annotated[
        Literal["checkpoint", "start"],
        Parameter(name="--from", help="checkpoint: reuse what was done; start: do every step again."),
    ] = "checkpoint",
    attempts: Annotated[
        int,
        Parameter(
            help="How many further attempts may fail before it is dead again.",
            validator=Number(gte=1, lte=100),
        ),
    ] = 3,
    dead_letters: Annotated[
        bool,
        Parameter(
            name=["--dead-letters", "--filter"],
            negative="",
            show_default=False,
            help="Retry all dead jobs that fit the next four, instead of naming some.",
        ),
    ] = False,
    kind: Annotated[str | None, Parameter(help="Only dead letters of this kind.")] = None,
    dead_because: Annotated[
        Literal["exhausted", "permanent", "poison", "cancelled"] | None,
        Parameter(help="Only dead letters of this reason; cancelled jobs are none, and are retried by name."),
    ] = None,
    session: Annotated[str | None, Parameter(help="Only dead letters of this session.")] = None,
    search: Annotated[str | None, Parameter(help="Only those with this text in an id.")] = None,
    dry_run: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Show what a retry would do, and change nothing."),
    ] = False,
    yes: Annotated[
        bool,
        Parameter(name=["--yes", "-y"], negative="", show_default=False, help="Don't ask."),
    ] = False,
    json: Json = False,
) -> int:
    """Give dead jobs further attempts, after showing what is reused and what may happen twice."""
    from autocode.jobs.cli import operate as work  # noqa: PLC0415 - see the module's docstring

    choice = work.Choice(tuple(ids or ()), dead_letters, kind, dead_because, search, session)
    if dry_run:
        return work.outlook(choice, start=start, attempts=attempts, json=json)
    return work.retry(choice, reason=reason, start=start, attempts=attempts, yes=yes, json=json)


_CANCEL_EXAMPLES: Final = """\
Examples:
  autocode-jobs jobs cancel nightly-7 --reason "wrong folder"

A running attempt hears of it within a second or two and stops. Cancelled jobs
are dead, and can be retried.

Exit status: 0 called off, now or before, 1 refused (it has a result, or is
dead for another reason), 2 usage, 130 interrupted."""


def cancel(
    ids: Annotated[list[str], Parameter(name="ID", help="The jobs' ids, as `jobs list` shows them.")],
    /,
    *,
    reason: Reason,
    json: Json = False,
) -> int:
    """Call jobs off."""
    from autocode.jobs.cli import operate as work  # noqa: PLC0415 - see the module's docstring

    return work.cancel(ids, reason=reason, json=json)


_EXPLAIN_EXAMPLES: Final = """\
Examples:
  autocode-jobs jobs explain nightly-7
  autocode-jobs jobs explain nightly-7 --json

Exit status: 0 shown, 2 no such job."""


def explain(
    job_id: Annotated[str, Parameter(name="ID", help="The job's id, as `jobs list` shows it.")],
    /,
    *,
    json: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print job and timeline as one line of JSON.")
    ] = False,
) -> int:
    """Tell how a job went: attempts, kills, reuse, errors, and who asked for what."""
    from autocode.jobs.cli import explain as work  # noqa: PLC0415 - see the module's docstring

    return work.explain(job_id, json=json)
