"""``token`` and ``audit``, on a real ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from autocode.jobs.cli import main as command
from autocode.jobs.cli.token import lifetime_of
from autocode.jobs.engine.system import System, open_system
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import access, audit, jobs, schema
from autocode.jobs.settings import Home
from ledger_world import contents, new_job

CREATE = ["token", "create", "guest", "--role", "viewer"]


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    """Give the data folder that the commands of the test work on."""
    monkeypatch.setenv("AUTOCODE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    with open_system(Home(tmp_path / "home")) as opened:
        yield opened


def test_a_token_is_printed_once(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """The text of a new token is the only line of output, works, and is in no list afterwards."""
    assert command.run([*CREATE, "--session", "s-1", "--session", "s-2", "--expires", "30d"]) == 0
    text = capsys.readouterr().out.strip()
    assert command.run(["token", "list", "--all", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)

    principal = access.verify(system.db, text)
    assert (principal.sessions, principal.role) == (frozenset({"s-1", "s-2"}), "viewer")
    assert (listed["token_id"], listed["sessions"]) == (principal.token_id, ["s-1", "s-2"])
    assert text.rpartition("_")[2] not in json.dumps(listed)
    (entry,) = audit.entries(system.db)
    assert (entry.action, "@" in entry.actor) == ("token.create", True)


def test_a_token_in_json_has_its_facts(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json one line has the token and what it is for."""
    assert command.run([*CREATE, "--json"]) == 0

    made = json.loads(capsys.readouterr().out)
    assert access.verify(system.db, made["token"]).token_id == made["token_id"]
    assert (made["sessions"], made["expires_at"]) == (None, None)


def test_a_token_is_revoked(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """A revoked token is no longer listed, but with --all; revoking again says so."""
    made = access.create_token(system.db, name="ci", role=access.Role.ADMIN).principal

    statuses = [command.run(["token", "revoke", made.token_id, "-m", "leaked"]) for _ in range(2)]
    told = capsys.readouterr().out
    command.run(["token", "list"])
    now = capsys.readouterr().out
    command.run(["token", "list", "--all"])

    assert statuses == [0, 0]
    assert "was revoked before" in told
    assert made.token_id not in now
    assert f"{made.token_id}  admin     ci  all sessions  revoked" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["token", "create", " ", "--role", "viewer"],
        [*CREATE, "--expires", "soon"],
        [*CREATE, "--expires", "0d"],
        [*CREATE, "--expires", "999999w"],
        [*CREATE, "--session", "*"],
        ["token", "create", "x", "--role", "admin", "--session", "s-1"],
        ["token", "create", "x", "--role", "owner"],
        ["token", "revoke", "0123456789abcdef"],
        ["audit", "verify", "--expect", "x"],
    ],
)
def test_what_makes_no_sense_is_refused_with_a_hint(
    system: System, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """Status 2, a sentence and a hint; nothing was changed."""
    before = contents(system.db)

    assert command.run(arguments) == 2

    assert len(capsys.readouterr().err.strip().splitlines()) >= 2
    assert contents(system.db) == before


def test_they_work_on_the_data_folder_alone(
    system: System, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With AUTOCODE_URL set they refuse rather than change the wrong ledger."""
    monkeypatch.setenv("AUTOCODE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AUTOCODE_TOKEN", "x")

    assert [command.run(each) for each in (CREATE, ["token", "list"], ["audit", "head"])] == [2, 2, 2]
    assert "AUTOCODE_URL" in capsys.readouterr().err
    assert audit.entries(system.db) == []


def test_the_audit_is_listed_and_checked(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """A saved head is found in a sound chain; changes end with statuses of their own, and name the entry."""
    jobs.enqueue(system.db, new_job())
    command.run(["jobs", "cancel", "job", "-m", "wrong folder"])
    command.run(["jobs", "cancel", "job", "-m", "again"])
    capsys.readouterr()
    assert command.run(["audit", "head"]) == 0
    saved = capsys.readouterr().out.strip()
    assert command.run(["audit", "list", "--target", "job"]) == 0
    listed = capsys.readouterr().out
    assert command.run(["audit", "verify", "--expect", saved]) == 0
    assert "Sound: 2 entries" in capsys.readouterr().out

    with system.db.write() as tx:
        tx.execute(sa.delete(schema.audit).where(schema.audit.c.seq == 2))
        tx.execute(sa.update(schema.counters).where(schema.counters.c.name == "audit").values(value=1))
    cut = command.run(["audit", "verify", "--expect", saved])
    with system.db.write() as tx:
        tx.execute(sa.update(schema.audit).values(reason="right folder"))
    changed = command.run(["audit", "verify", "--expect", saved, "--json"])

    told = capsys.readouterr()
    assert "cancel job: accepted  “wrong folder”" in listed
    assert (cut, changed) == (4, 3)
    assert json.loads(told.out)["broken"] == 1
    assert "entry 2" in told.err
    assert "entry 1" in told.err


def test_explain_tells_who_was_refused(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """A job's timeline has what the audit has about it, refused requests as well."""
    jobs.enqueue(system.db, new_job())
    audit.append(
        system.db,
        actor="guest (token 1)",
        action="cancel",
        target="job",
        reason="mine",
        outcome="refused: not-allowed",
    )

    assert command.run(["jobs", "explain", "job"]) == 0

    told = capsys.readouterr().out
    assert "guest (token 1) asked to call the job off (refused: not-allowed): “mine”" in told


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90m", timedelta(minutes=90)),
        ("12h", timedelta(hours=12)),
        ("30d", timedelta(days=30)),
        ("8w", timedelta(weeks=8)),
    ],
)
def test_a_lifetime_is_read(text: str, expected: timedelta) -> None:
    """A number and a unit."""
    assert lifetime_of(text) == expected


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1.5h", "30 d", "1y"])
def test_a_lifetime_that_is_none_is_refused(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(UsageError):
        lifetime_of(text)
