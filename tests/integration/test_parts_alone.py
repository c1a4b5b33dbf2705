"""``reconcile`` and ``worker`` started alone, beside a Prefect server that asks for a password."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from autocode.jobs.engine.connection import check_access
from autocode.jobs.engine.server import Address, private_server
from autocode.jobs.errors import UsageError
from autocode.jobs.settings import Home
from service_world import until

PROGRAM = Path(sys.executable).parent / "autocode-jobs"

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """Run a Prefect server that belongs to another home than the parts'."""
    home = Home(tmp_path_factory.mktemp("server") / "home")
    home.prepare()
    with private_server(home) as address:
        yield address


@contextmanager
def started(
    part: str, home: Path, server: Address, said: Path, *, auth: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Start *part* on *home*; what it says goes to *said*."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environ |= {"AUTOCODE_HOME": str(home), "PREFECT_API_URL": server.url, "PREFECT_API_AUTH_STRING": auth}
    with said.open("wb") as file:
        process = subprocess.Popen([PROGRAM, part], env=environ, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("part", ["reconcile", "worker"])
@pytest.mark.parametrize("auth", ["", "admin:wrong"])
def test_a_part_that_prefect_does_not_let_in_says_what_to_set(
    part: str, auth: str, server: Address, tmp_path: Path
) -> None:
    """It ends with status 2 after one line that names the server and the variable, without a traceback."""
    said = tmp_path / "said"

    with started(part, tmp_path / "home", server, said, auth=auth) as process:
        status = process.wait(60)

    lines = said.read_text("utf-8").splitlines()
    assert (status, len(lines)) == (2, 1), lines
    assert server.url in lines[0]
    assert "Set PREFECT_API_AUTH_STRING to USER:PASSWORD" in lines[0]
    assert "wrong" not in lines[0]


@pytest.mark.parametrize(
    ("part", "words"),
    [("reconcile", "ready, leading"), ("worker", "ready: takes runs of the pool 'autocode', 2 at once")],
)
def test_a_part_alone_says_when_it_is_ready(part: str, words: str, server: Address, tmp_path: Path) -> None:
    """A line on its screen says so, and what it does from then on."""
    said = tmp_path / "said"

    with started(part, tmp_path / "home", server, said, auth=server.auth) as process:
        until(lambda: words in said.read_text("utf-8") or process.poll() is not None, within=90)
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)

    assert words in said.read_text("utf-8")
    assert status == 0


def test_a_reconciler_that_does_not_lead_says_that_it_stands_by(server: Address, tmp_path: Path) -> None:
    """The second on one home is ready as well, and names the reason why it does nothing."""
    first, second = tmp_path / "first", tmp_path / "second"

    with started("reconcile", tmp_path / "home", server, first, auth=server.auth):
        until(lambda: "leading" in first.read_text("utf-8"), within=90)
        with started("reconcile", tmp_path / "home", server, second, auth=server.auth):
            until(lambda: "ready, standing by: another process leads" in second.read_text("utf-8"), within=90)


def test_a_server_that_is_away_refuses_nobody() -> None:
    """Parts go on without Prefect until it answers, so silence is no wrong setting."""
    check_access(Address("http://127.0.0.1:1/api", "", pid=0))


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_told_without_the_password_of_the_address(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address may hold a password, which no message shows."""
    monkeypatch.setattr(httpx, "get", lambda *_args, **_named: httpx.Response(status))

    with pytest.raises(UsageError) as caught:
        check_access(Address("http://ada:s3cret@prefect.example/api", "", pid=0))

    assert "s3cret" not in caught.value.detail
    assert str(status) in caught.value.detail
