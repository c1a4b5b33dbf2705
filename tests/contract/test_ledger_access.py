"""Tokens and logins: what is stored, who is let in, and that a login works once."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import access, audit, jobs, schema, scopes
from autocode.jobs.ledger.access import NewToken, Role
from autocode.jobs.ledger.database import Database
from autocode.jobs.request_errors import TokenInvalid
from ledger_world import contents, in_threads, new_job, rows


def test_a_token_lets_its_owner_in(database: Database) -> None:
    """A token that was made is known again, with name, role and sessions."""
    made = access.create_token(database, name="ci", role=Role.OPERATOR, sessions=["s-2", "s-1"])

    caller = access.verify(database, made.text)

    assert caller == made.principal
    assert (caller.name, caller.role, caller.sessions) == ("ci", Role.OPERATOR, frozenset({"s-1", "s-2"}))


def test_no_secret_is_stored_or_shown(database: Database) -> None:
    """Neither the token's secret nor the login's code stands anywhere in the database, nor in a repr."""
    made = access.create_token(database, name="ci", role=Role.VIEWER)
    code = access.create_login(database)
    session = access.redeem(database, code)

    stored = repr(contents(database)) + repr(made) + repr(session)

    secrets = [text.rpartition("_")[2] for text in (made.text, session.text)]
    assert [secret for secret in (*secrets, code) if secret in stored] == []


@pytest.mark.parametrize("change", ["secret", "id", "shape", "empty"])
def test_another_token_is_refused(database: Database, change: str) -> None:
    """A token with another secret, another id or another shape lets nobody in."""
    text = access.create_token(database, name="ci", role=Role.ADMIN).text
    other = access.create_token(database, name="other", role=Role.VIEWER).text
    wrong = {
        "secret": text[:-1] + ("0" if text[-1] != "0" else "1"),
        "id": other.rpartition("_")[0] + "_" + text.rpartition("_")[2],
        "shape": text + "\n",
        "empty": "",
    }

    with pytest.raises(TokenInvalid):
        access.verify(database, wrong[change])


def test_a_token_expires(database: Database) -> None:
    """A token stops working when its time is over, and isn't listed any more."""
    # the clock of these tests moves by a millisecond with every look
    made = access.create_token(database, name="ci", role=Role.ADMIN, lifetime=timedelta(milliseconds=3))
    access.verify(database, made.text)

    for _ in range(3):
        database.clock.now()

    with pytest.raises(TokenInvalid):
        access.verify(database, made.text)
    assert access.tokens(database) == []


def test_a_revoked_token_is_refused_at_once(database: Database) -> None:
    """Revoking ends a token, once; others go on."""
    made = access.create_token(database, name="ci", role=Role.ADMIN)
    kept = access.create_token(database, name="kept", role=Role.VIEWER)

    answers = [access.revoke(database, made.principal.token_id) for _ in range(2)]

    assert answers == [True, False]
    assert access.tokens(database) == [kept.principal]
    with pytest.raises(TokenInvalid):
        access.verify(database, made.text)


@pytest.mark.parametrize("changes", [{"name": " "}, {"name": "a\x00b"}, {"lifetime": timedelta(0)}])
def test_a_token_that_makes_no_sense_is_refused(database: Database, changes: dict[str, object]) -> None:
    """A token without a name, or one that has expired at its birth, isn't made."""
    before = contents(database)

    with pytest.raises(UsageError):
        access.create_token(database, **{"name": "ci", "role": Role.VIEWER, **changes})  # type: ignore[arg-type]

    assert contents(database) == before


def test_a_login_opens_a_session_of_twelve_hours(database: Database) -> None:
    """A redeemed login gives a token with the login's role that lasts for twelve hours."""
    session = access.redeem(database, access.create_login(database, role=Role.VIEWER))

    caller = access.verify(database, session.text)
    (row,) = rows(database, schema.tokens)
    assert caller.role is Role.VIEWER
    assert row.expires_at - row.created_at == timedelta(hours=12)


def test_of_many_who_redeem_a_login_one_gets_in(database: Database) -> None:
    """Twenty callers redeem one code at once: one session is made."""
    code = access.create_login(database)

    answers = in_threads(20, lambda _: access.redeem(database, code))

    assert sorted(type(answer).__name__ for answer in answers) == ["NewToken"] + ["TokenInvalid"] * 19
    (session,) = [answer for answer in answers if isinstance(answer, NewToken)]
    assert access.tokens(database) == [session.principal]


def test_a_login_expires_and_is_forgotten(database: Database) -> None:
    """A code is no good after its time, and its row goes when another is made long after."""
    code = access.create_login(database, lifetime=-access.SESSION_LIFETIME)

    with pytest.raises(TokenInvalid):
        access.redeem(database, code)

    access.create_login(database)
    assert len(rows(database, schema.logins)) == 1


def test_roles_include_the_lesser_ones() -> None:
    """Each role may do what the ones before it may, and no more."""
    allowed = {role: [needed for needed in Role if role.covers(needed)] for role in Role}

    assert [len(allowed[role]) for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN)] == [1, 2, 3]


def test_every_way_in_is_in_the_audit(database: Database) -> None:
    """Tokens made and revoked, logins made and redeemed are entries, with who did it and no secret."""
    made = access.create_token(database, name="ci", role=Role.VIEWER, sessions=["s-1"], actor="ann")
    assert access.revoke(database, made.principal.token_id, actor="bob", reason="it leaked")
    assert not access.revoke(database, made.principal.token_id, actor="bob")
    code = access.create_login(database, role=Role.VIEWER, actor="ann", request_id="r-1")
    session = access.redeem(database, code, request_id="r-2")

    found = audit.entries(database)

    token = f"token:{made.principal.token_id}"
    assert [(row.actor, row.action, row.target, row.reason) for row in found[:2]] == [
        ("ann", "token.create", token, ""),
        ("bob", "token.revoke", token, "it leaked"),
    ]
    assert [(row.actor, row.action, row.data["request_id"]) for row in found[2:]] == [
        ("ann", "login.create", "r-1"),
        (session.principal.actor, "login.redeem", "r-2"),
    ]
    assert found[2].target == found[3].target
    assert found[0].data["after"]["sessions"] == ["s-1"]
    assert found[1].data["before"] == found[0].data["after"]


@pytest.mark.parametrize(
    ("role", "sessions"),
    [
        (Role.ADMIN, ["s-1"]),
        (Role.VIEWER, ["*"]),
        (Role.VIEWER, [""]),
        (Role.VIEWER, ["a b"]),
        (Role.VIEWER, [f"s-{number}" for number in range(access.MOST_SESSIONS + 1)]),
    ],
)
def test_a_scope_that_makes_no_sense_is_refused(database: Database, role: Role, sessions: list[str]) -> None:
    """An admin is for everything, and a scope is made of ids; nothing is written."""
    before = contents(database)

    with pytest.raises(UsageError):
        access.create_token(database, name="ci", role=role, sessions=sessions)

    assert contents(database) == before


def test_tokens_that_ended_are_listed_on_demand(database: Database) -> None:
    """Who asks for all tokens also gets those that were revoked, with when."""
    ended = access.create_token(database, name="ended", role=Role.VIEWER).principal
    works = access.create_token(database, name="works", role=Role.VIEWER).principal
    access.revoke(database, ended.token_id)

    assert [each.principal for each in access.listed(database)] == [works]
    found = access.listed(database, ended=True)
    assert [(each.principal, each.works, each.revoked_at is None) for each in found] == [
        (ended, False, False),
        (works, True, True),
    ]


@pytest.mark.parametrize(
    ("allowed", "sessions", "covered"),
    [
        (None, set(), True),
        (None, {"*"}, True),
        ({"a"}, set(), False),
        ({"a"}, {"a"}, True),
        ({"a"}, {"a", "b"}, False),
        ({"a", "b"}, {"a", "b"}, True),
        ({"a"}, {"a", "*"}, False),
        ({"a", "*"}, {"a", "*"}, False),
        (set(), {"a"}, False),
    ],
)
def test_the_rule_is_the_same_in_python_and_in_sql(
    database: Database, allowed: set[str] | None, sessions: set[str], covered: bool
) -> None:
    """A caller sees a job if its token has all of the job's sessions, of which there must be one."""
    scope = None if allowed is None else frozenset(allowed)
    reads = None if "*" in sessions else frozenset(sessions)
    jobs.enqueue(database, new_job(session_id=next(iter(sessions - {"*"}), None), reads=reads))
    query = sa.select(schema.jobs.c.job_id).where(*scopes.conditions(scope))

    with database.read() as tx:
        listed = tx.execute(query).scalars().all()
        kept = scopes.of_job(tx, "job")

    assert scopes.covers(scope, frozenset(sessions)) is covered
    assert (listed == ["job"]) is covered
    assert scopes.covers(scope, kept) is covered
