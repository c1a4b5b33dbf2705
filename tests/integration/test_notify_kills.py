"""A sender that is killed around a try: the receiver sees one id, and the record ends as done, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api_world import complete
from autocode.jobs.ledger import delivery_desk
from autocode.jobs.ledger import subscriptions as subs
from autocode.jobs.ledger.database import Database, sqlite_url
from autocode.jobs.ledger.subscriptions import NewSubscription, Watcher
from autocode.jobs.notification_resource import Channel, Delivery
from ledger_world import started
from notify_world import WITHIN, Receiver, receiving, until, verified

DRIVER = Path(__file__).parents[1] / "notify_sender.py"
ADA = Watcher("ada")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Give a migrated ledger in a file."""
    found = Database(sqlite_url(tmp_path / "ledger.db"))
    found.migrate()
    yield found
    found.close()


@contextmanager
def sending(tmp_path: Path, point: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a sender, armed to die at *point*, until the block ends."""
    environ = {**os.environ, "AUTOCODE_CRASH": point or ""}
    arguments = [sqlite_url(tmp_path / "ledger.db"), "127.0.0.1", str(tmp_path / "crash")]
    process = subprocess.Popen([sys.executable, str(DRIVER), *arguments], env=environ)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(WITHIN)


def ended(database: Database, receiver: Receiver) -> str:
    """Subscribe *receiver*, and let a job end; return what signs the webhook."""
    made = subs.subscribe(database, NewSubscription(Channel.WEBHOOK, receiver.url), ADA)
    complete(database, started(database))
    assert made.secret is not None
    return made.secret


def only(database: Database) -> Delivery:
    """Return the one delivery."""
    [found] = delivery_desk.page(database, ADA).deliveries
    return found


@pytest.mark.parametrize(("point", "requests"), [("notify.after-intent", 1), ("notify.after-send", 2)])
def test_a_sender_killed_around_a_try(database: Database, tmp_path: Path, point: str, requests: int) -> None:
    """Killed before or after it sends, the next leader sends under the same id: at least once, one key."""
    with receiving() as receiver:
        secret = ended(database, receiver)
        with sending(tmp_path, point) as first:
            assert first.wait(WITHIN) == -signal.SIGKILL
        between = only(database)

        with sending(tmp_path, point):
            until(lambda: only(database).state == "done", told=lambda: only(database))

        got = list(receiver.got)
    assert (between.state, between.attempts) == ("sending", 1)
    after = only(database)
    assert (after.state, after.attempts, after.delivery_id) == ("done", 2, between.delivery_id)
    assert len(got) == requests
    assert {each.id for each in got} == {between.delivery_id}
    assert len({each.body for each in got}) == 1
    for each in got:
        now = int(each.headers["webhook-timestamp"])
        assert verified(secret, each.headers, each.body, now=now)


def test_a_stopped_sender_that_comes_back_records_nothing(database: Database, tmp_path: Path) -> None:
    """A sender that is frozen after its try, and wakes when another leads, leaves the record as it is."""
    with receiving() as receiver:
        ended(database, receiver)
        with sending(tmp_path, "notify.after-send=pause") as frozen:
            until(lambda: receiver.got, told=lambda: only(database))
            os.waitpid(frozen.pid, os.WUNTRACED)
            with sending(tmp_path):
                until(lambda: only(database).state == "done", told=lambda: only(database))
            recorded = only(database)
            frozen.send_signal(signal.SIGCONT)
            frozen.terminate()
            assert frozen.wait(WITHIN) == 0

    assert only(database) == recorded
    assert recorded.attempts == 2
