"""What Prefect may keep of an error: the title, and nothing that names a file or quotes a session."""

from __future__ import annotations

import pytest

from autocode.jobs.engine.problems import StepFailed, presentable, title_for_prefect
from autocode.jobs.errors import SourceUnreadable

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
