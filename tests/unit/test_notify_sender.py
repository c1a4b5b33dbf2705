"""The sender over a real ledger and real receivers: who waits for whom, and what is recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from api_world import complete
from autocode.jobs.clock import SystemClock
from autocode.jobs.errors import LedgerUnavailable
from autocode.jobs.ledger import deliveries, delivery_desk
from autocode.jobs.ledger import subscriptions as subs
from autocode.jobs.ledger.database import Database, sqlite_url
from autocode.jobs.ledger.deliveries import Message, Verdict
from autocode.jobs.ledger.delivery_desk import Chosen
from autocode.jobs.ledger.leaders import Leadership, assert_leading
from autocode.jobs.ledger.subscriptions import NewSubscription, Watcher
from autocode.jobs.notification_resource import Channel, Delivery, Ending
from autocode.jobs.notifications.address import Allowed
from autocode.jobs.notifications.sender import Sender, channels
from autocode.jobs.notifications.settings import MailServer, NotificationSettings
from ledger_world import started
from notify_world import WITHIN, mailing, receiving, until

ADA = Watcher("ada")
HERE = NotificationSettings(Allowed.of("127.0.0.1"))


class MovedClock(SystemClock):
    """The machine's clock, and what the test adds to it."""

    def __init__(self) -> None:
        self.shift = timedelta()

    def now(self) -> datetime:
        """Return the moved time."""
        return super().now() + self.shift


@pytest.fixture
def clock() -> MovedClock:
    """Give the clock of the ledger."""
    return MovedClock()


@pytest.fixture
def database(tmp_path: Path, clock: MovedClock) -> Iterator[Database]:
    """Give a migrated ledger in a file."""
    found = Database(sqlite_url(tmp_path / "ledger.db"), clock=clock)
    found.migrate()
    yield found
    found.close()


@contextmanager
def sending(
    database: Database, settings: NotificationSettings = HERE, way: Callable[[Message], Verdict] | None = None
) -> Iterator[Sender]:
    """Run a sender in threads of this process until the block ends."""
    ways = channels(settings)
    if way is not None:
        ways[Channel.WEBHOOK] = _Way(way)
    sender = Sender(database, ways)
    sender.start()
    try:
        yield sender
    finally:
        sender.stop(WITHIN)


class _Way:
    def __init__(self, send: Callable[[Message], Verdict]) -> None:
        self.send = send


def subscribe(database: Database, target: str, channel: Channel = Channel.WEBHOOK) -> str:
    """Subscribe to all ends; return the id."""
    wish = NewSubscription(channel, target, events=tuple(Ending))
    return subs.subscribe(database, wish, ADA).subscription_id


def end(database: Database, job_id: str = "job") -> None:
    """Let a job end."""
    complete(database, started(database, job_id))


def states(database: Database, subscription_id: str | None = None) -> list[str]:
    """Return the states of the deliveries, oldest first."""
    found = delivery_desk.page(database, ADA, Chosen(subscription_id=subscription_id), size=500)
    return [each.state.value for each in reversed(found.deliveries)]


def only(database: Database) -> Delivery:
    """Return the one delivery."""
    [found] = delivery_desk.page(database, ADA).deliveries
    return found


def test_what_ends_is_told_by_every_way(database: Database) -> None:
    """A webhook and an e-mail about the same end, each once."""
    with receiving() as receiver, mailing() as box:
        subscribe(database, receiver.url)
        subscribe(database, "ada@example.org", Channel.EMAIL)
        server = MailServer("127.0.0.1", box.port, "none", "jobs@example.com")
        with sending(database, NotificationSettings(HERE.allowed, server)) as sender:
            end(database)
            sender.wake()
            until(lambda: states(database) == ["done", "done"], told=lambda: states(database))

    assert (len(receiver.got), len(box.letters)) == (1, 1)


def test_a_slow_receiver_holds_up_nobody_else(database: Database) -> None:
    """While one receiver takes its time, another gets everything, and the slow one has one try at a time."""
    release = threading.Event()

    def slow(handler: object) -> None:
        release.wait(WITHIN)
        handler.send_response(204)  # type: ignore[attr-defined]
        handler.send_header("Content-Length", "0")  # type: ignore[attr-defined]
        handler.end_headers()  # type: ignore[attr-defined]

    with receiving(slow) as lame, receiving() as quick:
        first, second = subscribe(database, lame.url), subscribe(database, quick.url)
        for number in range(5):
            end(database, f"job-{number}")
        with sending(database):
            until(lambda: states(database, second) == ["done"] * 5, told=lambda: states(database))
            meanwhile = sorted(states(database, first))
            begun = len(lame.got)
            release.set()
            until(lambda: states(database, first) == ["done"] * 5, told=lambda: states(database))

    assert meanwhile == ["planned"] * 4 + ["sending"]
    assert begun == 1
    assert len({got.id for got in lame.got}) == len(lame.got) == 5


def test_many_subscriptions_at_one_slow_host_leave_room(database: Database) -> None:
    """A host that is slow under many names of subscriptions doesn't use up all that can run at once."""
    release = threading.Event()
    busy: list[str] = []

    def way(message: Message) -> Verdict:
        if "slow.example" in message.target:
            busy.append(message.target)
            release.wait(WITHIN)
        return Verdict(done=True)

    for number in range(9):
        subscribe(database, f"https://slow.example/{number}")
    other = subscribe(database, "https://quick.example/")
    end(database)
    with sending(database, way=way):
        until(lambda: states(database, other) == ["done"], told=lambda: states(database))
        at_once = len(busy)
        release.set()
        until(lambda: states(database) == ["done"] * 10, told=lambda: states(database))

    assert at_once <= 4


def test_a_broken_receiver_gets_it_when_it_is_mended(database: Database, clock: MovedClock) -> None:
    """Each try comes after a longer pause, under one id, until the receiver takes it."""
    with receiving(500, 500, 503, 204) as receiver:
        subscribe(database, receiver.url)
        end(database)
        with sending(database) as sender:
            for tries in range(1, 5):
                until(
                    lambda tries=tries: len(receiver.got) == tries and only(database).state != "sending",  # type: ignore[misc]
                    told=lambda: only(database),
                )
                clock.shift += timedelta(hours=1)
                sender.wake()
            until(lambda: only(database).state == "done", told=lambda: only(database))

    assert len({got.id for got in receiver.got}) == 1
    assert (only(database).attempts, only(database).last_error) == (4, None)


def test_a_receiver_that_is_gone_is_left_alone(database: Database) -> None:
    """410 disables the subscription, and nothing is sent there any more."""
    with receiving(410) as receiver:
        subscription = subscribe(database, receiver.url)
        end(database, "a")
        with sending(database) as sender:
            until(lambda: states(database) == ["dead"], told=lambda: states(database))
            end(database, "b")
            sender.wake()
            test = subscribe(database, f"{receiver.url}/2")
            end(database, "c")
            sender.wake()
            until(lambda: states(database, test) == ["dead"], told=lambda: states(database))

    assert states(database, subscription) == ["dead"]
    assert [got.path for got in receiver.got] == ["/hook", "/hook/2"]
    [disabled, _] = subs.listed(database, ADA)
    assert disabled.disabled_why == "answered 410: the receiver is gone"


def test_a_database_that_is_away_costs_no_second_try(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a receiver took is recorded once the ledger is back, and not sent again meanwhile."""
    settle = deliveries.settle
    refused: list[int] = []

    def away(*arguments: object) -> bool:
        if len(refused) < 3:
            refused.append(1)
            raise LedgerUnavailable("It is away.")
        return settle(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(deliveries, "settle", away)
    with receiving() as receiver:
        subscribe(database, receiver.url)
        end(database)
        with sending(database):
            until(lambda: states(database) == ["done"], told=lambda: states(database))

    assert (len(refused), len(receiver.got), only(database).attempts) == (3, 1, 1)


def test_a_way_that_breaks_doesnt_stop_the_sender(database: Database, clock: MovedClock) -> None:
    """An error that nobody expected leaves its delivery for later, and the others go on."""

    def way(message: Message) -> Verdict:
        if "bad" in message.target and message.attempt == 1:
            raise ZeroDivisionError
        return Verdict(done=True)

    bad, good = subscribe(database, "https://bad.example/"), subscribe(database, "https://good.example/")
    end(database)
    with sending(database, way=way) as sender:
        until(lambda: states(database, good) == ["done"], told=lambda: states(database))
        until(lambda: states(database, bad) == ["sending"], told=lambda: states(database))
        clock.shift += timedelta(minutes=2)
        sender.wake()
        until(lambda: states(database, bad) == ["done"], told=lambda: states(database))


def test_a_sender_that_leads_no_more_ends(database: Database) -> None:
    """Once another leads, the old sender begins nothing, and records nothing of what it had begun."""
    term = Leadership(database, "reconcile", "old").lead_or_wait()
    assert term is not None
    guarded = database.guarded(lambda tx: assert_leading(tx, "reconcile", term))
    begun, go_on = threading.Event(), threading.Event()

    def way(_message: Message) -> Verdict:
        begun.set()
        go_on.wait(WITHIN)
        return Verdict(done=True)

    subscribe(database, "https://one.example/")
    end(database)
    with sending(guarded, way=way):
        assert begun.wait(WITHIN)
        Leadership(database, "reconcile", "new", gone=lambda _: True).lead_or_wait()
        go_on.set()

    assert (only(database).state, only(database).attempts) == ("sending", 1)


def test_the_end_waits_a_moment_for_what_is_under_way(database: Database) -> None:
    """A sender that is told to stop lets a try end that ends soon, and doesn't wait for one that doesn't."""
    begun, go_on = threading.Event(), threading.Event()

    def way(_message: Message) -> Verdict:
        begun.set()
        go_on.wait(WITHIN)
        return Verdict(done=True)

    subscribe(database, "https://one.example/")
    end(database)
    with sending(database, way=way) as sender:
        assert begun.wait(WITHIN)
        sender.stop(0.05)
        between = only(database).state
        go_on.set()

    assert between == "sending"
    assert only(database).state == "done"
