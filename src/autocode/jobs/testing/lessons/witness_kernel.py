"""Which files were opened, as the kernel of the operating system saw it (``inotify(7)``, Linux)."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from autocode.jobs.testing.lessons.tables import Text

__all__ = ["Opened", "watching"]

_LOOK_MILLISECONDS = 20


class Opened:
    """The files of a folder that were opened within a block.

    Args:
        known: whether this system tells.
    """

    def __init__(self, *, known: bool) -> None:
        self.known = known
        self.seen: set[str] = set()

    @property
    def names(self) -> list[str]:
        """The names of the files without their endings, sorted."""
        return sorted(name.rpartition(".")[0] or name for name in self.seen)

    def __repr__(self) -> str:
        if not self.known:
            return Text("this system doesn't tell which files were opened")
        return Text(f"opened: {', '.join(self.names) or 'nothing'}")


@contextmanager
def watching(folder: Path) -> Iterator[Opened]:
    """Note every file right in *folder* that is opened within the block, by whatever process.

    Where there is no inotify nothing is noted, and the result says so.
    """
    if importlib.util.find_spec("inotify_simple") is None:
        yield Opened(known=False)
        return
    from inotify_simple import INotify, flags  # noqa: PLC0415 - Linux alone has it

    opened = Opened(known=True)
    with closing(INotify()) as watcher:
        watcher.add_watch(folder, flags.OPEN)
        done = threading.Event()

        def collect() -> None:
            while True:
                ended = done.is_set()
                # read once more after the end: what happened before it is in the queue already
                for event in watcher.read(timeout=0 if ended else _LOOK_MILLISECONDS):
                    if not event.mask & flags.ISDIR:
                        opened.seen.add(event.name)
                if ended:
                    return

        thread = threading.Thread(target=collect, daemon=True)
        thread.start()
        try:
            yield opened
        finally:
            done.set()
            thread.join()
