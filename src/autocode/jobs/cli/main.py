"""The ``autocode-jobs`` command."""

from __future__ import annotations

import os
import sys
from typing import Final

from cyclopts import App
from cyclopts.exceptions import CycloptsError

from autocode.jobs._version import __version__
from autocode.jobs.cli.artifacts import artifacts_app, verify
from autocode.jobs.cli.doctor import doctor
from autocode.jobs.cli.export import export
from autocode.jobs.cli.jobs import jobs_app
from autocode.jobs.cli.screen import Screen
from autocode.jobs.errors import HomeUnusable, JobNotFound, JobsError, UsageError

__all__ = ["app", "main", "run"]

USAGE: Final = 2
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141

app: Final = App(
    name="autocode-jobs",
    help="Durable jobs over the sessions that coding agents leave on disk.",
    version=__version__,
    help_epilogue="Data lies in AUTOCODE_HOME. Exit status: 0 done, 1 it failed, 2 usage, 130 interrupted.",
)
app.command(export)
app.command(verify)
app.command(artifacts_app)
app.command(jobs_app)
app.command(doctor)


def run(arguments: list[str]) -> int:
    """Run the command line *arguments* and return the exit status; errors are printed, never raised."""
    screen = Screen(json_mode=True)
    try:
        status = app(arguments, exit_on_error=False, print_error=True, result_action="return_value")
    except CycloptsError:
        return USAGE
    except (UsageError, HomeUnusable, JobNotFound) as error:
        screen.fail(error)
        return USAGE
    except JobsError as error:
        screen.fail(error)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has seen enough; keep the interpreter from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return status if isinstance(status, int) else 0


def main() -> None:
    """Run the command and exit."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
