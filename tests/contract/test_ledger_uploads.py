"""Uploads and snapshots in the ledger, on both databases."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa

from autocode.jobs.canonical import digest_of
from autocode.jobs.ledger import access, schema, uploads
from autocode.jobs.ledger.access import Principal, Role
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.schema_uploads import snapshots
from ledger_world import in_threads, rows

ONE, TWO, SET = (digest_of(text) for text in (b"one", b"two", b"set"))


def caller(db: Database, *sessions: str) -> Principal:
    """Return a caller for some sessions, or for all."""
    made = access.create_token(db, name="ci", role=Role.OPERATOR, sessions=sessions or None)
    return made.principal


def named(db: Database, by: Principal, session_id: str | None = None, digest: str = SET) -> bool:
    """Upload one file and name a snapshot of it; say whether the name is new."""
    uploads.note_upload(db, by, ONE, 3)
    uploads.note_upload(db, by, digest, 99)
    return uploads.name_snapshot(db, by, session_id, digest, [ONE])[1]


def test_an_upload_is_news_once_for_each(database: Database) -> None:
    """The same upload again is no news; for another caller it is, whatever others sent."""
    one, two = caller(database), caller(database)

    news = [uploads.note_upload(database, by, ONE, 3) for by in (one, one, two, two)]

    assert news == [True, False, True, False]
    assert len(rows(database, schema.references)) == 2


def test_one_of_many_is_news(database: Database) -> None:
    """Of the same upload many times at once one is news."""
    one = caller(database)

    news = in_threads(8, lambda _: uploads.note_upload(database, one, ONE, 3))

    assert sorted(news) == [False] * 7 + [True]


def test_what_a_caller_may_name(database: Database) -> None:
    """A caller may name what it sent, and what a snapshot has that it sees."""
    owner, friend, stranger = caller(database, "s-1"), caller(database, "s-1"), caller(database, "s-2")
    everybody = caller(database)
    named(database, owner, "s-1")
    uploads.note_upload(database, owner, TWO, 5)

    seen = {
        name: uploads.visible_objects(database, by, [ONE, TWO, SET, digest_of(b"none")])
        for name, by in (
            ("owner", owner),
            ("friend", friend),
            ("stranger", stranger),
            ("everybody", everybody),
        )
    }

    assert seen == {
        "owner": {ONE: 3, TWO: 5, SET: 99},
        "friend": {ONE: 3},
        "stranger": {},
        "everybody": {ONE: 3},
    }


def test_many_digests(database: Database) -> None:
    """More digests than one statement takes are looked for."""
    one = caller(database)
    wanted = [digest_of(str(number).encode()) for number in range(600)]
    for digest in wanted[::100]:
        uploads.note_upload(database, one, digest, 1)

    assert sorted(uploads.visible_objects(database, one, wanted)) == sorted(wanted[::100])


def test_a_name_is_given_once_for_each_owner_and_session(database: Database) -> None:
    """The same files may be named by several callers and for several sessions, each once."""
    one, two = caller(database), caller(database)

    news = [named(database, by, session) for by in (one, two) for session in (None, "s-1", None)]

    assert news == [True, True, False] * 2
    assert len(rows(database, snapshots)) == 4


def test_who_sees_a_snapshot(database: Database) -> None:
    """Who named it, who sees its session and who sees all sessions find a snapshot; nobody else."""
    owner, friend, stranger = caller(database, "s-1"), caller(database, "s-1"), caller(database, "s-2")
    named(database, owner, "s-1")

    found = [uploads.find_snapshot(database, by, SET) for by in (owner, friend, caller(database), stranger)]

    assert [None if each is None else each.session_id for each in found] == ["s-1"] * 3 + [None]
    assert found[3] is None
    assert uploads.find_snapshot(database, owner, TWO) is None


def test_who_may_use_a_snapshot_for_which_job(database: Database) -> None:
    """A job may hold a snapshot of its own session, or of none, that its caller sees; each holds it once."""
    owner, both, stranger = caller(database, "s-1"), caller(database, "s-1", "s-2"), caller(database, "s-2")
    named(database, owner, "s-1")
    named(database, owner, None, TWO)

    def may(by: Principal, digest: str, session_id: str | None) -> bool:
        with database.write() as tx:
            return uploads.hold_snapshot(
                tx, by, digest, session_id=session_id, job_id="job", now=database.clock.now()
            )

    assert [may(owner, SET, "s-1"), may(both, SET, "s-1"), may(both, SET, "s-2")] == [True, True, False]
    assert [may(stranger, SET, "s-1"), may(caller(database), SET, None)] == [False, False]
    assert [may(owner, TWO, "s-1"), may(both, TWO, "s-1"), may(caller(database), TWO, None)] == [
        True,
        False,
        True,
    ]
    held = rows(database, schema.references, schema.references.c.holder == "job:job")
    assert sorted(row.digest for row in held) == sorted([SET, TWO])


def test_what_is_let_go(database: Database) -> None:
    """After their time uploads are let go, all at once or with the caller's next one; names stay."""
    one, two = caller(database), caller(database)
    named(database, one)
    uploads.note_upload(database, two, TWO, 5)
    with database.write() as tx:
        old = database.clock.now() - uploads.UPLOAD_LIFETIME - timedelta(seconds=1)
        tx.execute(sa.update(schema.references).values(at=old))

    uploads.note_upload(database, two, ONE, 3)
    released = uploads.release_uploads(database)

    holders = sorted((row.digest, row.holder) for row in rows(database, schema.references))
    assert released == 2
    assert holders == sorted(
        [(ONE, f"object:{SET}"), (SET, f"snapshot:{SET}"), (ONE, f"upload:{two.token_id}")]
    )
