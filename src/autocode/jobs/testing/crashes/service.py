"""A whole service on a temporary home, whose processes are there to be killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil

from autocode.jobs.client import Client, discover
from autocode.jobs.errors import Transient, UsageError
from autocode.jobs.service import leash
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore
from autocode.jobs.testing.crashes.cases import Victim
from autocode.jobs.testing.crashes.proxy import Proxy

__all__ = ["LEASH_SECONDS", "NotInTime", "OwnService", "until"]

_READY_SECONDS: Final = 150.0
_LOOK_SECONDS: Final = 0.02

LEASH_SECONDS: Final = "20"
"""How long what this process started may take to end in order once this process is gone."""


class NotInTime(Transient):
    """What had to come didn't come."""

    type = "not-in-time"
    title = "Something took too long"
    default_hint = "See the logs in the home that is named; run the case again with --keep."


def until(condition: Callable[[], bool], *, within: float, what: str, told: Callable[[], str] = str) -> None:
    """Wait until *condition* holds.

    Raises:
        NotInTime: *within* seconds passed; the error says *what* was waited for, and what *told* tells.
    """
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            raise NotInTime(f"It took more than {within:g} s until {what}. {told()}".strip())
        time.sleep(_LOOK_SECONDS)


class OwnService:
    """``autocode-jobs up`` on a home of its own, as a context manager that leaves nothing behind.

    Args:
        kinds: modules with job kinds, beside the project's own.
        environ: further variables of its processes.
        keep: leave the home where it is, to be looked at.
        proxy: the way to a PostgreSQL of somebody else's; without it the service has its own.
    """

    def __init__(
        self,
        *,
        kinds: Iterable[str] = (),
        environ: Mapping[str, str] | None = None,
        keep: bool = False,
        proxy: Proxy | None = None,
    ) -> None:
        if not sys.platform.startswith("linux"):
            raise UsageError("Processes can be found and stopped as this needs it on Linux alone.")
        self.keep = keep
        self.proxy = proxy
        self.folder = Path(tempfile.mkdtemp(prefix="autocode-crash-")).resolve()
        # where root runs this, PostgreSQL runs as somebody else, who has to get there
        self.folder.chmod(0o755)
        self.home = Home(self.folder / "home")
        self.store = LocalStore(self.home.store)
        self.order = self.home.run / "crash" / "order"
        self.clock = self.home.run / "crash" / "clock"
        self._environ = {
            **os.environ,
            "AUTOCODE_HOME": str(self.home.path),
            "AUTOCODE_POSTGRES_FOLDER": str(self.folder / "postgres"),
            "AUTOCODE_KINDS": ",".join(kinds),
            "AUTOCODE_CRASH": f"@{self.order}",
            "AUTOCODE_CLOCK": str(self.clock),
            # a job may be stopped for as long as a case takes
            "AUTOCODE_DRAIN_SECONDS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            **(environ or {}),
        }
        self._process: subprocess.Popen[str] | None = None
        self._parts: dict[str, dict[str, Any]] = {}
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.home.prepare()
        self.order.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            self.start()
        except BaseException as error:
            # whoever reads why it didn't start looks for the logs that it names
            self.keep = self.keep or isinstance(error, NotInTime)
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def environ(self) -> dict[str, str]:
        """The environment of its commands."""
        return dict(self._environ)

    def start(self) -> None:
        """Run ``up``, and wait until every part is ready.

        Raises:
            NotInTime: it isn't within two and a half minutes.
        """
        self._parts = {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "autocode.jobs.cli.main", "up", "--json", "--port", "0"],
            env={**self._environ, leash.VARIABLE: LEASH_SECONDS},
            # it ends with this process, however that ends
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Ctrl-C is for the harness, which then ends the service in order
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        self.ready()

    def ready(self) -> None:
        """Wait until every part is ready.

        Raises:
            NotInTime: not within two and a half minutes.
        """
        until(self._is_ready, within=_READY_SECONDS, what="the service was ready", told=self.told)

    def stop(self) -> int:
        """End it in order; return the exit status."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        return self._ended()

    def close(self) -> None:
        """Leave nothing running, whatever was done to it, and no files. Idempotent."""
        if self._process is not None and self._process.poll() is None:
            for process in self.processes():
                # a stopped process can't end in order
                with suppress(psutil.Error):
                    process.resume()
            with suppress(subprocess.TimeoutExpired):
                self.stop()
        self.kill(self.processes())
        with suppress(NotInTime):
            until(lambda: not self.processes(), within=30, what="the service was gone")
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def client(self, *, patience: float) -> Client:
        """Return a client that waits so many seconds through restarts."""
        found = discover(self.home, {}, patience=patience)
        if found is None:
            raise NotInTime("The service isn't there.")
        return found

    def url(self) -> str:
        """Return where the API answers; a restarted one has the address that it had before."""
        return str(json.loads((self.home.run / "api.json").read_text("utf-8"))["url"])

    def token(self) -> str:
        """Return what lets one in."""
        return (self.home.run / "token").read_text("ascii").strip()

    def pid(self, part: str) -> int:
        """Return the process of a part, as the supervisor told it last."""
        return int(self._parts[part]["pid"])

    def restarts(self) -> dict[str, int]:
        """Return how often each part was started again."""
        return {name: int(part["restarts"]) for name, part in self._parts.items()}

    def victims(self, victim: Victim, struck: int) -> list[psutil.Process]:
        """Return the processes that *victim* names; *struck* is the one that stopped at the crash point."""
        if victim is Victim.EVERYTHING:
            assert self._process is not None
            # a backend's title may have taken the place of what names the home
            others = [*(process.pid for process in self.processes()), *self.postgres()]
            return _existing([self._process.pid, *others])
        found = {
            Victim.CHILD: lambda: [struck],
            Victim.WORKER: lambda: self._tree("worker"),
            Victim.SERVERS: lambda: [self.pid("api"), self.pid("reconcile")],
            Victim.PREFECT: lambda: self._tree("prefect"),
            Victim.POSTGRES: self.postgres,
            Victim.NOBODY: list,
        }[victim]
        return _existing(found())

    def postgres(self) -> list[int]:
        """Return the postmaster and its backends."""
        keeper = json.loads((self.home.run / "postgres.json").read_text("utf-8"))
        return _tree(int(keeper["postgres"]))

    def processes(self) -> list[psutil.Process]:
        """Return every living process that names the home, in its environment or its command line."""
        wanted = os.fsencode(self.folder)
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            with suppress(OSError):
                if wanted in (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return _existing(found)

    @staticmethod
    def kill(processes: Iterable[psutil.Process], number: int = signal.SIGKILL) -> None:
        """Send a signal to each process that still is the one it was."""
        for process in processes:
            with suppress(psutil.Error):
                process.send_signal(number)

    def reap(self) -> None:
        """Wait for the supervisor, which was killed, and for everything that followed it."""
        self._ended()
        until(lambda: not self.processes(), within=60, what="nothing of it was left", told=self.told)

    def told(self) -> str:
        """Return how the parts are, in one line, and where their logs are."""
        parts = ", ".join(" ".join([name, *_condition(part)]) for name, part in self._parts.items())
        return f"The parts: {parts or 'none was started'}. Logs: {self.home.logs}"

    def _tree(self, part: str) -> list[int]:
        return _tree(self.pid(part))

    def _is_ready(self) -> bool:
        if self._process is not None and (status := self._process.poll()) is not None:
            raise NotInTime(f"`up` ended with status {status}. {self.told()}")
        return len(self._parts) >= len(_PARTS) and all(
            part.get("state") == "ready" for part in self._parts.values()
        )

    def _ended(self) -> int:
        assert self._process is not None
        status = self._process.wait(60)
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._reader is not None:
            self._reader.join(10)
        return status

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                with suppress(ValueError):
                    event = json.loads(line)
                    if event.get("event") == "health":
                        self._parts[event["part"]] = event


_PARTS: Final = ("postgres", "prefect", "api", "reconcile", "worker")


def _condition(part: Mapping[str, Any]) -> list[str]:
    said = part.get("detail") or []
    return [str(part.get("state")), *([f"({said[-1]})"] if said else [])]


def _tree(pid: int) -> list[int]:
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def _existing(pids: Iterable[int]) -> list[psutil.Process]:
    found = []
    for pid in dict.fromkeys(pids):
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found
