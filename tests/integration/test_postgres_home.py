"""The PostgreSQL of a home, for real: shared, kept alive through kills, gone when nobody needs it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from autocode.jobs import locks
from autocode.jobs.errors import LedgerUnavailable
from autocode.jobs.ledger.database import Database
from autocode.jobs.postgres import place
from autocode.jobs.postgres.accounts import owner_of
from autocode.jobs.postgres.client import running
from autocode.jobs.postgres.processes import _family, open_children
from autocode.jobs.settings import Home
from engine_world import SOURCES, until
from postgres_world import alive, pids, told_anew

pytest_plugins = ["fixtures_postgres_home"]

_CLIENT = """
import sys
from pathlib import Path
from typing import Any
from autocode.jobs.postgres.client import running
from autocode.jobs.settings import Home

with running(Home(Path(sys.argv[1]))) as url:
    print(url, flush=True)
    sys.stdin.read()
"""

SharedHome = tuple[Home, str]


def _ask(url: str, query: str) -> tuple[object, ...] | None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True, connect_timeout=5) as connection:
        done = connection.execute(query.encode())
        return done.fetchone() if done.description else None


def _answers(url: str) -> bool:
    try:
        return _ask(url, "SELECT 1") == (1,)
    except psycopg.OperationalError:
        return False


def _postmasters(home: Home) -> list[int]:
    """Return every postmaster on the home's data folder."""
    noted = place._noted(home)
    assert noted is not None
    data = noted.folder_in(home) / "data"
    family = _family(data, noted.name, data.stat().st_uid)
    return [pid for pid, is_postmaster in family.items() if is_postmaster]


def _client(home: Home) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _CLIENT, str(home.path)],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_nobody_else_gets_in_and_root_runs_nothing(postgres_home: SharedHome) -> None:
    """Data and socket are closed to others, the password is for the owner, the server isn't root's."""
    home, url = postgres_home
    noted = place._noted(home)
    assert noted is not None
    folder = noted.folder_in(home)
    server = Path(f"/proc/{pids(home)[1]}").stat()

    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(host=str(noted.socket_in(home)), user="autocode", password="wrong", dbname="autocode")

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((home.path / "postgres" / "password").stat().st_mode) == 0o600
    assert server.st_uid == folder.stat().st_uid != 0
    assert _ask(url, "SHOW fsync") == ("on",)
    assert _ask(url, "SHOW listen_addresses") == ("",)


@pytest.mark.parametrize("killed", ["postgres", "keeper", "both"])
def test_after_kills_it_is_back_with_the_same_address_and_data(
    postgres_home: SharedHome, killed: str
) -> None:
    """Whoever is killed with SIGKILL, what was committed is there again by the same URL, and served once."""
    home, url = postgres_home
    before = keeper, postgres = pids(home)
    _ask(url, f"CREATE DATABASE killed_{killed}")

    if killed != "postgres":
        os.kill(keeper, signal.SIGKILL)
    if killed != "keeper":
        os.kill(postgres, signal.SIGKILL)
    after = told_anew(home, before)
    until(lambda: _answers(url), within=30)

    assert _answers(url.replace("/autocode?", f"/killed_{killed}?"))
    assert (after[0] == keeper) is (killed == "postgres")
    assert _postmasters(home) == [after[1]]


def test_a_stopped_server_is_an_unavailable_ledger_soon_and_then_recovers(
    postgres_home: SharedHome,
) -> None:
    """With every process of PostgreSQL stopped by SIGSTOP a transaction fails in seconds; later ones work."""
    home, url = postgres_home
    database = Database(url)
    with database.read() as tx:
        tx.execute(sa.text("SELECT 1"))

    with _stopped(pids(home)[1]):
        began = time.monotonic()
        with pytest.raises(LedgerUnavailable), database.read() as tx:
            tx.execute(sa.text("SELECT 1"))
        took = time.monotonic() - began
    with database.read() as tx:
        after = tx.execute(sa.text("SELECT 2")).scalar_one()
    database.close()

    assert took < 12.0, "5 s, and as much again for a busy machine"
    assert after == 2


def test_a_server_stopped_in_the_middle_of_a_transaction_is_noticed(postgres_home: SharedHome) -> None:
    """The next statement of a transaction fails when the server stopped after the one before."""
    _home, url = postgres_home
    database = Database(url)

    def stop_midway() -> None:
        with database.write() as tx:
            backend = int(tx.execute(sa.text("SELECT pg_backend_pid()")).scalar_one())
            os.kill(backend, signal.SIGSTOP)
            try:
                tx.execute(sa.text("SELECT 1"))
            finally:
                os.kill(backend, signal.SIGCONT)

    with pytest.raises(LedgerUnavailable, match="no answer within"):
        stop_midway()

    with database.read() as tx:
        assert tx.execute(sa.text("SELECT 2")).scalar_one() == 2
    database.close()


@contextmanager
def _stopped(postmaster: int) -> Iterator[None]:
    with open_children(postmaster) as children:
        stopped = [os.pidfd_open(postmaster), *children]
        for handle in stopped:
            signal.pidfd_send_signal(handle, signal.SIGSTOP)
        try:
            yield
        finally:
            for handle in stopped:
                signal.pidfd_send_signal(handle, signal.SIGCONT)
            os.close(stopped[0])


def test_clients_share_one_server_that_ends_with_the_last(new_home: Home) -> None:
    """Two processes that start it at once get the same one, which survives the first that leaves."""
    clients = [_client(new_home), _client(new_home)]
    urls = []
    for client in clients:
        assert client.stdout is not None
        urls.append(client.stdout.readline().strip())
    first = pids(new_home)

    clients[0].kill()
    clients[0].wait()
    second = pids(new_home)
    served = _postmasters(new_home)
    answers = _answers(urls[1])
    clients[1].communicate()
    clients[0].communicate()
    until(lambda: not locks.is_held(new_home.run / "postgres.lock"), within=30)

    assert urls[0] == urls[1]
    assert first == second
    assert served == [first[1]]
    assert answers is True
    assert not alive(first[1])
    assert not (new_home.run / "postgres.json").exists()


def test_what_a_kill_left_is_no_obstacle(new_home: Home) -> None:
    """With a stale pid file, whose id a stranger has got by now, it starts at once; the stranger lives on.

    The first keeper is killed in the middle of making the data folder, which the second makes anew.
    """
    killed = _client(new_home)
    lock = new_home.run / "postgres.lock"
    folder = new_home.path.parent
    until(lambda: any(folder.glob("**/data.new-*/PG_VERSION")), within=60)
    killed.kill()
    killed.communicate()
    owner = locks.owner(lock)
    assert owner is not None
    os.kill(owner, signal.SIGKILL)
    with running(new_home):
        keeper, postgres = pids(new_home)
    for pid in (keeper, postgres):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(postgres), within=10)
    noted = place._noted(new_home)
    assert noted is not None
    data = noted.folder_in(new_home) / "data"
    account = owner_of(data)
    with subprocess.Popen(["sleep", "600"], **account.popen_options()) as stranger:
        pid_file = data / "postmaster.pid"
        pid_file.write_text(f"{stranger.pid}\n" + pid_file.read_text().partition("\n")[2])

        with running(new_home) as url:
            answers = _answers(url)
        lives = stranger.poll() is None
        stranger.kill()

    assert answers is True
    assert lives is True


def test_a_postmaster_without_a_keeper_is_ended_before_the_next(postgres_home: SharedHome) -> None:
    """A postmaster that doesn't hear of its keeper's death, being stopped, is gone before another starts."""
    home, url = postgres_home
    before = keeper, postgres = pids(home)

    os.kill(postgres, signal.SIGSTOP)
    os.kill(keeper, signal.SIGKILL)
    # the orderly end that it is given needs it to run
    until(lambda: locks.owner(home.run / "postgres.lock") not in {None, keeper}, within=30)
    os.kill(postgres, signal.SIGCONT)
    after = told_anew(home, before)

    assert not alive(postgres)
    assert _postmasters(home) == [after[1]]
    assert _answers(url)


def test_waiting_for_a_notification_in_vain_does_no_harm(postgres_home: SharedHome) -> None:
    """Silence is what a listener expects: its time-out ends the wait and leaves the connection alone."""
    _home, url = postgres_home
    database = Database(url)
    raw = database._engine.raw_connection()
    connection: Any = raw.dbapi_connection
    connection.autocommit = True
    connection.execute("LISTEN something")

    heard = list(connection.notifies(timeout=0.05))
    _ask(url, "NOTIFY something")
    heard_later = list(connection.notifies(timeout=10.0, stop_after=1))
    raw.invalidate()
    database.close()

    assert heard == []
    assert [each.channel for each in heard_later] == ["something"]
