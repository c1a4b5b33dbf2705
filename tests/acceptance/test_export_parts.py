"""A long session through the real command: killed between its parts, and exported again after it grew."""

from __future__ import annotations

import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from acceptance.command import Command
from autocode.jobs.sessions import PART
from export_context import line


def lines(count: int, first: int = 0) -> bytes:
    """Return *count* lines of a session, of about two kilobytes each."""
    return b"".join(
        line(f"{number} " + "word " * 380, uuid=f"u-{number}", parentUuid=f"u-{number - 1}")
        for number in range(first, first + count)
    )


@dataclass(frozen=True)
class Exported:
    """A folder with a session of 20 MiB, which is three parts, and the home of its first export."""

    sessions: Path
    command: Command
    job: dict[str, Any]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Export the session once, in peace."""
    folder = tmp_path_factory.mktemp("first")
    sessions = folder / "sessions"
    sessions.mkdir()
    content = lines(10200)
    assert 20 << 20 < len(content) < 3 * PART
    (sessions / "long.jsonl").write_bytes(content)
    command = Command(folder / "home")
    done = command.run("export", sessions, "-o", folder / "out", "--json")
    assert done.status == 0, done.err
    return Exported(sessions, command, done.job)


def parts_of(job: dict[str, Any]) -> list[tuple[str, int, bool]]:
    """Return number, attempt and reuse of each part that the job's history tells of."""
    return [
        (entry["step"].rpartition("part ")[2], entry["attempt"], entry["reused"])
        for entry in job["history"]
        if entry["step"].startswith("read ")
    ]


def test_a_command_killed_between_parts_goes_on_there(exported: Exported, tmp_path: Path) -> None:
    """The second part's checkpoint survives SIGKILL: at most the third is read afterwards."""
    command = Command(tmp_path / "home")
    arguments = ("export", exported.sessions, "-o", tmp_path / "out", "--json")

    killed = command.run(*arguments, AUTOCODE_CRASH="step.after-checkpoint:3")
    again = command.run(*arguments)

    assert killed.status == -signal.SIGKILL, killed.err
    assert again.status == 0, again.err
    # where the machine is slow, the third part was ready in time to be committed with the second
    assert [part[:2] for part in parts_of(again.job)] in (
        [("1/3", 1), ("2/3", 1), ("3/3", 2)],
        [("1/3", 1), ("2/3", 1), ("3/3", 1)],
    )
    assert again.job["result"]["digest"] == exported.job["result"]["digest"]
    command.wait_until_gone()


def test_a_grown_session_is_read_from_its_last_part(exported: Exported, tmp_path: Path) -> None:
    """Another export of a session that grew by 100 KB reuses all parts but the last, with the same result."""
    shutil.copytree(exported.sessions, tmp_path / "sessions")
    with (tmp_path / "sessions" / "long.jsonl").open("ab") as file:
        file.write(lines(50, 10200))
    arguments = ("export", tmp_path / "sessions", "-o", tmp_path / "out", "--json")

    grown = exported.command.run(*arguments)
    fresh = Command(tmp_path / "fresh").run(*arguments)

    assert (grown.status, fresh.status) == (0, 0), grown.err + fresh.err
    assert parts_of(exported.job) == [("1/3", 1, False), ("2/3", 1, False), ("3/3", 1, False)]
    assert parts_of(grown.job) == [("1/3", 1, True), ("2/3", 1, True), ("3/3", 1, False)]
    assert grown.job["result"]["digest"] == fresh.job["result"]["digest"] != exported.job["result"]["digest"]
