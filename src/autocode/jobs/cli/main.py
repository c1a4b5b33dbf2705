"""The ``autocode-jobs`` command: exit statuses, signals, and errors put into words."""

from __future__ import annotations

import atexit
import io
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Final

__all__ = ["BROKEN_PIPE", "DONE", "FAILED", "INTERRUPTED", "USAGE", "main", "run", "serve"]

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141


def run(arguments: list[str]) -> int:
    """Run the command line *arguments* and return the exit status; errors are printed, never raised.

    With ``AUTOCODE_TRACEBACK=1`` an error that nobody expected is raised, to be reported with its traceback.
    """
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has seen enough; the interpreter would complain about it at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        return _failed(
            f"{_name(error)}{error.strerror or error}.", "Check the file or the disk, and try again."
        )
    except Exception as error:
        if os.environ.get("AUTOCODE_TRACEBACK"):
            raise
        return _failed(
            f"Something unexpected happened: {type(error).__name__}: {error}",
            "Report it, with what the same command prints after AUTOCODE_TRACEBACK=1.",
        )
    return status


def _dispatch(arguments: list[str]) -> int:
    # imported here, so that a Ctrl-C during the imports ends as quietly as any other
    from cyclopts.exceptions import CycloptsError  # noqa: PLC0415 - see above

    from autocode.jobs.cli.commands import app  # noqa: PLC0415 - see above
    from autocode.jobs.errors import HomeUnusable, JobNotFound, JobsError, UsageError  # noqa: PLC0415 - see above

    try:
        status = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        return _failed(str(error), _usage_hint(arguments, error.command_chain or ()), status=USAGE)
    except (UsageError, HomeUnusable, JobNotFound) as error:
        return _failed(error.detail, error.hint, status=USAGE)
    except JobsError as error:
        return _failed(error.detail, error.hint)
    return status if isinstance(status, int) else DONE


def _usage_hint(arguments: Sequence[str], command: Sequence[str]) -> str:
    # the folders of Claude Code's projects begin with a hyphen
    named = [each for each in arguments if each.startswith("-") and os.path.lexists(each)]
    if named:
        return f"Write ./{named[0]} for the file or folder of this name."
    return " ".join(["autocode-jobs", *command, "--help"])


def _failed(detail: str, hint: str, *, status: int = FAILED) -> int:
    from autocode.jobs.cli.screen import Screen  # noqa: PLC0415 - as above

    Screen(json_mode=True).fail(detail, hint)
    return status


def _name(error: OSError) -> str:
    return f"{error.filename}: " if error.filename is not None else ""


def main() -> None:
    """Run the command of this process's arguments, and exit."""
    # what is registered first is called last: behind Prefect's handlers, and before all modules are taken
    # apart, which takes a second with Prefect among them and serves nobody
    status = [FAILED]
    atexit.register(lambda: _leave(status[0]))
    status[0] = serve(sys.argv[1:])
    if status[0] == INTERRUPTED:
        # no second Ctrl-C may turn the quiet end into a traceback, and no thread that lingers may delay it
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        _leave(INTERRUPTED)
    sys.exit(status[0])


def serve(arguments: list[str]) -> int:
    """Run the command line *arguments* as this process's own business; return the exit status."""
    _listen()
    _prepare_streams()
    return run(arguments)


def _leave(status: int) -> None:
    """End the process without more ado."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            continue
    os._exit(status)


def _listen() -> None:
    """Take SIGTERM and a lost terminal for Ctrl-C, and hear that also where a shell made us deaf to it."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    # asyncio cancels the running job for this handler, and for no other
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, interrupt)


def _prepare_streams() -> None:
    """Make both streams take any text, and give what was closed a place that isn't some file of ours."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        # a path that isn't text, or an old locale, must not end a command that is nearly done
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
