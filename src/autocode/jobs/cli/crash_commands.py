"""The command ``crash-test``.

Its body imports its work when it is called, so that ``--help`` waits for no database and no engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, Parameter
from cyclopts.validators import Number

__all__ = ["register"]


def register(app: App) -> None:
    """Add the command to *app*."""
    app.command(crash_test, help_epilogue=_EXAMPLES)


_EXAMPLES: Final = """\
Examples:
  autocode-jobs crash-test
  autocode-jobs crash-test --rounds 50 --seed 3
  autocode-jobs crash-test --case "export step.before:2 kill worker"
  autocode-jobs crash-test shop.jobs:MAIL --payload '{"url": "{witness}"}'

A case is: the job's kind, a crash point and which passage of it, a fault, and
for kill and freeze a victim. --list shows many.

Exit status: 0 every job that came to its point came through, 1 one didn't or
wasn't judged (each such case is told with the command that repeats it), or the
service could not be started, 2 usage, or a kind that fails by itself,
130 interrupted."""


def crash_test(
    spec: Annotated[
        str | None,
        Parameter(
            name="MODULE:KIND",
            help="A job kind of your own: the module that declares it, and its name there. "
            "This project's own kinds if none.",
        ),
    ] = None,
    /,
    *,
    case: Annotated[
        list[str] | None,
        Parameter(
            name="--case",
            negative="",
            consume_multiple=False,
            help="Run this case; give it several times for several.",
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        Parameter(
            help="Run so many random cases of the whole space instead of the short list.",
            validator=Number(gte=1, lte=1_000_000),
        ),
    ] = None,
    seed: Annotated[
        int | None, Parameter(help="Which random cases; the same give the same. Made up, and told, if none.")
    ] = None,
    payload: Annotated[
        str | None,
        Parameter(
            help="Payload of your kind's jobs, a JSON object. In its strings {witness} becomes the address "
            "that counts effects, and {case} an id of the run of the case. @FILE reads it from a file."
        ),
    ] = None,
    list_: Annotated[
        bool,
        Parameter(name="--list", negative="", show_default=False, help="Print the cases, and run none."),
    ] = False,
    write: Annotated[
        Path | None,
        Parameter(
            name="--write",
            help="Replace the table between this page's marks (crash-test: begin, end) by what was measured.",
        ),
    ] = None,
    keep: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="Keep the data folder of the service, to look into it."
        ),
    ] = False,
    json: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="Print each verdict and the summary as a line of JSON."
        ),
    ] = False,
) -> int:
    """Kill, freeze and starve a service while jobs run on it; judge each job.

    It starts a service of its own on a temporary data folder. Each job is
    stopped at a crash point, the fault is done, and once the job is over it is
    compared with one that nobody disturbed. Without --case and --rounds a
    short list of cases is run, in which everything meets in pairs.
    """
    from autocode.jobs.cli import crash_test as work  # noqa: PLC0415 - see the module's docstring

    options = work.Options(
        spec=spec,
        cases=tuple(case or ()),
        rounds=rounds,
        seed=seed,
        payload=payload,
        listing=list_,
        write=write,
        keep=keep,
        json=json,
    )
    return work.crash_test(options)
