"""One form for every line that a part of the service logs, for people or as JSON.

A record is one line, but for a traceback in text, whose lines are indented. It carries the time in UTC, the
level, the part, and the job and attempt that :func:`about` names. Lines go to stderr, which the supervisor
makes the part's file; when it has set that file aside, the handler goes on in the new one.

What a transcript says must not get here. So within :func:`about` the text of an exception that isn't ours is
left out (it may quote its input), and its class and traceback stay; of an error of the system also what its
number means, but not the file's name.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from autocode.jobs.errors import JobsError

__all__ = ["Formatter", "about", "configure", "configure_child", "own_file", "quieten"]

_WITHHELD: Final = "(its text may quote a session; it is left out)"
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}
_NOISY: Final = ("httpx", "httpcore", "asyncio", "alembic", "sqlalchemy")


@dataclass(frozen=True, slots=True)
class _Subject:
    job_id: str
    attempt: int | None


_subject: ContextVar[_Subject | None] = ContextVar("autocode_log_subject", default=None)


@contextmanager
def about(job_id: str, attempt: int | None = None) -> Iterator[None]:
    """Say of everything that is logged within the block which job and which attempt it is about."""
    token = _subject.set(_Subject(job_id, attempt))
    try:
        yield
    finally:
        _subject.reset(token)


def configure(
    part: str,
    *,
    level: str = "info",
    form: Literal["text", "json"] = "text",
    file: Path | None = None,
) -> None:
    """Send everything that this process logs to stderr, in one form. Idempotent.

    Args:
        part: name of this process among those of the service.
        level: ``debug``, ``info``, ``warning`` or ``error``; libraries that tell much start at ``warning``.
        form: ``text`` or ``json``.
        file: the file that stderr is, if it may be set aside and begun anew.
    """
    handler = StderrHandler(file)
    handler.setFormatter(Formatter(part, form))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    quieten()
    logging.captureWarnings(capture=True)
    # the default prints a traceback around the first, to the very stream that just failed
    logging.raiseExceptions = False


def configure_child(part: str, folder: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Do what :func:`configure` does in a process that a part starts, as its environment says. Idempotent.

    Args:
        part: name of the part that it belongs to.
        folder: where logs are.
        environ: its environment.
    """
    level, form = environ.get("AUTOCODE_LOG_LEVEL"), environ.get("AUTOCODE_LOG_FORMAT")
    known = level if level in {"debug", "info", "warning", "error"} else "info"
    file = own_file(folder / f"{part}.log")
    configure(part, level=known, form="json" if form == "json" else "text", file=file)


def own_file(path: Path) -> Path | None:
    """Return *path* if that is the file behind this process's stderr, as the supervisor makes it."""
    try:
        return path if os.path.samestat(path.stat(), os.fstat(2)) else None
    except OSError:
        return None


def quieten() -> None:
    """Let libraries that tell of every step begin at warnings, or where the root logger begins, if later."""
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(logging.getLogger().level, logging.WARNING))


class Formatter(logging.Formatter):
    """Makes of a record one line of text or of JSON.

    Args:
        part: name of the process.
        form: ``text`` or ``json``.
    """

    def __init__(self, part: str, form: Literal["text", "json"] = "text") -> None:
        super().__init__()
        self._part = part
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as it is written, without the last line feed."""
        entry = self._entry(record)
        if self._form == "json":
            return json.dumps(entry, ensure_ascii=True, default=str)
        subject = " ".join(
            part
            for part in (entry["job_id"], f"attempt {entry['attempt']}" if entry["attempt"] else None)
            if part
        )
        more = " ".join(f"{name}={_plain(value)}" for name, value in entry.get("data", {}).items())
        words = (
            entry["time"],
            f"{entry['level']:<7}",
            f"{self._part:<9}",
            f"[{_plain(subject)}]" if subject else "",
            _plain(entry["message"]),
            more,
        )
        lines = [
            " ".join(filter(None, words)),
            *(f"    | {_plain(line)}" for line in entry.get("traceback", "").splitlines()),
        ]
        return "\n".join(lines)

    def _entry(self, record: logging.LogRecord) -> dict[str, Any]:
        subject = _subject.get()
        job_id = getattr(record, "job_id", subject.job_id if subject else None)
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "part": self._part,
            "job_id": job_id,
            "attempt": getattr(record, "attempt", subject.attempt if subject else None),
            "logger": record.name,
            "message": _message(record),
        }
        more = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        for name in ("job_id", "attempt"):
            more.pop(name, None)
        if more:
            entry["data"] = more
        if record.exc_info and record.exc_info[1] is not None:
            entry["traceback"] = _traceback(record.exc_info[1], withhold=job_id is not None)
        return entry


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a wrong argument of one call must not cost the record
        return f"{record.msg} {record.args}"


def _traceback(error: BaseException, *, withhold: bool) -> str:
    """Return the traceback of *error* and of its causes, the first cause first; code, but no values."""
    told: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        frames = "".join(traceback.format_tb(current.__traceback__))
        told.insert(0, f"{frames}{type(current).__qualname__}: {_text(current, withhold=withhold)}")
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\nwhich led to\n".join(told)


def _text(error: BaseException, *, withhold: bool) -> str:
    try:
        # details of our own errors are written with names and numbers alone
        if not withhold or isinstance(error, JobsError):
            return str(error)
        # what the system says of it, and not the file: somebody may have called one by what a session says
        number = error.errno if isinstance(error, OSError) else None
        return _WITHHELD if number is None else f"[Errno {number}] {os.strerror(number)}"
    except Exception:  # noqa: BLE001 - as in errors.describe
        return "(its text can't be read)"


def _plain(text: object) -> str:
    # no text may begin a line of its own and so pass for another record, nor move the reader's cursor
    written = str(text)
    if written.isprintable():
        return written
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in written)


class StderrHandler(logging.Handler):
    """Writes each record by one call, so that lines of several processes don't mix.

    Its name begins with no underscore: Prefect, when imported, replaces the root logger's handlers unless one
    of them looks like somebody's (``prefect/logging/configuration.py``).

    Args:
        file: the file behind stderr, if somebody may set it aside.
    """

    def __init__(self, file: Path | None) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record; what can't be written is dropped: no log may stop the work."""
        with contextlib.suppress(OSError, ValueError):
            line = self.format(record) + "\n"
            if self._file is not None:
                follow(self._file)
            sys.stderr.flush()
            os.write(2, line.encode("utf-8", "backslashreplace"))


def follow(file: Path) -> None:
    """Let stdout and stderr go on in *file* where that name now belongs to another file than theirs."""
    mine = os.fstat(2)
    try:
        named = file.stat()
    except FileNotFoundError:
        named = None
    if named is not None and (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino):
        return
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for number in (1, 2):
            os.dup2(descriptor, number)
    finally:
        os.close(descriptor)
