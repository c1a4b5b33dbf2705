"""What the kill matrix runs: payloads that share nothing, and kinds of somebody's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from autocode.jobs.errors import JobsError, UsageError
from autocode.jobs.testing.crashes.cases import JOB_POINTS
from autocode.jobs.testing.crashes.workloads import Place, of_user, own

pytest_plugins = ["fixtures_examples"]


def place(folder: Path, number: int) -> Place:
    """Return the place of one case."""
    mine = folder / str(number)
    mine.mkdir()
    return Place(
        f"case-{number}", number, mine, f"http://127.0.0.1:1/case-{number}", lambda path: path.parent.name
    )


def test_payloads_of_two_cases_differ_and_fit(tmp_path: Path) -> None:
    """Each kind takes what is made for it, and no two cases ask for the same."""
    first, second = place(tmp_path, 1), place(tmp_path, 2)

    for workload in own():
        one, two = workload.prepare(first), workload.prepare(second)
        assert workload.kind.parse(one.payload) != workload.kind.parse(two.payload), workload.name


def test_each_point_is_passed_by_some_kind() -> None:
    """No crash point that a job passes is left out of the matrix."""
    assert {point for workload in own() for point in workload.nths} == set(JOB_POINTS)


def test_places_are_filled_into_a_users_payload(examples: Path, tmp_path: Path) -> None:
    """Where effects are counted and what the case is called stand where the payload says so."""
    workload = of_user("notify_order:NOTIFY", {"receiver": "{witness}/mail", "order": "o-{case}"})

    prepared = workload.prepare(place(tmp_path, 7))

    assert prepared.payload == {"receiver": "http://127.0.0.1:1/case-7/mail", "order": "o-case-7"}
    assert workload.modules == ("notify_order:NOTIFY",)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("there_is_no_such:THING", "module:KIND"),
        ("json:THING", "no attribute"),
        ("json", "no job kind in it"),
        ("autocode.jobs.testing.scenarios", "several job kinds"),
    ],
)
def test_a_kind_that_is_not_there_is_said_not_to_be(spec: str, said: str) -> None:
    """What is wrong with the name is told, and how it is written."""
    with pytest.raises(JobsError) as caught:
        of_user(spec, {})

    assert said in f"{caught.value} {caught.value.hint}"


def test_a_payload_that_does_not_fit_is_refused_before_anything_starts(examples: Path) -> None:
    """A payload of the wrong shape is told at once, and not by each case."""
    with pytest.raises(UsageError, match="payload"):
        of_user("notify_order:NOTIFY", {"receiver": 1, "order": "{case}"})
    with pytest.raises(UsageError, match="same payload"):
        of_user("notify_order:NOTIFY", {"receiver": "http://127.0.0.1", "order": "always the same"})
