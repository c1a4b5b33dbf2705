"""The private Prefect server: found, shared, started once, started again, and gone when nobody needs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from autocode.jobs import locks
from autocode.jobs.engine import oneshot, prefect_schema, server
from autocode.jobs.engine.environment import child_environment, note_schema
from autocode.jobs.engine.server import Address, private_server, server_log
from autocode.jobs.engine.system import open_system
from autocode.jobs.errors import ServerUnavailable
from autocode.jobs.ledger import queries
from autocode.jobs.settings import Home
from autocode.jobs.testing import scenarios
from engine_world import SOURCES, Engine, until

pytest_plugins = ["fixtures_engine", "fixtures_postgres"]
# Prefect leaves the socket of its event client to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

CLIENT = """
import sys
from pathlib import Path
from autocode.jobs.engine.server import private_server
from autocode.jobs.settings import Home

with private_server(Home(Path(sys.argv[1]))) as address:
    print(address.pid, address.url, flush=True)
    sys.stdin.read()
"""


def client(home: Home) -> subprocess.Popen[str]:
    """Start a process that needs the server until its stdin is closed."""
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(home.path)],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait until a client has its server; return the server's process id and address."""
    assert process.stdout is not None
    pid, url = process.stdout.readline().split()
    return int(pid), url


def leave(process: subprocess.Popen[str]) -> None:
    """Let a client leave in good order."""
    process.communicate("", timeout=60)


def answers(address: Address) -> int:
    """Ask for something that needs the password; return the HTTP status."""
    user, _, password = address.auth.partition(":")
    return httpx.get(f"{address.url}/admin/version", auth=(user, password), timeout=10).status_code


def test_a_server_asks_for_a_password_and_its_files_are_private(engine: Engine) -> None:
    """Only who can read the home can talk to its server, which listens on the loopback interface."""
    with private_server(engine.home) as address:
        stranger = httpx.get(f"{address.url}/admin/version", timeout=10)
        known = answers(address)
        mode = (engine.home.run / "server.json").stat().st_mode & 0o777

    assert address.url.startswith("http://127.0.0.1:")
    assert (stranger.status_code, known) == (401, 200)
    assert mode == 0o600


def test_clients_that_come_at_once_share_one_server_that_outlives_the_first(engine: Engine) -> None:
    """Two processes start one server; it stays while one of them needs it, and ends after the last."""
    pair = [client(engine.home), client(engine.home)]
    told = [said(process) for process in pair]

    leave(pair[0])
    with private_server(engine.home) as address:
        still = (address.pid, address.url)
    leave(pair[1])
    began = time.monotonic()
    until(lambda: not engine.server_lives(), within=20)

    assert told[0] == told[1] == still
    assert time.monotonic() - began < 15
    assert not (engine.home.run / "server.json").exists()


def test_a_client_that_is_killed_keeps_no_server_alive(engine: Engine) -> None:
    """The kernel drops the lock of a killed client, and the server ends."""
    only = client(engine.home)
    said(only)

    only.kill()
    only.communicate()

    until(lambda: not engine.server_lives(), within=20)


def test_a_client_that_is_killed_while_the_server_starts_leaves_none(engine: Engine) -> None:
    """A server whose only client died during its start ends by itself."""
    only = client(engine.home)
    until(engine.server_lives, within=60)

    only.kill()
    only.communicate()

    until(lambda: not engine.server_lives(), within=30)


def test_clients_that_come_and_go_always_get_a_server_that_answers(engine: Engine) -> None:
    """A client that comes while the server is ending waits and starts the next; it never gets a dying one."""
    statuses: list[int] = []

    for pause in (0.0, 1.9, 2.2):
        threading.Event().wait(pause)
        with private_server(engine.home) as address:
            statuses.append(answers(address))

    assert statuses == [200] * 3


def test_a_leftover_address_fools_nobody(engine: Engine) -> None:
    """A server.json without a living server is not asked, and a new server is started."""
    stale = {"url": "http://127.0.0.1:9/api", "auth": "autocode:old", "pid": os.getpid()}
    (engine.home.run / "server.json").write_text(json.dumps(stale))

    with private_server(engine.home) as address:
        status = answers(address)

    assert address.pid != os.getpid()
    assert status == 200


@pytest.mark.parametrize("text", ["{", '{"url": 5, "auth": null, "pid": "x"}'])
def test_a_broken_address_file_is_replaced(engine: Engine, text: str) -> None:
    """Whatever server.json holds, a server is started."""
    (engine.home.run / "server.json").write_text(text)

    with private_server(engine.home) as address:
        status = answers(address)

    assert status == 200


def test_a_killed_server_is_started_again_at_its_address(engine: Engine) -> None:
    """While a client needs it, a server that dies comes back at the same port with the same password."""
    with private_server(engine.home) as address:
        os.kill(address.pid, signal.SIGKILL)

        def is_back() -> bool:
            try:
                return answers(address) == 200
            except httpx.HTTPError:
                return False

        until(lambda: not engine.server_lives(), within=10)
        until(is_back, within=60)
        recorded = json.loads((engine.home.run / "server.json").read_text("utf-8"))

    assert recorded["pid"] != address.pid
    assert recorded["url"] == address.url


def test_a_job_survives_a_server_that_stays_away(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a server the command ends with an error that names its log, and the job can be resumed."""
    engine.accept(scenarios.NOOP, "away")
    monkeypatch.setattr(oneshot, "_PATIENCE_SECONDS", 1.0)

    def refuse(*_: object) -> Address:
        raise ServerUnavailable("no server today")

    with private_server(engine.home) as address:
        with monkeypatch.context() as patch:
            patch.setattr(server, "_start", refuse)
            os.kill(address.pid, signal.SIGKILL)
            until(lambda: not engine.server_lives(), within=10)
            with pytest.raises(ServerUnavailable, match=re.escape(str(server_log(engine.home)))):
                oneshot.run_to_end(engine.system, "away", address, lambda _: None)
        between = queries.get(engine.system.db, "away")
        until(engine.server_lives, within=30)
    job, _ = engine.run(scenarios.NOOP, "away")

    assert between.status == "queued"
    assert job.status == "complete"


def test_a_server_that_cannot_start_is_told_with_its_log(engine: Engine) -> None:
    """A damaged Prefect database ends the start with an error that names the log and the way out."""
    (engine.home.prefect / "prefect.db").write_bytes(b"this is no database" * 1000)

    with pytest.raises(ServerUnavailable) as caught, private_server(engine.home):
        pass

    assert str(server_log(engine.home)) in caught.value.detail
    assert str(engine.home.prefect) in caught.value.hint
    assert "database" in server_log(engine.home).read_text()


def test_the_log_is_set_aside_when_it_has_grown(engine: Engine) -> None:
    """At each start a log of more than a mebibyte makes room; one older log is kept."""
    log = server_log(engine.home)
    log.write_bytes(b"x" * (1 << 20) + b"y")

    with private_server(engine.home):
        pass

    assert log.stat().st_size < 1 << 20
    [older] = [path for path in engine.home.logs.iterdir() if path != log]
    assert older.stat().st_size == (1 << 20) + 1


def test_migrations_are_skipped_only_for_a_database_that_this_prefect_left(engine: Engine) -> None:
    """The note counts while the database itself agrees: replaced, emptied or removed, it is migrated."""
    name = "PREFECT_API_DATABASE_MIGRATE_ON_START"
    database = engine.home.prefect / "prefect.db"
    prefect_schema.lay(engine.home.prefect)
    note_schema(engine.home)
    current = child_environment(engine.home)[name]

    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'older'")
    older = child_environment(engine.home)[name]
    database.unlink()
    removed = child_environment(engine.home)[name]

    assert (current, older, removed) == ("false", "true", "true")


def test_a_home_may_have_any_name(tmp_path: Path, own_sources: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spaces, percent signs, hashes and question marks in the home's path reach no URL unescaped."""
    name = "what?mode=memory 100%25 #1"
    home = Home(tmp_path / name)
    home.prepare()
    monkeypatch.setenv("AUTOCODE_HOME", str(home.path))
    with open_system(home) as system:
        engine = Engine(home, system, tmp_path)
        running = engine.start(scenarios.NOOP, "anywhere")

        ended = running.ends(within=150)

        job = queries.get(system.db, "anywhere")
        engine.nothing_left()
    assert ended == (0, "")
    assert job.status == "complete"
    assert home.ledger.is_file()
    assert (home.prefect / "prefect.db").is_file()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "witness") == [name]


def test_a_lock_is_free_again_however_its_holder_ends(tmp_path: Path) -> None:
    """Locks say who lives: held in the block, free after it, and free where there is no file."""
    path = tmp_path / "lock"

    missing = locks.is_held(path)
    with locks.exclusive(path, within=1.0):
        inside = locks.is_held(path)
        with pytest.raises(TimeoutError), locks.shared(path, within=0.1):
            pass
    after = locks.is_held(path)
    with locks.shared(path, within=1.0), locks.shared(path, within=1.0):
        shared = locks.is_held(path)

    assert (missing, inside, after, shared) == (False, True, False, False)


def test_a_server_whose_home_is_removed_ends(tmp_path: Path, own_sources: None) -> None:
    """Nobody can reach it any more, so it doesn't stay behind."""
    home = Home(tmp_path / "home")
    home.prepare()
    with private_server(home) as address:
        process = Path(f"/proc/{address.pid}")

    shutil.rmtree(home.path)

    until(lambda: not process.exists(), within=20)


def test_prefects_tables_lie_beside_a_ledger_that_a_url_names(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a database by URL the server keeps its tables there, in a schema apart from the ledger's."""
    monkeypatch.setenv("AUTOCODE_DATABASE_URL", postgres_url)
    home = Home(tmp_path / "home")
    home.prepare()
    tables = sa.text("SELECT schemaname FROM pg_tables WHERE tablename = 'events' ORDER BY 1")

    with open_system(home) as system, private_server(home) as address:
        answer = httpx.get(f"{address.url}/health", trust_env=False)
        with system.db.read() as tx:
            found = tx.execute(tables).scalars().all()

    assert answer.status_code == httpx.codes.OK
    assert found == ["prefect", "public"]
    assert not (home.prefect / "prefect.db").exists()
