"""Cases of the kill matrix: their text, and what can't be one."""

from __future__ import annotations

import pytest

from autocode.jobs.errors import UsageError
from autocode.jobs.testing.crashes.cases import Case, Fault, Victim
from autocode.jobs.testing.crashes.runner import Matrix
from autocode.jobs.testing.crashes.space import every
from autocode.jobs.testing.crashes.workloads import own


def test_every_case_is_what_its_text_says() -> None:
    """The text that repeats a case names that case, for the whole space."""
    cases = every(own())

    assert [Case.parse(str(case)) for case in cases] == cases
    assert len({str(case) for case in cases}) == len(cases) > 1000


def test_a_case_is_written_in_words() -> None:
    """Kind, point with passage, fault, and the victim where the fault takes one."""
    kill = Case("export", "step.before", 2, Fault.KILL, Victim.WORKER)

    assert str(kill) == "export step.before:2 kill worker"
    assert Case.parse("  mail step.mid-write:1 full-disk ") == Case(
        "mail", "step.mid-write", 1, Fault.FULL_DISK
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "export",
        "export step.before kill worker",
        "export step.before:0 kill worker",
        "export step.befor:1 kill worker",
        "export step.before:1 tickle worker",
        "export step.before:1 kill manager",
        "export step.before:1 kill",
        "export step.before:1 kill nobody",
        "export step.before:1 clock-back worker",
        "export step.before:1 full-disk",
        "export step.before:1 damage",
        "export step.before:1 kill worker twice",
    ],
)
def test_what_is_no_case_is_refused_in_words(text: str) -> None:
    """A typo, a fault without its victim, and a disk that fails where nothing is written."""
    with pytest.raises(UsageError) as caught:
        Case.parse(text)

    assert str(caught.value)


def test_a_case_of_another_kind_is_refused_before_anything_starts() -> None:
    """The matrix runs what it was given workloads for."""
    matrix = Matrix(own())

    with pytest.raises(UsageError, match="no workload"):
        matrix.run(Case.parse("mail step.before:1 kill worker"))
