"""The deployments of ``prefect.yaml`` on a Prefect server of somebody else's, run by Prefect's own worker."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from autocode.jobs.engine import prefect_schema
from autocode.jobs.engine.system import open_system
from autocode.jobs.ledger import queries
from autocode.jobs.model import JobStatus
from autocode.jobs.operations.export import EXPORT
from autocode.jobs.settings import Home
from autocode.jobs.testing.samples import write_samples
from engine_world import SOURCES, Engine, until

pytest_plugins = ["fixtures_engine"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    # Prefect leaves the socket of its event client to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROOT = SOURCES.parent
PREFECT = Path(sys.executable).with_name("prefect")


@dataclass
class Prefect:
    """A Prefect server that knows nothing of this project, and a clone of the project beside it."""

    url: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every command: another home, another user, and that server."""
        return {
            **os.environ,
            "PREFECT_HOME": str(self.folder / "prefect"),
            "PREFECT_API_URL": self.url,
            "PREFECT_UI_ENABLED": "false",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "AUTOCODE_HOME": str(self.folder / "worker-home"),
            "HOME": str(self.folder / "user"),
            "PYTHONPATH": str(SOURCES),
            "COLUMNS": "200",
        }

    def run(self, *arguments: str) -> str:
        """Run a command of Prefect's in the clone; return what it printed."""
        done = subprocess.run(
            [PREFECT, *arguments],
            cwd=self.folder / "clone",
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory, own_sources: None) -> Iterator[Prefect]:
    """Run a server as its documentation says, on a free port."""
    folder = tmp_path_factory.mktemp("elsewhere")
    for name in ("prefect", "user", "clone"):
        (folder / name).mkdir()
    prefect_schema.lay(folder / "prefect")
    shutil.copy2(ROOT / "prefect.yaml", folder / "clone")
    shutil.copytree(ROOT / "flows", folder / "clone" / "flows")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    world = Prefect(f"http://127.0.0.1:{port}/api", folder)
    command = [str(PREFECT), "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            command, env=world.environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until(lambda: answers(f"{world.url}/health"), within=120, told=(folder / "server.log").read_text)
        yield world
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def answers(url: str) -> bool:
    """Say whether *url* answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - the address is the test's own
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def test_a_scheduled_run_is_adopted_as_a_job_with_the_result_of_a_one_shot_run(
    prefect: Prefect, engine: Engine
) -> None:
    """Deploy on a foreign server, run once by a process worker: the job's result is the one-shot's."""
    sessions = prefect.folder / "user" / ".claude" / "projects"
    write_samples(sessions, seed=5, sessions=4, megabytes=0.1)
    prefect.run("work-pool", "create", "--type", "process", "autocode")

    prefect.run("--no-prompt", "deploy", "--all")
    created = prefect.run("deployment", "run", "export/export-claude-code")
    prefect.run("worker", "start", "--pool", "autocode", "--type", "process", "--run-once")

    [flow_run] = re.findall(r"UUID: ([0-9a-f-]{36})", created)
    with open_system(Home(prefect.folder / "worker-home")) as system:
        adopted = queries.get(system.db, f"prefect:{flow_run}")
    assert adopted.status is JobStatus.COMPLETE
    assert adopted.attempts == 1
    shown = prefect.run("flow-run", "inspect", flow_run)
    assert "COMPLETED" in shown.upper()

    root = engine.home.add_root(sessions)
    once, _ = engine.run_payload(EXPORT, "once", {"sources": [{"root": root}]})

    assert once.result is not None
    assert adopted.result is not None
    assert adopted.result.digest == once.result.digest
