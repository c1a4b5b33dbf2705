"""Discovery: what a walk yields, in which order, and what it reports instead of failing."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocode.jobs.errors import UsageError
from autocode.jobs.sessions.discover import Candidate, Discovery, Problem, discover, printable


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """Give a folder to a user whom permissions bind, and be that user until the test ends."""
    with tempfile.TemporaryDirectory() as name:
        root = os.geteuid() == 0
        if root:
            os.chown(name, 65534, 65534)
            os.seteuid(65534)
        try:
            yield Path(name).resolve()
        finally:
            if root:
                os.seteuid(0)
            for folder in Path(name).iterdir():
                folder.chmod(0o700)


def walked(path: Path) -> tuple[list[Candidate], Discovery]:
    """Return all candidates of a walk, and the walk."""
    walk = discover(path)
    return list(walk), walk


def names(path: Path) -> list[str]:
    """Return the relative names of all candidates."""
    return [candidate.relative for candidate in walked(path)[0]]


def test_files_come_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    """The order is that of the whole relative path as bytes, hidden files included."""
    expected = sorted(
        ["a.txt", "a/b", "a/b.c/d", "a-b", "a/.hidden", "Z", "ä", "b/x", ".env", "a0"], key=str.encode
    )
    for name in expected:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)

    candidates, walk = walked(tmp_path)

    assert [candidate.relative for candidate in candidates] == expected
    assert [candidate.path.read_text() for candidate in candidates] == expected
    assert walk.summarize() == {
        "files": 10,
        "bytes": sum(len(name.encode()) for name in expected),
        "skipped_folders": {},
        "problems": {},
    }


def test_one_file_is_its_own_root(tmp_path: Path) -> None:
    """A path to a file yields that file under its name."""
    path = tmp_path / "one.jsonl"
    path.write_text("{}")

    assert walked(path)[0] == [Candidate("one.jsonl", path.resolve(), 2)]


def test_names_of_any_bytes_pass(tmp_path: Path) -> None:
    """Newlines, 255 bytes, invalid UTF-8 and backslashes are names like others, written printable."""
    raw = [b"new\nline", b"x" * 255, b"bad\xff", b"back\\slash", b"\xe2\x80\xa8", b"tab\t"]
    for name in raw:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(b"1")

    actual = walked(tmp_path)[0]

    assert [candidate.relative for candidate in actual] == [
        "back\\\\slash", "bad\\xff", "new\\x0aline", "tab\\x09", "x" * 255, "\\xe2\\x80\\xa8",
    ]  # fmt: skip
    assert [candidate.path.read_bytes() for candidate in actual] == [b"1"] * 6


@given(st.binary(min_size=1, max_size=12), st.binary(min_size=1, max_size=12))
def test_two_names_never_become_one(one: bytes, other: bytes) -> None:
    """Printable names are printable, encodable and as different as the names were."""
    shown = printable(one)

    assert shown.isprintable()
    assert shown.encode()
    assert (shown == printable(other)) == (one == other)


def test_links_are_followed_to_files_inside_alone(tmp_path: Path) -> None:
    """A link to a file inside counts; to folders, outside, nowhere, itself or a pipe it is reported."""
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "real" / "f").write_text("abc")
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "root-2").mkdir()
    (tmp_path / "root-2" / "f").write_text("outside")
    os.mkfifo(root / "pipe")
    for name, target in {
        "inside": "real/f",
        "folder": "real",
        "loop": ".",
        "outside": "../secret",
        "neighbour": "../root-2/f",
        "broken": "nothing",
        "self": "self",
        "to-pipe": "pipe",
    }.items():
        (root / name).symlink_to(target)

    candidates, walk = walked(root)

    assert [(c.relative, c.path) for c in candidates] == [
        ("inside", root / "real/f"),
        ("real/f", root / "real/f"),
    ]
    assert {problem.relative: problem.reason for problem in walk.problems} == {
        "pipe": "fifo",
        "folder": "symlinked-folder",
        "loop": "symlinked-folder",
        "outside": "symlink-outside",
        "neighbour": "symlink-outside",
        "broken": "symlink-broken",
        "self": "symlink-broken",
        "to-pipe": "symlink-special",
    }


def test_pipes_and_sockets_are_reported_unopened(tmp_path: Path) -> None:
    """A pipe without a writer would block whoever opens it; the walk ends all the same."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sock"))

        candidates, walk = walked(tmp_path)

    assert candidates == []
    assert walk.problems == [Problem("pipe", "fifo"), Problem("sock", "socket")]


def test_what_may_not_be_read_is_reported(unprivileged: Path) -> None:
    """Folders and files without permission are problems with a reason; the rest is found."""
    (unprivileged / "a").mkdir()
    (unprivileged / "a" / "hidden").write_text("x")
    (unprivileged / "b").write_text("x")
    (unprivileged / "c").write_text("x")
    (unprivileged / "a").chmod(0)
    (unprivileged / "b").chmod(0)

    candidates, walk = walked(unprivileged)

    assert [candidate.relative for candidate in candidates] == ["c"]
    assert walk.problems == [
        Problem("a", "unreadable-folder", "Permission denied"),
        Problem("b", "unreadable-file", "Permission denied"),
    ]


def test_what_vanishes_during_the_walk_is_reported(tmp_path: Path) -> None:
    """A file and a folder that are removed after they were listed become problems."""
    for name in ("a", "b", "d"):
        (tmp_path / name).write_text(name)
    (tmp_path / "c").mkdir()
    walk = discover(tmp_path)

    steps = iter(walk)
    first = next(steps)
    (tmp_path / "b").unlink()
    (tmp_path / "c").rmdir()
    rest = list(steps)

    assert [candidate.relative for candidate in (first, *rest)] == ["a", "d"]
    assert [(problem.relative, problem.reason) for problem in walk.problems] == [
        ("b", "vanished"),
        ("c", "vanished"),
    ]


def test_a_folder_replaced_by_a_link_is_not_entered(tmp_path: Path) -> None:
    """A link that takes a listed folder's place isn't followed."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "b").mkdir(parents=True)
    (root / "a").write_text("a")
    outside.mkdir()
    (outside / "secret").write_text("x")
    walk = discover(root)

    steps = iter(walk)
    next(steps)
    (root / "b").rmdir()
    (root / "b").symlink_to(outside)

    assert list(steps) == []
    assert [problem.relative for problem in walk.problems] == ["b"]


def test_skipped_folders_are_counted_by_name(tmp_path: Path) -> None:
    """.git and node_modules are not entered, wherever they are; files of that name are files."""
    for name in (".git", "x/.git", "x/node_modules"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "f").write_text("f")
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / ".git").write_text("gitdir: ..")

    candidates, walk = walked(tmp_path)

    assert [candidate.relative for candidate in candidates] == ["y/.git"]
    assert walk.summarize()["skipped_folders"] == {".git": 2, "node_modules": 1}


def test_deep_trees_need_no_stack(tmp_path: Path) -> None:
    """A tree deeper than Python's recursion limit is walked as far as the system can name it."""
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)

    found = names(tmp_path)

    # Removed here, because what cleans up after the tests recurses.
    (tmp_path / found[0]).unlink()
    for depth in range(1200, 0, -1):
        (tmp_path / ("d/" * depth)).rmdir()
    assert found == ["d/" * 1200 + "leaf"]


def test_walking_again_starts_anew(tmp_path: Path) -> None:
    """A second iteration sees the tree as it is then, and its counts are its own."""
    walk = discover(tmp_path)
    first = list(walk)
    (tmp_path / "new").write_text("1")

    second = list(walk)

    assert (len(first), len(second), walk.files) == (0, 1, 1)


def test_a_missing_path_names_its_neighbours(tmp_path: Path) -> None:
    """A path that doesn't exist is a usage error whose hint names what is near."""
    (tmp_path / "projects").mkdir()

    with pytest.raises(UsageError) as caught:
        discover(tmp_path / "project" / "x")

    assert str(tmp_path / "projects") in caught.value.hint


@pytest.mark.parametrize("name", ["nul\0", "a" * 5000, "loop"])
def test_an_impossible_path_is_a_usage_error(tmp_path: Path, name: str) -> None:
    """NUL, names that are too long and loops of links are usage errors, too."""
    (tmp_path / "loop").symlink_to("loop")

    with pytest.raises(UsageError):
        discover(tmp_path / name)


def test_a_pipe_as_the_path_is_a_usage_error(tmp_path: Path) -> None:
    """What is neither folder nor file can't be a root."""
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(UsageError, match="neither"):
        discover(tmp_path / "pipe")
