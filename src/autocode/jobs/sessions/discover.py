"""Discovery: every file below a path, always in the same order, with a reason for each that is left out."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from autocode.jobs.errors import UsageError

__all__ = ["SKIPPED_FOLDERS", "Candidate", "Discovery", "Problem", "discover", "printable"]

SKIPPED_FOLDERS: Final = frozenset({".git", "node_modules"})
"""Folders that hold thousands of files and no sessions; they are counted, not entered."""

_PROBLEMS_KEPT: Final = 10_000
_KINDS: Final = (
    (stat.S_ISFIFO, "fifo"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A regular file that a reader may try.

    Args:
        relative: path from the root, with ``/``, as :func:`printable` writes it; unique in its root.
        path: where the file is opened.
        size: size in bytes when it was found.
    """

    relative: str
    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was found and is no candidate.

    Args:
        relative: path from the root, as :func:`printable` writes it.
        reason: ``unreadable-folder``, ``unreadable-file``, ``vanished``, ``fifo``, ``socket``, ``device``,
            ``symlinked-folder``, ``symlink-outside``, ``symlink-broken`` or ``symlink-special``.
        detail: what the system said, or an empty text.
    """

    relative: str
    reason: str
    detail: str = ""


@dataclass(slots=True)
class Discovery:
    """A walk over one root: iterate it for the candidates; then its counts are complete.

    Each iteration walks again and starts the counts anew. Memory holds the names of one folder per level
    and at most 10,000 problems; ``reasons`` counts all of them.

    Args:
        root: the folder or file, absolute, with symbolic links resolved.
        files: candidates yielded so far.
        size: their bytes.
        problems: the first problems, in the order of the walk.
        reasons: problems by reason.
        skipped: folders that were not entered, by name.
    """

    root: Path
    files: int = 0
    size: int = 0
    problems: list[Problem] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Candidate]:
        self.files = self.size = 0
        self.problems, self.reasons, self.skipped = [], {}, {}
        for candidate in _walk(self):
            self.files += 1
            self.size += candidate.size
            yield candidate

    def report(self, relative: bytes, reason: str, detail: str = "") -> None:
        """Count a problem at *relative*, and list it while there is room."""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if len(self.problems) < _PROBLEMS_KEPT:
            self.problems.append(Problem(printable(relative), reason, detail))

    def summarize(self) -> dict[str, Any]:
        """Return the counts of the last iteration as a JSON object."""
        return {
            "files": self.files,
            "bytes": self.size,
            "skipped_folders": dict(sorted(self.skipped.items())),
            "problems": dict(sorted(self.reasons.items())),
        }


def printable(name: bytes) -> str:
    r"""Return the file name *name* as text that any terminal and any JSON reader takes.

    Text in UTF-8 stays. A backslash becomes ``\\``; each byte that isn't UTF-8 and each control character
    becomes ``\x`` and two hex digits (of its bytes), so two names never become one.
    """
    text = name.decode("utf-8", "surrogateescape").replace("\\", "\\\\")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def discover(path: Path) -> Discovery:
    """Return the walk over *path*, a folder or one file; nothing is read before it is iterated.

    Every regular file is a candidate, hidden ones too, ordered by the bytes of its path. Folders behind
    symbolic links are never entered, a link to a file counts when its target lies inside *path*, and pipes,
    sockets and devices are never opened. What is left out is reported, and none of it raises.

    Raises:
        UsageError: *path* doesn't exist, or is neither a folder nor a regular file; the hint names near
            matches.
    """
    try:
        root = path.resolve(strict=True)
        mode = root.stat().st_mode
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a usable path"
        raise UsageError(f"{_shown(path)} can't be looked at: {reason}", hint=_near(path)) from error
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise UsageError(
            f"{_shown(path)} is neither a folder nor a regular file", hint="Name a folder with sessions."
        )
    return Discovery(root)


def _walk(walk: Discovery) -> Iterator[Candidate]:
    root = os.fsencode(walk.root)
    if not walk.root.is_dir():
        yield from _file(walk, root, _base(root))
        return
    stack = [iter(_entries(walk, root, b""))]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
            continue
        relative, is_folder = entry
        full = root.rstrip(b"/") + b"/" + relative
        if not is_folder:
            yield from _file(walk, full, relative)
        elif _base(relative) in _SKIPPED:
            name = os.fsdecode(_base(relative))
            walk.skipped[name] = walk.skipped.get(name, 0) + 1
        else:
            stack.append(iter(_entries(walk, full, relative)))


_SKIPPED: Final = frozenset(name.encode("ascii") for name in SKIPPED_FOLDERS)


def _entries(walk: Discovery, folder: bytes, relative: bytes) -> list[tuple[bytes, bool]]:
    """Return a folder's entries, ordered so that a depth-first walk follows the bytes of whole paths."""
    try:
        # Opened without following links: the folder may have been replaced by one since it was listed.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            with os.scandir(handle) as scan:
                names = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in scan]
        finally:
            os.close(handle)
    except OSError as error:
        walk.report(relative or b".", _missing(error, "unreadable-folder"), error.strerror or "")
        return []
    # A folder sorts as its path will go on: "a.txt" comes before "a/b", because "." comes before "/".
    names.sort(key=lambda entry: entry[0] + b"/" if entry[1] else entry[0])
    prefix = relative + b"/" if relative else b""
    return [(prefix + name, is_folder) for name, is_folder in names]


def _base(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


def _file(walk: Discovery, full: bytes, relative: bytes) -> Iterator[Candidate]:
    try:
        facts = os.lstat(full)
        if stat.S_ISLNK(facts.st_mode):
            target = _target(walk, full, relative)
            if target is None:
                return
            full, facts = target
        special = next((name for is_kind, name in _KINDS if is_kind(facts.st_mode)), "")
        if special:
            walk.report(relative, special)
        elif not stat.S_ISREG(facts.st_mode):
            walk.report(relative, "vanished", "it became something else")
        elif not os.access(full, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
            walk.report(relative, "unreadable-file", "Permission denied")
        else:
            yield Candidate(printable(relative), Path(os.fsdecode(full)), facts.st_size)
    except OSError as error:
        walk.report(relative, _missing(error, "unreadable-file"), error.strerror or "")


def _target(walk: Discovery, full: bytes, relative: bytes) -> tuple[bytes, os.stat_result] | None:
    """Return where a link to a file leads, or report why it isn't followed."""
    try:
        target = os.path.realpath(full, strict=True)
        facts = os.lstat(target)
    except OSError as error:
        walk.report(relative, "symlink-broken", error.strerror or "")
        return None
    if stat.S_ISDIR(facts.st_mode):
        walk.report(relative, "symlinked-folder")
    elif not stat.S_ISREG(facts.st_mode):
        walk.report(relative, "symlink-special")
    elif not target.startswith(os.fsencode(walk.root).rstrip(b"/") + b"/"):
        walk.report(relative, "symlink-outside")
    else:
        return target, facts
    return None


def _missing(error: OSError, otherwise: str) -> str:
    return "vanished" if isinstance(error, (FileNotFoundError, NotADirectoryError)) else otherwise


def _escaped(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def _shown(path: Path) -> str:
    return printable(os.fsencode(path)) if "\0" not in str(path) else repr(str(path))


def _near(path: Path) -> str:
    """Return a hint that names what lies beside a path that doesn't exist, or where it stops existing."""
    try:
        parent = next(folder for folder in path.absolute().parents if folder.is_dir())
        missing = path.absolute().parts[len(parent.parts)]
        names = sorted(entry.name for entry in os.scandir(parent))
    except (OSError, ValueError, StopIteration, IndexError):
        return "Check the spelling of the path."
    near = difflib.get_close_matches(missing, names[:2000], n=3, cutoff=0.5)
    if near:
        return "Did you mean " + " or ".join(_shown(parent / name) for name in near) + "?"
    return f"There is no {_shown(Path(missing))} in {_shown(parent)}; check the spelling of the path."
