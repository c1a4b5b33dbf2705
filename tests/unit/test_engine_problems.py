"""What Prefect may keep of an error: the title, and nothing that names a file or quotes a session."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from autocode.jobs.engine.problems import StepFailed, presentable, problem, title_for_prefect
from autocode.jobs.errors import JobsError, SourceUnreadable, Transient

PATH = "/home/ada/secret.jsonl"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SourceUnreadable(f"{PATH} can't be looked at."), "A session file can't be read"),
        (FileNotFoundError(2, "No such file", PATH), "The job's code raised an error (FileNotFoundError)"),
        (presentable(ValueError(f"{PATH}: bad")), "The job's code raised an error (ValueError)"),
        (TimeoutError(PATH), "The time limit was reached"),
    ],
)
def test_prefect_gets_the_title_of_a_problem(error: Exception, expected: str) -> None:
    """A problem's detail may name a file for its owner; what a run or a task says in Prefect doesn't."""
    said = [title_for_prefect(error), str(StepFailed(presentable(error)))]

    assert said == [expected, expected]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("the call failed with password=hunter2hunter2"),
        Transient("The call failed with password=hunter2hunter2."),
        JobsError("It failed.", hint="Try again with password=hunter2hunter2."),
        TimeoutError("password=hunter2hunter2"),
    ],
)
def test_a_secret_in_an_error_is_not_stored(error: Exception) -> None:
    """What the ledger keeps of an error, and events show, has its secrets replaced, in the hint as well."""
    kept = problem(error, step="read", attempt=1, at=datetime(2026, 1, 5, tzinfo=UTC))

    assert "hunter2" not in repr(kept)
