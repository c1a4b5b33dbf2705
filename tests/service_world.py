"""A supervisor of tiny processes, for tests; it imports neither pytest nor an engine."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from autocode.jobs.retry import Backoff
from autocode.jobs.service.custody import Custody
from autocode.jobs.service.health import Health, State
from autocode.jobs.service.leash import Leash
from autocode.jobs.service.log_files import PartLog
from autocode.jobs.service.process_part import Announcement, ProcessPart, Spec
from autocode.jobs.service.supervisor import Requests, Supervisor
from autocode.jobs.settings import Home

__all__ = ["DEAF", "FAILING", "SOURCES", "STEADY", "WITH_CHILD", "World", "lives", "until"]

SOURCES = Path(__file__).resolve().parents[1] / "src"

STEADY = """
import os, signal, sys, time
from pathlib import Path
from autocode.jobs.service import leash
leash.attach()
name, folder = sys.argv[1], Path(sys.argv[2])
def end(*_):
    with (folder / "ends").open("a") as file:
        file.write(name + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
(folder / f"{name}-{os.getpid()}").touch()
print("ready as", name, flush=True)
while True:
    time.sleep(60)
"""
"""Says that it is ready by a file with its id in the name; notes in a common file when it ends in order."""

FAILING = "import sys; sys.exit('no such table\\nreally')"
DEAF = STEADY.replace("signal.signal(signal.SIGTERM, end)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
WITH_CHILD = STEADY.replace(
    "leash.attach()", "leash.attach()\nchild = os.fork()\nif child == 0: time.sleep(300)"
)


class World:
    """A folder, the supervisor's belongings, and a supervisor that runs in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = Home(folder / "home")
        self.home.prepare()
        self.custody = Custody(self.home.run / "up")
        self.leash = Leash()
        self.requests = Requests()
        self.told: list[Health] = []
        self.parts: dict[str, ProcessPart] = {}
        self.in_order: bool | None = None
        self._thread: threading.Thread | None = None

    def part(
        self,
        name: str,
        code: str = STEADY,
        needs: tuple[str, ...] = (),
        start_seconds: float = 60.0,
        stop_seconds: float = 10.0,
    ) -> None:
        """Add a part that runs *code*."""

        def said(pid: int) -> Announcement | None:
            return Announcement() if (self.folder / f"{name}-{pid}").exists() else None

        spec = Spec(
            name=name,
            argv=(sys.executable, "-c", code, name, str(self.folder)),
            announced=said,
            environ={**os.environ, "PYTHONPATH": str(SOURCES)},
            needs=needs,
            start_seconds=start_seconds,
            stop_seconds=stop_seconds,
        )
        log = PartLog(self.home.logs, name)
        pauses = Backoff(first=0.05, ceiling=0.2)
        self.parts[name] = ProcessPart(spec, log, self.custody, self.leash, pauses=pauses)

    def start(self) -> None:
        """Run the supervisor in a thread."""
        supervisor = Supervisor(list(self.parts.values()), self.requests, told=self.told.append)

        def run() -> None:
            self.in_order = supervisor.run()

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def health(self, name: str) -> Health:
        """Return how a part is now."""
        return self.parts[name].health()

    def pid(self, name: str) -> int:
        """Return the process of a part that is ready."""
        self.wait(lambda: self.health(name).state is State.READY)
        pid = self.health(name).pid
        assert pid is not None
        return pid

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds."""
        until(condition, within=30)

    def stop(self) -> bool:
        """Ask once and wait for the end; return whether all was in order."""
        self.requests.note()
        assert self._thread is not None
        self._thread.join(60)
        assert self.in_order is not None
        return self.in_order

    def ends(self) -> list[str]:
        """Return the parts that ended in order, the first first."""
        return (self.folder / "ends").read_text().split() if (self.folder / "ends").exists() else []

    def close(self) -> None:
        """Leave nothing running, whatever the test did."""
        if self._thread is not None and self._thread.is_alive():
            self.requests.count = 2
            self._thread.join(60)
        self.custody.end(within=0.0)
        self.leash.close()


def lives(pid: int) -> bool:
    """Say whether a process lives; a zombie doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], bool], *, within: float = 30) -> None:
    """Wait until *condition* holds; fail once *within* seconds have passed."""
    end = time.monotonic() + within
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, f"not true within {within:.0f} s"
        pause.wait(0.02)
