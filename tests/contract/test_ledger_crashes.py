"""Stop every writing operation after each of its statements: all of it happened, or nothing did."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
import sqlalchemy as sa

import ledger_operations
from autocode.jobs.errors import AttemptEnded
from autocode.jobs.ledger import queries, results, schema
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.types import UtcTime
from autocode.jobs.model import JobStatus
from ledger_operations import OPERATIONS, Operation, Stopped, stopping_at
from ledger_world import contents, look, produced, started

VARYING = {"token", "data", "id", "begun_event", "ended_event", "cancel_event"}
"""Beside times: tokens, what holds times, and event ids, which a rolled-back transaction may use up."""

COUNTING = {
    "renew",
    "reserve",
    "commit_step",
    "set_progress",
    "intend",
    "append",
    "request_cancel by a person",
    "request_retry",
    "request_retry from the start",
    "request_retry of a cancelled job",
}
"""Operations that move a counter or add an entry each time that they are done."""


@pytest.fixture(scope="module")
def executioner() -> Iterator[subprocess.Popen[str]]:
    """Run a process that performs operations in children of its own, which are killed on the way."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, ledger_operations.__file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def killed(executioner: subprocess.Popen[str], *request: Any) -> bool:
    """Have *request* performed and say whether its process was killed by SIGKILL."""
    assert executioner.stdin is not None
    assert executioner.stdout is not None
    print(json.dumps(request), file=executioner.stdin, flush=True)
    return executioner.stdout.readline().strip() == str(int(signal.SIGKILL))


def varies(column: sa.Column[Any]) -> bool:
    """Say whether the column differs between two runs of the same operation."""
    return column.name in VARYING or isinstance(column.type, UtcTime)


def everything(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Return all rows; of what differs between two runs of an operation, only whether it is there."""
    whole = contents(database)
    return {
        table.name: [
            {
                column.name: value is not None if varies(column) else value
                for column, value in zip(table.columns, row, strict=True)
            }
            for row in whole[table.name]
        ]
        for table in schema.metadata.sorted_tables
        if table is not schema.meta
    }


def stop() -> None:
    """Stop the operation as an error would."""
    raise Stopped


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_an_error_after_any_statement(operation: Operation, database: Database) -> None:
    """An operation that fails after any of its statements leaves nothing behind; done again, it succeeds."""
    attempt = operation.arrange(database)
    before = everything(database)
    k, finished = 0, False
    while not finished:
        k += 1
        with stopping_at(database, k, stop) as seen:
            try:
                operation.act(database, attempt)
            except Stopped:
                assert everything(database) == before, f"stopped after statement {k}: {seen[-1]}"
            else:
                finished = True

    assert k > 2
    assert everything(database) != before


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_a_kill_after_any_statement(
    operation: Operation, database: Database, ledger_url: str, executioner: subprocess.Popen[str]
) -> None:
    """A process killed before its commit leaves the state before, and one killed after it the state after."""
    attempt = operation.arrange(database)
    fields = None if attempt is None else asdict(attempt)
    before = everything(database)
    k = 0
    while everything(database) == before:
        k += 1
        assert k < 40
        assert killed(executioner, ledger_url, operation.name, fields, k)

    after = everything(database)
    assert k > 2
    if operation.name == "begin":
        # the claim stands and its process is gone: reconcile ends the attempt when the lease runs out
        with pytest.raises(AttemptEnded):
            operation.act(database, attempt)
    else:
        operation.act(database, attempt)
    assert operation.name in COUNTING or everything(database) == after


def test_a_migration_that_fails_anywhere(empty_url: str) -> None:
    """A migration that fails after any of its statements leaves no table behind; done again, it succeeds."""
    database = Database(empty_url)
    k, finished = 0, False
    while not finished:
        k += 1
        with stopping_at(database, k, stop) as seen:
            try:
                database.migrate()
            except Stopped:
                with database.read() as tx:
                    assert sa.inspect(tx).get_table_names() == [], f"stopped after {seen[-1]}"
            else:
                finished = True

    assert k > 20
    assert {name for name, rows in contents(database).items() if rows} == {"counters", "meta"}
    database.close()


def test_what_was_committed_before_a_kill_is_told_later(database: Database) -> None:
    """Facts of a process that died are told by whoever looks next, up to the verified result."""
    attempt = started(database)
    results.commit_result(database, attempt, produced("r"))
    results.mark_verified(database, "job", produced("r").digest)

    look(database)

    assert queries.get(database, "job").status is JobStatus.COMPLETE
