"""The ``autocode-jobs`` command: exit statuses, signals, and errors put into words."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Final, TextIO

__all__ = ["BROKEN_PIPE", "DONE", "FAILED", "INTERRUPTED", "USAGE", "main", "run"]

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
        command = " ".join(["autocode-jobs", *(error.command_chain or ())])
        return _failed(str(error), f"{command} --help", status=USAGE)
    except (UsageError, HomeUnusable, JobNotFound) as error:
        return _failed(error.detail, error.hint, status=USAGE)
    except JobsError as error:
        return _failed(error.detail, error.hint)
    return status if isinstance(status, int) else DONE


def _failed(detail: str, hint: str, *, status: int = FAILED) -> int:
    from autocode.jobs.cli.screen import Screen  # noqa: PLC0415 - as above

    Screen(json_mode=True).fail(detail, hint)
    return status


def _name(error: OSError) -> str:
    return f"{error.filename}: " if error.filename is not None else ""


def main() -> None:
    """Run the command of this process's arguments, and exit."""
    _listen()
    _lenient(sys.stdout)
    _lenient(sys.stderr)
    status = run(sys.argv[1:])
    if status != INTERRUPTED:
        sys.exit(status)
    # no second Ctrl-C may turn the quiet end into a traceback, and no thread that lingers may delay it
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            continue
    os._exit(INTERRUPTED)


def _listen() -> None:
    """Take SIGTERM and a lost terminal for Ctrl-C, and hear that also where a shell made us deaf to it."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    # asyncio cancels the running job for this handler, and for no other
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, interrupt)


def _lenient(stream: TextIO) -> None:
    # a path that isn't text, or an old locale, must not end a command that is nearly done
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
