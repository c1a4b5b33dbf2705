"""A view that is a folder of pages: it appears whole or not at all, and replaces nothing."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from autocode.jobs.errors import UsageError
from autocode.jobs.operations.partial import explained, partial_folder, sweep, sync_folder

__all__ = ["new_page", "write_tree"]

_BUFFER: Final = 1 << 18


def write_tree(parent: Path, name: str, fill: Callable[[Path], None]) -> Path:
    """Let *fill* write into a temporary folder, give that its *name* in *parent*, and return it.

    Atomic: the folder appears when all of it is durable. Idempotent: one that is there with the same bytes
    is returned as it is. What killed runs left in *parent* is removed first.

    Raises:
        UsageError: *parent* can't be written to, or something else has the name.
        DiskFull: there is no room; nothing is left behind. Whatever *fill* raises passes unchanged.
    """
    target = parent / name
    with explained(parent):
        sweep(parent)
        with partial_folder(parent) as temporary:
            fill(temporary)
            for folder, _, _ in os.walk(temporary):
                sync_folder(Path(folder))
            if not os.path.lexists(target):
                try:
                    temporary.rename(target)
                except OSError:
                    # somebody else was faster; if it is the same view, theirs is as good
                    if not os.path.lexists(target):
                        raise
                else:
                    sync_folder(parent)
                    return target
            _check_same(target, temporary)
    return target


@contextmanager
def new_page(root: Path, path: str) -> Iterator[TextIO]:
    """Open the new file *path* below *root* for text, readable by its owner alone; durable at the end.

    Memory is that of a buffer; line ends stay as they are.
    """
    file = root / path
    for folder in reversed(file.relative_to(root).parents):
        (root / folder).mkdir(mode=0o700, exist_ok=True)
    with open(file, "x", buffering=_BUFFER, encoding="utf-8", newline="", opener=_private) as page:
        yield page
        page.flush()
        os.fsync(page.fileno())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _check_same(target: Path, made: Path) -> None:
    if target.is_symlink() or not target.is_dir():
        difference: str | None = "it is no folder"
    else:
        ours, theirs = _files(made), _files(target)
        odd = sorted(ours ^ theirs) or [
            path for path in sorted(ours) if not filecmp.cmp(made / path, target / path, shallow=False)
        ]
        difference = f"{odd[0]!r} is another" if odd else None
    if difference is not None:
        raise UsageError(
            f"{target} is there already and isn't this view as this version makes it: {difference}.",
            hint="Move it away, or name another folder.",
        )


def _files(root: Path) -> set[str]:
    found = set()
    for folder, folders, files in os.walk(root):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]  # noqa: PTH114,PTH118 - os.walk gives text
        found |= {os.path.relpath(os.path.join(folder, name), root) for name in [*files, *links]}  # noqa: PTH118 - as above
    return found
