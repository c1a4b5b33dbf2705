"""What the witnesses say about one home, as tables that are the same in every run of a lesson."""

from __future__ import annotations

import hashlib
import os
import re
import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from autocode.jobs.settings import Home
from autocode.jobs.testing.lessons import witness_ledger, witness_store
from autocode.jobs.testing.lessons.figures import Lane, Mark
from autocode.jobs.testing.lessons.tables import Cell, Table
from autocode.jobs.testing.lessons.witness_ledger import AttemptRow, CheckpointRow
from autocode.jobs.testing.lessons.witness_prefect import PrefectWitness, TaskRow
from autocode.jobs.testing.lessons.witness_store import ObjectFile

__all__ = ["VARIES", "Evidence", "short"]

VARIES: Final = "varies"
"""Stands for the digest of an object that holds the name of the lesson's own temporary folder."""

_CUT: Final = re.compile(r" [0-9a-f]{12}(?= part|$)")
_INSIDE: Final = ("step.mid-write", "step.after-object")


class Evidence:
    """Asks the witnesses about one home. Nothing here goes through the code that is under observation.

    Args:
        home: the home.
        bundles: where its bundles are delivered.
        root: the lesson's folder; objects that name it differ from run to run.
        prefect: gives Prefect's API.
    """

    def __init__(self, home: Home, bundles: Path, root: Path, prefect: Callable[[], PrefectWitness]) -> None:
        self._home = home
        self._bundles = bundles
        self._root = os.fsencode(root)
        self._prefect = prefect

    def checkpoints(self) -> list[CheckpointRow]:
        """Return the checkpoints of all jobs in order, from the ledger's file."""
        ledger = self._home.ledger
        return [row for job in witness_ledger.jobs(ledger) for row in witness_ledger.checkpoints(ledger, job)]

    def ledger_table(self) -> Table:
        """Return the checkpoints: number, step, the attempt that did it, and the digest that it left."""
        objects = self.objects()
        return self._by_job(
            ("checkpoint", "step", "attempt", "digest"),
            [
                (row.job_id, (row.seq, row.step, row.attempt, self._digest(row.digest, objects)))
                for row in self.checkpoints()
            ],
        )

    def attempts_table(self) -> Table:
        """Return the attempts: how each ended by the ledger, and what Prefect says of its run."""
        return self._by_job(
            ("attempt", "the ledger says", "Prefect says"),
            [
                (row.job_id, (row.n, _outcome(row), self._run_state(row)))
                for job in witness_ledger.jobs(self._home.ledger)
                for row in witness_ledger.attempts(self._home.ledger, job)
            ],
        )

    def events_table(self) -> Table:
        """Return what was told of the jobs, in order: what a browser that listens would have heard."""
        return self._by_job(
            ("event", "attempt", "checkpoint"),
            [
                (event.job_id, (event.type, event.attempt, event.checkpoint))
                for job in witness_ledger.jobs(self._home.ledger)
                for event in witness_ledger.told(self._home.ledger, job)
            ],
        )

    def tasks(self) -> list[TaskRow]:
        """Return Prefect's task runs of the newest job's last attempt, which has ended."""
        jobs = witness_ledger.jobs(self._home.ledger)
        if not jobs:
            return []
        last = witness_ledger.attempts(self._home.ledger, jobs[-1])[-1]
        steps = [row.step for row in witness_ledger.checkpoints(self._home.ledger, jobs[-1])]
        return [] if last.run_id is None else self._prefect().task_runs(last.run_id, steps)

    def objects(self) -> dict[str, ObjectFile]:
        """Return what is in the store, by name."""
        return witness_store.listing(self._home.store)

    def store_table(self, since: Mapping[str, ObjectFile] | None = None) -> Table:
        """Return the objects: name, size, whether the bytes are as promised, which checkpoint names them.

        Args:
            since: an earlier :meth:`objects`; adds what became of each file since then.
        """
        named = {row.digest.removeprefix("sha256:"): row.step for row in self.checkpoints()}
        rows: list[tuple[Cell, ...]] = []
        objects = self.objects()
        for name, found in sorted(objects.items(), key=lambda item: (self._varies(item[1]), item[0])):
            varies = self._varies(found)
            row: tuple[Cell, ...] = (
                VARIES if varies else name[:12],
                # a size that depends on the length of a folder's name is no number to print
                VARIES if varies or found.content is None else len(found.content),
                "yes" if found.whole else "NO",
                named.get(name, "-"),
            )
            rows.append(row if since is None else (*row, _change(found, since.get(name))))
        columns = ("object", "bytes", "whole", "named by checkpoint")
        return Table.of(columns if since is None else (*columns, "file"), rows)

    def artifact(self) -> str:
        """Return the newest bundle's identity, hashed from the delivered file; ``"-"`` if there is none."""
        manifests = sorted(self._bundles.glob("*/manifest.json"), key=lambda path: path.stat().st_mtime_ns)
        return hashlib.sha256(manifests[-1].read_bytes()).hexdigest()[:12] if manifests else "-"

    def summary(self) -> tuple[Cell, ...]:
        """Return what is compared of the newest job: attempts, steps, reuse, artifact, last digest."""
        job = witness_ledger.jobs(self._home.ledger)[-1]
        rows = witness_ledger.checkpoints(self._home.ledger, job)
        first = sum(row.attempt == 1 for row in rows)
        cached = sum(task.steps for task in self.tasks() if task.state == "Cached")
        last = short(rows[-1].digest) if rows else "-"
        attempts = len(witness_ledger.attempts(self._home.ledger, job))
        return (attempts, first, len(rows) - first, cached, self.artifact(), last)

    def lane(self, name: str, kills: Sequence[str]) -> tuple[list[str], Lane]:
        """Return the steps of the newest job, and its lane in a timeline.

        Args:
            name: what the lane is called.
            kills: the crash points at which its processes were killed, in order.
        """
        job = witness_ledger.jobs(self._home.ledger)[-1]
        rows = witness_ledger.checkpoints(self._home.ledger, job)
        cached = sum(task.steps for task in self.tasks() if task.state == "Cached")
        remaining = list(kills)
        lanes: list[tuple[Mark, ...]] = []
        places: dict[int, float] = {}
        for attempt in witness_ledger.attempts(self._home.ledger, job):
            marks = [
                Mark.DONE if row.attempt == attempt.n
                else Mark.REUSED if row.attempt < attempt.n and place < cached
                else Mark.NOTHING
                for place, row in enumerate(rows)
            ]  # fmt: skip
            if attempt.outcome in {"crashed", "lost"} and remaining:
                done = sum(row.attempt <= attempt.n for row in rows)
                inside = remaining.pop(0).startswith(_INSIDE)
                places[len(lanes)] = done + (0.5 if inside else 0.0)
                if inside:
                    marks[done] = Mark.LOST
            lanes.append(tuple(marks))
        return [_CUT.sub("", row.step) for row in rows], Lane(name, tuple(lanes), places)

    def _by_job(self, columns: tuple[str, ...], rows: Sequence[tuple[str, tuple[Cell, ...]]]) -> Table:
        """Return a table that says which job a row belongs to, where there are several."""
        jobs = witness_ledger.jobs(self._home.ledger)
        if len(jobs) < 2:
            return Table.of(columns, [cells for _, cells in rows])
        names = dict(zip(jobs, string.ascii_uppercase, strict=False))
        return Table.of(("job", *columns), [(f"job-{names[job]}", *cells) for job, cells in rows])

    def _run_state(self, row: AttemptRow) -> str:
        if row.run_id is None:
            return "-"
        return self._prefect().run_state(row.run_id, final=row.outcome is not None)

    def _varies(self, found: ObjectFile | None) -> bool:
        return found is not None and found.content is not None and self._root in found.content

    def _digest(self, digest: str, objects: Mapping[str, ObjectFile]) -> str:
        return VARIES if self._varies(objects.get(digest.removeprefix("sha256:"))) else short(digest)


def short(digest: str) -> str:
    """Return the first twelve digits of a digest."""
    return digest.removeprefix("sha256:")[:12]


def _outcome(row: AttemptRow) -> str:
    if row.outcome is not None:
        return row.outcome
    return "begun, no end" if row.begun else "not begun"


def _change(now: ObjectFile, before: ObjectFile | None) -> str:
    if before is None:
        return "new"
    return "kept" if before.identity == now.identity else "rewritten"
