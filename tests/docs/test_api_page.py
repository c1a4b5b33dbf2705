"""The page about the HTTP interface: its commands work, and print what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from api_served import SOURCES, served
from api_world import kill
from autocode.jobs import errors, request_errors
from autocode.jobs.api import problems
from autocode.jobs.engine.system import open_system
from autocode.jobs.errors import JobNotFound
from autocode.jobs.ledger import jobs
from autocode.jobs.ledger.database import Database
from ledger_world import look, new_job
from results_world import exported

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
BLOCK = re.compile(r"```sh\n(?P<code>.*?)```(?:\n\n```output\n(?P<output>.*?)```)?", re.DOTALL)
MARK = "-- end of block --"


def test_the_commands_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who pastes the page's commands into a shell one after the other sees what it shows."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(variable, raising=False)
    for folder in (".claude/projects", ".codex/sessions"):
        (tmp_path / folder).mkdir(parents=True)
    blocks = list(BLOCK.finditer(PAGE.read_text("utf-8")))
    script = "".join(f"{block['code']}\necho; echo '{MARK}'\n" for block in blocks)
    with served(tmp_path) as serving:
        serving.facts()
        with open_system(serving.home) as system:
            jobs.enqueue(system.db, new_job("broken"))
            kill(system.db, "broken")
            exported(system, tmp_path, job_id="done")
            with reconciling(system.db, "followed"):
                shell = subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", script],
                    cwd=tmp_path,
                    env={
                        **os.environ,
                        "AUTOCODE_HOME": str(serving.home.path),
                        "DEAD": "broken",
                        "DONE": "done",
                        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                        "PYTHONPATH": str(SOURCES),
                    },
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=120,
                )

    assert shell.returncode == 0, shell.stdout + shell.stderr
    printed = [part.strip() for part in shell.stdout.split(MARK)]
    shown = [(block["output"] or "").strip() for block in blocks]
    pairs = [(one, two) for one, two in zip(printed, shown, strict=False) if two]
    assert [one for one, _ in pairs] == [two for _, two in pairs]
    assert len(pairs) >= 10
    assert "HTTP/1.1 202" in printed[1]
    assert "location: /v1/jobs/nightly-2026-01-05" in printed[1]


@contextmanager
def reconciling(database: Database, job_id: str) -> Iterator[None]:
    """Tell of a job once it is there, as reconcile does, while the block runs."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.05):
            with suppress(JobNotFound):
                look(database, job_id)

    telling = threading.Thread(target=work)
    telling.start()
    try:
        yield
    finally:
        over.set()
        telling.join()


def test_every_error_of_a_request_is_explained() -> None:
    """The table of errors has each type that the table of statuses has, with its status."""
    page = PAGE.read_text("utf-8").split("\n## Errors\n", 1)[1]
    inside = {errors.AttemptEnded, errors.IllegalTransition, errors.HomeUnusable}
    inside |= {errors.ServerUnavailable, request_errors.ServiceUnavailable}

    missing = [
        cls.type
        for cls, status in problems.STATUSES.items()
        if cls not in inside
        and not re.search(rf"^\| [^|]*{status}[^|]* \|[^|]*`{cls.type}`", page, re.MULTILINE)
    ]

    assert missing == []
