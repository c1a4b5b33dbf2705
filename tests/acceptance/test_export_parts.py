"""A long session through the real command: killed between its parts, and exported again after it grew."""

from __future__ import annotations

import signal
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


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    """Return a folder with a session of 20 MiB, which is three parts."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    content = lines(10200)
    assert 20 << 20 < len(content) < 3 * PART
    (folder / "long.jsonl").write_bytes(content)
    return folder


def parts_of(job: dict[str, Any]) -> list[tuple[str, int, bool]]:
    """Return number, attempt and reuse of each part that the job's history tells of."""
    return [
        (entry["step"].rpartition("part ")[2], entry["attempt"], entry["reused"])
        for entry in job["history"]
        if entry["step"].startswith("read ")
    ]


def test_a_grown_session_is_read_from_its_last_part(sessions: Path, tmp_path: Path) -> None:
    """Another export of a session that grew by 100 KB reuses all parts but the last, with the same result."""
    command = Command(tmp_path / "home")
    first = command.run("export", sessions, "-o", tmp_path / "out", "--json")
    with (sessions / "long.jsonl").open("ab") as file:
        file.write(lines(50, 10200))

    second = command.run("export", sessions, "-o", tmp_path / "out", "--json")
    fresh = Command(tmp_path / "fresh").run("export", sessions, "-o", tmp_path / "other", "--json")

    assert [done.status for done in (first, second, fresh)] == [0, 0, 0], second.err
    assert parts_of(first.job) == [("1/3", 1, False), ("2/3", 1, False), ("3/3", 1, False)]
    assert parts_of(second.job) == [("1/3", 1, True), ("2/3", 1, True), ("3/3", 1, False)]
    assert second.job["job_id"] != first.job["job_id"]
    assert second.job["result"]["digest"] == fresh.job["result"]["digest"] != first.job["result"]["digest"]


def test_a_command_killed_between_parts_goes_on_there(sessions: Path, tmp_path: Path) -> None:
    """The second part's checkpoint survives SIGKILL: only the third is read afterwards."""
    command = Command(tmp_path / "home")
    arguments = ("export", sessions, "-o", tmp_path / "out", "--json")
    undisturbed = Command(tmp_path / "fresh").run("export", sessions, "-o", tmp_path / "other", "--json")

    killed = command.run(*arguments, AUTOCODE_CRASH="step.after-checkpoint:3")
    again = command.run(*arguments)

    assert killed.status == -signal.SIGKILL, killed.err
    assert again.status == 0, again.err
    assert [(number, attempt) for number, attempt, _ in parts_of(again.job)] == [
        ("1/3", 1),
        ("2/3", 1),
        ("3/3", 2),
    ]
    assert again.job["result"]["digest"] == undisturbed.job["result"]["digest"]
    command.wait_until_gone()
