"""A lesson: commands that run and are killed on homes of their own, and what the witnesses say of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from autocode.jobs.errors import UnexpectedError, UsageError
from autocode.jobs.testing.lessons import witness_ledger, witness_store
from autocode.jobs.testing.lessons.checks import Claim, check, judge
from autocode.jobs.testing.lessons.evidence import Evidence
from autocode.jobs.testing.lessons.figures import Figure, timeline
from autocode.jobs.testing.lessons.machinery import Machinery
from autocode.jobs.testing.lessons.runs import Run
from autocode.jobs.testing.lessons.tables import Table, Text
from autocode.jobs.testing.lessons.witness_kernel import Opened, watching
from autocode.jobs.testing.lessons.witness_store import ObjectFile

__all__ = ["Lesson", "start"]

_SUMMARY: Final = ("attempts", "done in 1", "done later", "Cached", "artifact", "last checkpoint")


def start(number: str, *, sessions: int = 3) -> Lesson:
    """Start a lesson; returns at once, while its Prefect server starts in the background.

    Args:
        number: the lesson's number, as in its file's name.
        sessions: how many sample sessions there are to work on, 2 to 5.

    Raises:
        UsageError: *sessions* is out of range.
    """
    return Lesson(number, sessions=sessions)


class Lesson:
    """Runs the real command on *homes* (data folders of their own, by name), and asks what happened.

    Whatever is printed is the same on every machine and in every run: no time, path, port, process id or job
    id. Homes come into being when they are first named. Belongs to one thread.

    Args:
        number: the lesson's number.
        sessions: how many sample sessions there are.
    """

    def __init__(self, number: str, *, sessions: int) -> None:
        self._number = number
        self._machinery = Machinery(number, sessions=sessions)
        self._runs: Counter[str] = Counter()
        self._kills: defaultdict[str, list[str]] = defaultdict(list)

    def __repr__(self) -> str:
        count = len(self.sessions())
        return f"lesson {self._number} is ready: {count} sessions to export, a Prefect server of its own"

    def sessions(self) -> Table:
        """Return what there is to export."""
        return self._machinery.folders.table()

    def fresh(self, *homes: str) -> None:
        """Empty the named homes and what they delivered, so that a cell can be run again. Idempotent."""
        for home in homes:
            self._machinery.folders.remove(home)
            self._kills.pop(home, None)

    def run(self, command: str, *options: str, home: str = "main", crash_at: str | None = None) -> Run:
        """Run ``autocode-jobs`` as a process of its own, and wait for its end.

        Args:
            command: the command; ``export`` exports the lesson's sessions.
            options: more of the command line.
            home: on which home.
            crash_at: the crash point at which SIGKILL strikes, as ``AUTOCODE_CRASH`` takes it.

        Raises:
            ServerUnavailable: the lesson's Prefect server didn't start.
            UnexpectedError: the command didn't end.
        """
        folders = self._machinery.folders
        chosen = folders.home(home)
        argv = [*command.split(), *options]
        if command == "export":
            argv += [str(folders.sessions), "-o", str(folders.bundles(home)), "--json"]
            folders.bundles(home).mkdir(parents=True, exist_ok=True)
        environment = {"AUTOCODE_HOME": str(chosen.path)}
        if crash_at is not None:
            environment["AUTOCODE_CRASH"] = crash_at
        # a command that found no server would start one itself, which would end with it
        assert self._machinery.address.pid > 0
        self._runs[home] += 1
        out, err = folders.outputs(home, self._runs[home])
        status = self._machinery.launcher.start(argv, environment, out, err).wait()
        run = Run(
            " ".join([command, *options]),
            status,
            crash_at,
            out.read_text("utf-8", "replace"),
            err.read_text("utf-8", "replace"),
        )
        if run.killed and crash_at is not None:
            self._kills[home].append(crash_at)
        return run

    def watch(self) -> AbstractContextManager[Opened]:
        """Note which sessions are opened within a ``with`` block, as the operating system saw it."""
        return watching(self._machinery.folders.sessions)

    def ledger(self, home: str = "main") -> Table:
        """Return the checkpoints that the ledger's file holds."""
        return self._evidence(home).ledger_table()

    def attempts(self, home: str = "main") -> Table:
        """Return the attempts, as the ledger's file and Prefect's API tell of them."""
        return self._evidence(home).attempts_table()

    def events(self, home: str = "main") -> Table:
        """Return what was told of the job while it ran, in order; without reports of progress."""
        return self._evidence(home).events_table()

    def prefect(self, home: str = "main") -> Table:
        """Return Prefect's task runs of the last attempt, which has to have ended."""
        return Table.of(
            ("task run", "Prefect says"), [(task.name, task.state) for task in self._evidence(home).tasks()]
        )

    def store(self, home: str = "main", *, since: Mapping[str, ObjectFile] | None = None) -> Table:
        """Return the objects in the store's folder; with *since*, also what became of each file since then.

        Args:
            home: whose store.
            since: an earlier :meth:`objects` of the same home.
        """
        return self._evidence(home).store_table(since)

    def objects(self, home: str = "main") -> dict[str, ObjectFile]:
        """Return the objects in the store's folder by name, to compare with a later look."""
        return self._evidence(home).objects()

    def query(self, sql: str, home: str = "main") -> Table:
        """Return what the ledger's file answers to *sql*; the file is opened for reading only.

        Raises:
            UsageError: SQLite can't answer it.
        """
        try:
            columns, rows = witness_ledger.query(self._machinery.folders.home(home).ledger, sql)
        except witness_ledger.Error as error:
            raise UsageError(f"The ledger can't answer that: {error}.") from error
        return Table.of(columns, [["-" if cell is None else cell for cell in row] for row in rows])

    def damage(self, step: str, home: str = "main") -> Text:
        """Change one byte of the object that the checkpoint of *step* names, and say so.

        Args:
            step: the step's name, or the beginning of it.
            home: whose store.

        Raises:
            UsageError: no checkpoint is of such a step.
        """
        for row in self._evidence(home).checkpoints():
            if row.step.startswith(step):
                name = row.digest.removeprefix("sha256:")
                witness_store.damage(self._machinery.folders.home(home).store, name)
                return Text(f"one byte changed in the object of {row.step!r}")
        raise UsageError(f"No checkpoint of the home {home!r} is of a step {step!r}.")

    def artifact(self, home: str = "main") -> Text:
        """Return the first digits of the newest bundle's identity: the SHA-256 of the delivered manifest."""
        return Text(self._evidence(home).artifact())

    def compare(self, homes: Sequence[str]) -> Table:
        """Return a line for each of *homes*: attempts, steps, reuse, artifact and last checkpoint."""
        return Table.of(("home", *_SUMMARY), [(home, *self._evidence(home).summary()) for home in homes])

    def timeline(self, homes: Sequence[str], *, title: str) -> Figure:
        """Return a figure of what each attempt did with each step, one home below the other.

        Raises:
            UsageError: the homes don't hold jobs of the same steps.
        """
        drawn = [self._evidence(home).lane(home, self._kills[home]) for home in homes]
        steps = drawn[0][0] if drawn else []
        if any(each != steps for each, _ in drawn):
            raise UsageError("A timeline compares jobs of the same steps, and these differ.")
        return timeline(steps, [lane for _, lane in drawn], title=title)

    def check(self, *claims: Claim) -> Text:
        """Return which claims hold, each with its reason; see :func:`.checks.check`."""
        return check(*claims)

    def answer(self, prediction: str, *, right: str, options: Mapping[str, str]) -> Text:
        """Return what there is to say about the reader's prediction; see :func:`.checks.judge`."""
        return judge(prediction, right=right, options=options)

    def stop(self) -> Text:
        """End everything that the lesson started and remove its folder. Idempotent.

        Raises:
            UnexpectedError: something is left; the detail names it.
        """
        left = self._machinery.close()
        if left:
            raise UnexpectedError(f"Something of the lesson is left: {'; '.join(left)}.")
        return Text("server stopped, nothing left running")

    def _evidence(self, home: str) -> Evidence:
        folders = self._machinery.folders
        return Evidence(
            folders.home(home), folders.bundles(home), folders.root, lambda: self._machinery.prefect
        )
