"""Logs: one record, one form, and no word of a transcript."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from autocode.jobs import logs
from autocode.jobs.errors import SourceChanged


def record(message: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    """Make a record as a logger would."""
    info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("a.logger", logging.WARNING, "file.py", 1, message, arguments, info)


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    """Return *error* with the traceback that raising it gives."""

    def fail() -> None:
        raise error from cause

    try:
        fail()
    except Exception as caught:  # noqa: BLE001 - it is what was raised one line above
        return caught
    raise AssertionError("unreachable: it was raised")


def as_json(made: logging.LogRecord) -> dict[str, Any]:
    """Format a record as JSON and read it again."""
    value: dict[str, Any] = json.loads(logs.Formatter("worker", "json").format(made))
    return value


def test_a_record_carries_time_part_job_and_attempt() -> None:
    """Within about() each record names its job and attempt; outside it names none."""
    with logs.about("export-1", 2):
        inside = as_json(record("read %s files", 3))
    outside = as_json(record("idle"))

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", inside["time"])
    assert (inside["level"], inside["part"], inside["message"]) == ("warning", "worker", "read 3 files")
    assert (inside["job_id"], inside["attempt"]) == ("export-1", 2)
    assert (outside["job_id"], outside["attempt"]) == (None, None)


def test_text_has_the_same_in_one_line() -> None:
    """For people the record is a line with its job in brackets and extra fields at the end."""
    made = record("begun")
    made.sessions = 40

    with logs.about("export-1", 2):
        line = logs.Formatter("worker").format(made)

    assert line.split(" ", 1)[1] == "warning worker    [export-1 attempt 2] begun sessions=40"


def test_a_message_can_pass_for_no_other_record() -> None:
    """Line feeds and what moves a cursor are spelt out in text."""
    line = logs.Formatter("api").format(record("GET /\n2026-01-01T00:00:00.000Z info api \x1b[2J"))

    assert "\n" not in line
    assert "\x1b" not in line
    assert "GET /\\x0a2026" in line


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_belongs_to_its_record(form: Literal["text", "json"]) -> None:
    """A record with an exception and its cause is one line of JSON, or one line with indented ones."""
    error = raised(RuntimeError("it broke"), raised(ValueError("the reason")))

    written = logs.Formatter("api", form).format(record("failed", error=error))

    first, *rest = written.splitlines()
    assert all(line.startswith("    | ") for line in rest)
    assert bool(rest) == (form == "text")
    told = json.loads(first)["traceback"] if form == "json" else written
    assert told.index("ValueError: the reason") < told.index("RuntimeError: it broke")
    assert "raise error from cause" in told


def test_within_a_job_the_text_of_foreign_errors_is_left_out() -> None:
    """An exception of a library may quote the transcript that it choked on; ours don't."""
    foreign = raised(ValueError("bad input: my password is 1234"), raised(KeyError("secret prompt")))
    ours = raised(SourceChanged("session.jsonl changed while it was read."))

    with logs.about("export-1", 1):
        withheld = as_json(record("failed", error=foreign))["traceback"]
        told = as_json(record("failed", error=ours))["traceback"]

    assert "password" not in withheld
    assert "secret prompt" not in withheld
    assert "ValueError: (its text may quote a session" in withheld
    assert "SourceChanged: session.jsonl changed while it was read." in told


def test_within_a_job_an_error_of_the_system_names_no_file() -> None:
    """What the number of the error means is kept; a file may be called by what a session says."""
    error = raised(FileNotFoundError(2, "No such file or directory", "/home/ada/secret prompt.jsonl"))

    with logs.about("export-1", 1):
        told = as_json(record("failed", error=error))["traceback"]

    assert "FileNotFoundError: [Errno 2] No such file or directory" in told
    assert "secret prompt" not in told


def test_a_record_with_wrong_arguments_is_still_written() -> None:
    """A slip in a call of the logger costs neither the record nor the work."""
    assert as_json(record("%d files", "many"))["message"] == "%d files ('many',)"


_WRITER = """
import logging, sys
from pathlib import Path
from autocode.jobs import logs
logs.configure("part", form="json", file=Path(sys.argv[1]))
for line in sys.stdin:
    logging.getLogger("a").info("%s", line.strip())
    print("said", line.strip(), flush=True)
    sys.stderr.write("next\\n")
"""


def test_a_process_goes_on_in_the_new_file_when_its_log_is_set_aside(tmp_path: Path) -> None:
    """After the file was renamed the next record, and all that is printed after it, is in a new one."""
    log, older = tmp_path / "part.log", tmp_path / "part.1.log"
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(log)],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert process.stdin is not None
    process.stdin.write("one\n")
    process.stdin.flush()
    while "next" not in log.read_text():
        assert process.poll() is None

    log.rename(older)
    process.communicate("two\n", timeout=30)

    assert [line for line in older.read_text().splitlines() if "said" in line] == ["said one"]
    assert json.loads(log.read_text().splitlines()[0])["message"] == "two"
    assert "said two" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
