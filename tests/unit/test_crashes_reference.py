"""The job that others are compared with: what it refuses, and where what it prints goes."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel

from autocode.jobs.errors import UsageError
from autocode.jobs.kinds import JobContext, Kind, Produced, StepContext
from autocode.jobs.testing.crashes.reference import check_steady, in_peace
from autocode.jobs.testing.crashes.workloads import Prepared, Workload


class Nothing(BaseModel):
    """A payload."""


def workload(make: Callable[[], bytes]) -> Workload:
    """Return a kind with one step, whose object is what *make* gives."""
    kind = Kind("odd", payload=Nothing, flow="none.py:none")

    @kind.step
    def only(context: StepContext, inputs: Nothing) -> Produced:
        return context.put([make()], "text/plain")

    @kind.main
    async def _main(job: JobContext[Nothing]) -> Produced:
        return await job.step(only, job.payload)

    return Workload(kind, lambda _: Prepared({}), {})


def test_a_kind_that_leaves_the_same_twice_is_steady(tmp_path: Path) -> None:
    """It may be compared."""
    check_steady(workload(lambda: b"always"), Prepared({}), tmp_path, "job")


def test_a_kind_that_leaves_other_bytes_each_time_is_refused(tmp_path: Path) -> None:
    """No comparison would say anything of it, and that is what the error says."""
    count = itertools.count()

    with pytest.raises(UsageError, match="left different bytes") as refused:
        check_steady(workload(lambda: str(next(count)).encode()), Prepared({}), tmp_path, "job")

    assert "chance" in refused.value.hint


def test_a_kind_that_fails_by_itself_is_named(tmp_path: Path) -> None:
    """The error says which kind, that nobody disturbed it, and what was raised."""

    def fail() -> bytes:
        raise ValueError("no such order")

    with pytest.raises(UsageError, match="'odd' that nobody disturbs fails: ValueError: no such order"):
        in_peace(workload(fail), Prepared({}), tmp_path, "job")


def test_what_a_kind_prints_stays_off_stdout(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A program may read stdout, so neither a print nor a write to the descriptor reaches it."""

    def chat() -> bytes:
        sys.stdout.write("printed\n")
        sys.stdout.flush()
        os.write(1, b"written\n")
        return b"done"

    in_peace(workload(chat), Prepared({}), tmp_path, "job")

    shown = capfd.readouterr()
    assert shown.out == ""
    assert {"printed", "written"} <= set(shown.err.split())
