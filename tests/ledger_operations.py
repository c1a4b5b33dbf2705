"""Each public operation that writes to the ledger, with the situation it needs, for tests that kill it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from autocode.jobs.errors import JobNotDead
from autocode.jobs.ledger import attempts, audit, checkpoints, effects, jobs, results, retries
from autocode.jobs.ledger.attempts import Attempt
from autocode.jobs.ledger.database import Database
from autocode.jobs.projection import Outcome
from ledger_world import TickingClock, begin, commit, look, memo_key, new_job, problem, produced, started


class Stopped(Exception):
    """Raised in place of a process's death."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A situation, and the operation that is interrupted in it."""

    name: str
    arrange: Callable[[Database], Attempt | None]
    act: Callable[[Database, Attempt | None], Any]


def _enqueued(db: Database) -> None:
    jobs.enqueue(db, new_job())


def _due(db: Database) -> None:
    _enqueued(db)
    attempts.set_run(db, "job", 1, "run")


def _running(db: Database) -> Attempt:
    attempt = started(db)
    checkpoints.reserve(db, attempt, produced("part").digest, 4)
    return attempt


def _worked(db: Database) -> Attempt:
    attempt = _running(db)
    commit(db, attempt, "a")
    results.set_progress(db, attempt, done=1)
    effects.intend(db, attempt, "mail")
    return attempt


def _committed(db: Database) -> Attempt:
    attempt = _worked(db)
    results.commit_result(db, attempt, produced("r"))
    return attempt


def _verified(db: Database) -> Attempt:
    attempt = _committed(db)
    results.mark_verified(db, "job", produced("r").digest)
    return attempt


def _called_off(db: Database) -> None:
    _enqueued(db)
    results.request_cancel(db, "job")
    look(db)


def _dead(db: Database) -> Attempt:
    attempt = _worked(db)
    attempts.end(db, "job", 1, Outcome.PERMANENT, error=problem())
    look(db)
    return attempt


def _retry(db: Database, start: retries.Start = "checkpoint") -> None:
    """Ask for a retry; who doesn't hear the answer and asks again is told that the job isn't dead."""
    with suppress(JobNotDead):
        retries.request_retry(db, "job", actor="ann", reason="disk", start=start, attempts=2)


def _cancel(db: Database, _: Attempt | None) -> None:
    results.request_cancel(db, "job", actor="ann", reason="a mistake")


def _keyed(db: Database, _: Attempt | None) -> None:
    jobs.enqueue(db, new_job(idempotency_key="key"))


def _held(attempt: Attempt | None) -> Attempt:
    assert attempt is not None
    return attempt


def _step(db: Database, attempt: Attempt | None) -> None:
    whole = produced("whole", "part")
    checkpoints.commit_step(db, _held(attempt), memo_key(), whole, label="bundle", reused=False)


def _note(db: Database, _: Attempt | None) -> None:
    audit.append(db, actor="ann", action="retry", target="job", reason="disk", outcome="done")


OPERATIONS: Final = (
    Operation("enqueue", lambda _: None, lambda db, _: jobs.enqueue(db, new_job())),
    Operation("set_run", _enqueued, lambda db, _: attempts.set_run(db, "job", 1, "run")),
    Operation("attach_or_enqueue", lambda _: None, lambda db, _: jobs.attach_or_enqueue(db, new_job())),
    Operation("pick_due", _due, lambda db, _: attempts.pick_due(db, "job", "worker")),
    Operation("begin", _enqueued, lambda db, _: begin(db)),
    Operation("renew", _running, lambda db, a: attempts.renew(db, _held(a))),
    Operation("end", _worked, lambda db, _: attempts.end(db, "job", 1, Outcome.CRASHED, error=problem())),
    Operation("close_run", _committed, lambda db, _: attempts.close_run(db, "job", 1)),
    Operation("reserve", _running, lambda db, a: checkpoints.reserve(db, _held(a), produced("x").digest, 1)),
    Operation("commit_step", _running, _step),
    Operation("forget", _worked, lambda db, _: checkpoints.forget(db, memo_key(inputs="a"))),
    Operation("set_progress", _worked, lambda db, a: results.set_progress(db, _held(a), done=2)),
    Operation("commit_result", _worked, lambda db, a: results.commit_result(db, _held(a), produced("r"))),
    Operation(
        "mark_verified", _committed, lambda db, _: results.mark_verified(db, "job", produced("r").digest)
    ),
    Operation("reject_result", _committed, lambda db, _: results.reject_result(db, "job", 1, problem())),
    Operation("request_cancel", _worked, lambda db, _: results.request_cancel(db, "job")),
    Operation("request_cancel by a person", _worked, _cancel),
    Operation("request_retry", _dead, lambda db, _: _retry(db)),
    Operation("request_retry from the start", _dead, lambda db, _: _retry(db, "start")),
    Operation("request_retry of a cancelled job", _called_off, lambda db, _: _retry(db)),
    Operation("enqueue with a key", lambda _: None, _keyed),
    Operation("intend", _running, lambda db, a: effects.intend(db, _held(a), "mail")),
    Operation("finish_effect", _worked, lambda db, a: effects.finish_effect(db, _held(a), "mail", {"id": 1})),
    Operation("append", lambda _: None, _note),
    Operation("stamp", _verified, lambda db, _: look(db)),
)
"""Every public function of the ledger that writes, but for ``migrate``, which has tests of its own."""


@contextmanager
def stopping_at(db: Database, k: int, stop: Callable[[], None]) -> Iterator[list[str]]:
    """Call *stop* right after the *k*-th statement within the block, counted from 1; a commit counts too.

    At a commit *stop* is called right before it. Yields the statements seen so far; the list grows.
    """
    seen: list[str] = []

    def count(statement: str) -> None:
        seen.append(statement)
        if len(seen) == k:
            stop()

    def after_statement(_c: object, _cursor: object, statement: str, *_: object) -> None:
        count(statement)

    def before_commit(_connection: object) -> None:
        count("COMMIT")

    sa.event.listen(db._engine, "after_cursor_execute", after_statement)
    sa.event.listen(db._engine, "commit", before_commit)
    try:
        yield seen
    finally:
        sa.event.remove(db._engine, "after_cursor_execute", after_statement)
        sa.event.remove(db._engine, "commit", before_commit)


def die() -> None:
    """End this process as the kernel would."""
    os.kill(os.getpid(), signal.SIGKILL)


def act_and_die(url: str, name: str, attempt: Attempt | None, k: int) -> None:
    """Perform the operation *name* here and be killed at its *k*-th statement, or else after it."""
    db = Database(url, clock=TickingClock())
    with db.read() as tx:
        tx.execute(sa.select(1))
    with stopping_at(db, k, die):
        next(operation for operation in OPERATIONS if operation.name == name).act(db, attempt)
    die()


def serve() -> None:
    """Fork a child for each request on standard input, and answer with the signal that ended it.

    A child of a process that has imported everything starts in milliseconds.
    """
    for url in ("sqlite:///never-opened.db", "postgresql+psycopg://"):
        Database(url)  # imports the driver
    for line in sys.stdin:
        url, name, fields, k = json.loads(line)
        child = os.fork()
        if child == 0:
            act_and_die(url, name, None if fields is None else Attempt(**fields), k)
        _, status = os.waitpid(child, 0)
        print(os.WTERMSIG(status), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    serve()
