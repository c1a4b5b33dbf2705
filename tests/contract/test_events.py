"""``WS /v1/events`` over each database: nothing is missed, nothing comes twice, and nobody sees too much."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus

from api_served import until
from api_world import complete, kill
from autocode.jobs.client.events import Event, Reset, Stream
from autocode.jobs.ledger import access, attempts, feed, queries, schema
from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.feed import Bounds, Scope
from autocode.jobs.projection import Outcome
from autocode.jobs.request_errors import NotAllowed, ServiceUnavailable, TokenInvalid
from events_world import Port, number, on_port, tell
from ledger_world import begin, commit, in_threads, look, problem, started


@pytest.fixture
def port(database: Database, tmp_path: Path) -> Iterator[Port]:
    """Give an application over each database on a port."""
    with on_port(database, tmp_path) as served:
        yield served


def live(database: Database, job_id: str) -> None:
    """Let a job begin, leave a checkpoint, fail, be tried again and complete; each is told."""
    tell(database, job_id)
    attempt = begin(database, job_id)
    look(database, job_id)
    commit(database, attempt, f"text of {job_id}")
    look(database, job_id)
    attempts.end(database, job_id, 1, Outcome.FAILED, error=problem())
    look(database, job_id)
    complete(database, begin(database, job_id, 2))


def stored(database: Database) -> list[tuple[int, str, str, int]]:
    """Return what was ever told: cursor, type, job and revision."""
    found = feed.stretch(database, 0, limit=100_000).events
    return [(each.cursor, each.type, each.job_id, each.data["rev"]) for each in found]


def seen(messages: list[dict[str, Any]]) -> list[tuple[int, str, str, int]]:
    """Return what messages tell, in the same form."""
    return [(number(each["id"]), each["type"], each["subject"], each["data"]["rev"]) for each in messages]


def test_an_event_is_what_the_contract_says(port: Port) -> None:
    """An event has the members of CloudEvents, and its data is the resource, without its history."""
    with port.socket() as follower:
        first = follower.next()
        tell(port.db, session_id="s-1")
        event = follower.event()

    epoch = port.service.epoch
    job = queries.get(port.db, "job").to_json()
    assert first == {"type": "resumed", "cursor": f"{epoch}:0"}
    assert event == {
        "specversion": "1.0",
        "id": f"{epoch}:1",
        "source": "/v1/jobs",
        "type": "job.queued",
        "subject": "job",
        "time": job["times"]["enqueued_at"],
        "datacontenttype": "application/json",
        "data": {**job, "history": []},
    }


def test_everything_is_told_once_and_in_order(port: Port) -> None:
    """Of jobs that live at once every event comes once, in the order of the cursors."""
    start = port.cursor()
    with port.socket(f"?after={start}") as follower:
        in_threads(4, lambda n: live(port.db, f"job-{n}"))
        told = seen(follower.upto(port.cursor()))

    assert told == stored(port.db)
    assert [cursor for cursor, *_ in told] == list(range(1, len(told) + 1))


def test_a_list_and_what_follows_it_are_the_state(port: Port) -> None:
    """Who read a list, was cut off while jobs ended, and comes back, ends with what is persisted."""
    for job_id in ("dies", "ends", "runs"):
        tell(port.db, job_id)
    with port.client() as client:
        page = client.page({})
    shown = {job.job_id: job.to_json() for job in page.jobs}
    cursor = page.event_cursor
    with port.socket(f"?after={cursor}") as follower:
        begin(port.db, "runs")
        look(port.db, "runs")
        first = follower.event()
        follower.cut()
    kill(port.db, "dies")
    complete(port.db, begin(port.db, "ends"))
    live(port.db, "new")
    with port.socket(f"?after={first['id']}") as follower:
        missed = follower.upto(port.cursor())
        commit(port.db, started(port.db, "last"), "text")
        look(port.db, "last")
        after = follower.upto(port.cursor())

    for each in (first, *missed, *after):
        shown[each["subject"]] = each["data"]
    persisted = {job.job_id: {**job.to_json(), "history": []} for job in queries.list_jobs(port.db)}
    assert shown == persisted
    assert {job["status"] for job in shown.values()} == {"dead", "complete", "running"}
    numbers = [number(each["id"]) for each in (first, *missed, *after)]
    assert numbers == list(range(number(cursor) + 1, number(port.cursor()) + 1))


def test_reading_after_an_event_is_never_older(port: Port) -> None:
    """The job that is read on an event has its revision, or a later one."""
    older = []
    with port.socket() as follower, port.client() as client:
        follower.next()
        live(port.db, "job")
        end = port.cursor()
        while True:
            event = follower.event()
            older.append(client.get("job").rev < event["data"]["rev"])
            if event["id"] == end:
                break

    assert len(older) >= 5
    assert not any(older)


@pytest.mark.parametrize("cursor", ["", "nonsense", "{epoch}", "{epoch}:", "{epoch}:-1", "{epoch}:007"])
def test_a_malformed_cursor_begins_anew(port: Port, cursor: str) -> None:
    """What is no cursor is answered with a reset, and what happens after it follows."""
    tell(port.db, "before")
    with port.socket(f"?after={cursor.format(epoch=port.service.epoch)}") as follower:
        first = follower.next()
        tell(port.db, "after")

        assert first == {"type": "reset", "cursor": f"{port.service.epoch}:1"}
        assert follower.event()["subject"] == "after"


def test_a_cursor_of_another_time_begins_anew(port: Port) -> None:
    """A cursor of another ledger, of the future, or older than what is kept, is answered with a reset."""
    for job_id in ("one", "two", "three"):
        tell(port.db, job_id)
    with port.db.write() as tx:
        tx.execute(sa.delete(schema.events).where(schema.events.c.cursor == 1))
    epoch = port.service.epoch
    firsts = []
    for cursor in ("0" * 12 + ":2", f"{epoch}:4", f"{epoch}:999999999999999999", f"{epoch}:0", f"{epoch}:1"):
        with port.socket(f"?after={cursor}") as follower:
            firsts.append(follower.next())

    reset = {"type": "reset", "cursor": f"{epoch}:3"}
    assert firsts == [reset, reset, reset, reset, {"type": "resumed", "cursor": f"{epoch}:1"}]


def test_a_scope_is_kept(port: Port) -> None:
    """A token for some sessions, a session and a job each narrow what comes, live and from before.

    A job that reads a further session than those of a token, or nobody knows which, never comes to it.
    """
    token = port.new_token(Role.VIEWER, sessions=["s-1", "s-2"])
    askers = {
        "token": ("", token),
        "session": ("&session_id=s-3", ""),
        "both": ("&session_id=s-2", token),
        "job": ("&job_id=a-s-1", ""),
    }
    sessions = ["s-1", "s-2", "s-3", None]
    for session in sessions:
        tell(port.db, f"a-{session}", session_id=session, reads=frozenset())
    tell(port.db, "a-more", session_id="s-1", reads=frozenset({"s-3"}))
    tell(port.db, "a-all", session_id="s-1")
    followers = {
        name: port.socket(f"?after={port.service.epoch}:0{query}", token=own)
        for name, (query, own) in askers.items()
    }
    for session in sessions:
        tell(port.db, f"b-{session}", session_id=session, reads=frozenset())
    tell(port.db, "b-both", session_id="s-1", reads=frozenset({"s-2"}))
    tell(port.db, "b-more", session_id="s-2", reads=frozenset({"s-3"}))
    end = port.cursor()
    told = {name: [each["subject"] for each in one.upto(end)] for name, one in followers.items()}
    for each in followers.values():
        each.close()

    assert told == {
        "token": ["a-s-1", "a-s-2", "b-s-1", "b-s-2", "b-both"],
        "session": ["a-s-3", "b-s-3"],
        "both": ["a-s-2", "b-s-2"],
        "job": ["a-s-1"],
    }


def test_a_ping_moves_the_cursor_of_who_sees_little(port: Port) -> None:
    """Somebody of whose jobs nothing happens still gets a cursor that isn't left behind."""
    token = port.new_token(Role.VIEWER, sessions=["quiet"])
    with port.socket(token=token) as follower:
        follower.next()
        for job_id in ("one", "two"):
            tell(port.db, job_id)

        assert follower.upto(port.cursor()) == []


def test_a_payload_is_not_told(port: Port) -> None:
    """No event of a job has anything of its payload in it."""
    with port.socket() as follower:
        follower.next()
        tell(port.db, payload={"size": 1, "secret": "hunter2"})
        kill(port.db)
        told = follower.upto(port.cursor())

    assert len(told) >= 4
    assert "hunter2" not in json.dumps(told)
    assert {tuple(sorted(each["data"])) for each in told} == {
        tuple(sorted(queries.get(port.db, "job").to_json()))
    }


def test_nobody_is_let_in_without_a_token(port: Port) -> None:
    """No token, a bad one, one that ended, and one in the address are closed with 4401."""
    expired = port.new_token(lifetime=timedelta(microseconds=1))
    closed = [
        port.socket(query, token=token).closed()[0]
        for query, token in [
            ("", None),
            ("", "nonsense"),
            ("", expired),
            (f"?token={port.token}", None),
            (f"?access_token={port.token}", ""),
            (f"?after={port.token}", ""),
        ]
    ]

    assert closed == [4401] * 6


def test_a_cookie_needs_a_page_of_ours(port: Port) -> None:
    """A browser's cookie lets a page of the service in, and nobody who doesn't say where they come from."""
    cookie = {"Cookie": f"{port.service.cookie}={port.token}"}
    with port.socket(token=None, headers=cookie | {"Origin": port.url}) as page:
        assert page.next()["type"] == "resumed"

    assert port.socket(token=None, headers=cookie).closed()[0] == 4403


@pytest.mark.parametrize("header", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_a_foreign_page_gets_no_socket(port: Port, header: dict[str, str]) -> None:
    """A page of another origin is refused before a socket is open, whatever it brings along."""
    with pytest.raises(InvalidStatus) as refused:
        port.socket(headers=header)

    assert refused.value.response.status_code == 403


def test_what_one_may_not_see_does_not_exist(port: Port) -> None:
    """A job of others, one that doesn't exist and one of another session are closed alike."""
    tell(port.db, "theirs", session_id="s-1")
    token = port.new_token(Role.VIEWER, sessions=["s-2"])
    queries_ = ["job_id=theirs", "job_id=none", "job_id=%00", "session_id=s-1", "session_id=none"]
    closed = {port.socket(f"?{query}", token=token).closed() for query in queries_}
    closed.add(port.socket("?job_id=none").closed())
    closed.add(port.socket("?job_id=theirs&session_id=s-9").closed())

    assert len(closed) == 1
    assert closed.pop()[0] == 4403


def test_an_unknown_parameter_is_refused(port: Port) -> None:
    """A parameter that doesn't exist, or that comes twice, isn't passed over."""
    codes = [port.socket(query).closed()[0] for query in ("?job=x", "?job_id=a&job_id=b")]

    assert codes == [1008, 1008]


@pytest.mark.parametrize("end", ["expired", "revoked"])
def test_a_token_that_ends_closes_its_socket(port: Port, end: str) -> None:
    """A socket is closed within seconds after its token expired or was revoked; others stay."""
    lifetime = timedelta(minutes=5) if end == "expired" else None
    token = port.new_token(Role.VIEWER, lifetime=lifetime)
    with port.socket() as other:
        one = port.socket(token=token)
        assert one.next()["type"] == "resumed"
        if end == "expired":
            port.db.clock._now += timedelta(minutes=5)  # type: ignore[attr-defined]  # the clock of the tests
        else:
            access.revoke(port.db, token.split("_")[1])
        assert one.closed()[0] == 4401

        tell(port.db)
        assert other.event()["subject"] == "job"


def test_too_many_are_sent_away(database: Database, tmp_path: Path) -> None:
    """Who comes when all places are taken is closed with 1013, and gets in when somebody left."""
    with on_port(database, tmp_path, sockets=2) as port:
        first, second = port.socket(), port.socket()
        assert [each.next()["type"] for each in (first, second)] == ["resumed", "resumed"]
        assert port.socket().closed()[0] == 1013

        first.close()
        until(lambda: port.service.hub.following == 1)
        with port.socket() as third:
            assert third.next()["type"] == "resumed"
        second.close()


def test_an_end_of_the_process_is_told(database: Database, tmp_path: Path) -> None:
    """When the service ends its sockets are closed with 1012."""
    with on_port(database, tmp_path) as port:
        follower = port.socket()
        follower.next()

    assert follower.closed()[0] == 1012


def test_who_is_far_behind_is_told_everything(database: Database, tmp_path: Path) -> None:
    """Somebody whose cursor is older than what the process keeps gets every event from the ledger."""
    with on_port(database, tmp_path, kept=5) as port:
        for n in range(120):
            tell(database, f"job-{n}")
        with port.socket(f"?after={port.service.epoch}:0") as early:
            told = early.upto(port.cursor())
            tell(database, "last")
            told.append(early.event())

        assert seen(told) == stored(database)


def test_the_client_follows_over_restarts(database: Database, tmp_path: Path) -> None:
    """The client's stream goes on over an end of the service, and has every event once."""
    followed: list[Event | Reset] = []
    with on_port(database, tmp_path) as port:
        stream = port.client(patience=60.0).events(port.cursor())
        tell(database, "one")
        followed.append(next(stream))
        number_ = port.number
    live(database, "two")
    with on_port(database, tmp_path, port=number_):
        expected = stored(database)
        followed += itertools.islice(stream, len(expected) - 1)
        stream.close()  # type: ignore[attr-defined]  # a generator

    events = [each for each in followed if isinstance(each, Event)]
    assert [(number(e.cursor), e.type, e.job_id, e.job.rev) for e in events] == expected


def test_the_client_says_why_it_gives_up(port: Port) -> None:
    """A bad token, a job that isn't there and a service that is away are errors of the tree."""
    with pytest.raises(TokenInvalid):
        next(port.client("nonsense").events())
    with pytest.raises(NotAllowed):
        next(port.client().events(job_id="none"))
    with pytest.raises(ServiceUnavailable):
        next(Stream("http://127.0.0.1:9", port.token, patience=0.3).__iter__())


def test_an_asynchronous_stream_is_the_same(port: Port) -> None:
    """The asynchronous iterator gives a reset and what follows it, and can be left."""

    async def follow() -> list[Event | Reset]:
        found: list[Event | Reset] = []
        stream = Stream(port.url, port.token, after="nonsense").__aiter__()
        async for each in stream:
            found.append(each)
            if len(found) == 1:
                await asyncio.to_thread(tell, port.db)
            else:
                break
        await stream.aclose()  # type: ignore[attr-defined]  # a generator
        return found

    reset, event = asyncio.run(follow())

    assert reset == Reset(f"{port.service.epoch}:0")
    assert isinstance(event, Event)
    assert (event.type, event.job) == ("job.queued", queries.get(port.db, "job"))


SESSIONS = st.sampled_from(["s-1", "s-2", "s-3"])


@given(
    sessions=st.none() | st.frozensets(SESSIONS),
    session_id=st.none() | SESSIONS,
    job_id=st.none() | st.sampled_from(["job-s-1", "job-s-2", "job-None"]),
)
def test_a_scope_is_one_in_both_places(
    scoped_ledger: Database, sessions: frozenset[str] | None, session_id: str | None, job_id: str | None
) -> None:
    """What a scope lets through live is what the ledger selects by it."""
    scope = Scope(sessions=sessions, session_id=session_id, job_id=job_id)
    every = feed.stretch(scoped_ledger, 0).events

    admitted = [each for each in every if scope.admits(each.job_id, each.data["session_id"], each.sessions)]

    assert list(feed.stretch(scoped_ledger, 0, scope=scope).events) == admitted


@pytest.fixture(scope="module")
def scoped_ledger(migrated_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Give a ledger with a job of each session, and one of none."""
    path = tmp_path_factory.mktemp("scoped") / "ledger.db"
    path.write_bytes(migrated_file.read_bytes())
    database = Database(f"sqlite:///{path}")
    for session in ("s-1", "s-2", "s-3", None):
        tell(database, f"job-{session}", session_id=session)
    yield database
    database.close()


@given(number_=st.integers(0, 30), oldest=st.integers(0, 20), more=st.integers(0, 20))
def test_a_cursor_is_good_where_nothing_is_missing(number_: int, oldest: int, more: int) -> None:
    """A cursor is resumed from exactly where every later event is kept."""
    kept = Bounds(oldest, oldest + more)

    resumed = feed.resume(f"abc:{number_}", "abc", kept)

    assert resumed == (number_ if oldest <= number_ <= oldest + more else None)
