"""A home of its own for the benchmark, and ``autocode-jobs up`` on it."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from autocode.jobs import locks
from autocode.jobs.ledger.database import Database
from autocode.jobs.postgres.place import url_of
from autocode.jobs.settings import Home
from autocode.jobs.testing import scenarios
from bench import processes

__all__ = ["Up", "started", "temporary", "until"]

FLOWS: Final = Path(scenarios.__file__).with_name("scenario_flows.py")
_PROGRAM: Final = Path(sys.executable).parent / "autocode-jobs"
_READY_SECONDS: Final = 180.0
_END_SECONDS: Final = 60.0


@dataclass
class Up:
    """A service that is ready.

    Args:
        home: its data folder.
        pid: of the supervisor.
        seconds: from its start until all parts were ready.
        cpu: processor seconds that its processes had used by then, by part.
        parts: seconds from a part's own start until it was ready, by part.
        events: everything that it told.
        client: of its API, with the home's own token.
        prefect: where its Prefect server answers: URL and ``user:password``.
    """

    home: Home
    pid: int
    seconds: float
    cpu: dict[str, float]
    parts: dict[str, float]
    events: list[dict[str, Any]] = field(repr=False)
    client: httpx.Client = field(repr=False)
    prefect: tuple[str, str] = field(repr=False)

    def pid_of(self, part: str) -> int:
        """Return the process of a part that is ready."""
        ready = [each for each in self.events if each.get("part") == part and each.get("state") == "ready"]
        pid: int = ready[-1]["pid"]
        return pid

    @contextmanager
    def ledger(self) -> Iterator[Database]:
        """Give its ledger, to be read."""
        url = url_of(self.home)
        if url is None:
            raise SystemExit(f"{self.home.path} has no PostgreSQL")
        db = Database(url)
        try:
            yield db
        finally:
            db.close()


@contextmanager
def temporary(folder: Path | None) -> Iterator[tuple[Home, dict[str, str]]]:
    """Give an empty home and the environment of its commands; nothing of it is left when the block ends."""
    # short, and open to all: root's PostgreSQL runs under an account that has to get there
    base = Path(tempfile.mkdtemp(prefix="bench-up-", dir=folder)).resolve()
    base.chmod(0o755)
    home = Home(base / "home")
    own = ("AUTOCODE_", "PREFECT_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    environ |= {
        "AUTOCODE_HOME": str(home.path),
        "AUTOCODE_POSTGRES_FOLDER": str(base / "data"),
        "AUTOCODE_KINDS": "autocode.jobs.testing.scenarios",
        "AUTOCODE_WORKER_FLOWS": ",".join(f"{FLOWS}:{name}" for name in ("noop", "slow")),
    }
    try:
        yield home, environ
    finally:
        until(lambda: not locks.is_held(home.run / "postgres.lock"), within=_END_SECONDS)
        shutil.rmtree(base)


@contextmanager
def started(home: Home, environ: dict[str, str], *arguments: str) -> Iterator[Up]:
    """Run ``up`` with *arguments* within the block, which begins when all parts are ready.

    Raises:
        SystemExit: it did not get ready; what it said is printed.
    """
    began = time.monotonic()
    process = subprocess.Popen(
        [_PROGRAM, "up", "--json", "--port", "0", *arguments],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    events: list[dict[str, Any]] = []
    told: queue.SimpleQueue[float] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(process, events, told), daemon=True).start()
    try:
        try:
            seconds = told.get(timeout=_READY_SECONDS) - began
        except queue.Empty:
            raise SystemExit(f"up did not get ready:\n{events}\n{_logs(home)}") from None
        yield _ready(home, process.pid, seconds, events)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_END_SECONDS)


def until(condition: Callable[[], bool], *, within: float, pause: float = 0.005) -> None:
    """Wait until *condition* holds.

    Raises:
        SystemExit: it does not within *within* seconds.
    """
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"gave up after {within:.0f} s")
        time.sleep(pause)


def _read(
    process: subprocess.Popen[str], events: list[dict[str, Any]], told: queue.SimpleQueue[float]
) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        try:
            events.append(json.loads(line))
        except ValueError:
            events.append({"said": line})
        if events[-1].get("event") == "ready":
            told.put(time.monotonic())


def _ready(home: Home, pid: int, seconds: float, events: list[dict[str, Any]]) -> Up:
    cpu = processes.cpu_seconds(processes.of_home(home.path))
    ready = {each["part"]: each for each in events if each.get("state") == "ready"}
    server = json.loads((home.run / "server.json").read_text("utf-8"))
    token = (home.run / "token").read_text("ascii").strip()
    client = httpx.Client(
        base_url=ready["api"]["url"],
        headers={"Authorization": f"Bearer {token}"},
        timeout=60.0,
        trust_env=False,
    )
    parts = {part: each["ready_seconds"] for part, each in ready.items()}
    return Up(home, pid, seconds, cpu, parts, events, client, (server["url"], server["auth"]))


def _logs(home: Home) -> str:
    return "\n".join(f"== {path.name}\n{path.read_text()[-1000:]}" for path in home.logs.glob("*.log"))
