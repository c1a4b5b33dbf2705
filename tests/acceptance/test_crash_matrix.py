"""A tenth of the kill matrix: a disturbed job ends as an undisturbed one. `make test-crash` runs the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autocode.jobs.testing.crashes.cases import Case
from autocode.jobs.testing.crashes.runner import Matrix
from autocode.jobs.testing.crashes.space import committed, tenth
from autocode.jobs.testing.crashes.workloads import of_user, own

pytest_plugins = ["fixtures_examples"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PAYLOAD = {"receiver": "{witness}/orders", "order": "{case}"}


@pytest.fixture(scope="module")
def matrix(module_examples: Path) -> Iterator[Matrix]:
    """Give services with the project's own kinds and those of the how-to page."""
    users = [of_user(f"{name}:NOTIFY", PAYLOAD) for name in ("notify_order", "notify_order_cured")]
    with Matrix([*own(), *users]) as matrix:
        yield matrix


@pytest.mark.parametrize("case", tenth(committed()), ids=str)
def test_a_disturbed_job_ends_as_an_undisturbed_one(matrix: Matrix, case: Case) -> None:
    """Nothing is lost, nothing repeated, nothing left behind, and no status lied."""
    verdict = matrix.run(case)

    assert (verdict.violations, verdict.unjudged) == ((), None)
    assert verdict.reached


@pytest.mark.parametrize("point", ["step.after-checkpoint:3", "result.before:1"])
def test_an_object_that_was_damaged_is_made_again(matrix: Matrix, point: str) -> None:
    """Neither what is remembered of a step nor a result counts once its bytes have changed."""
    verdict = matrix.run(Case.parse(f"scenario-ten-steps {point} damage"))

    assert (verdict.violations, verdict.unjudged) == ((), None)
    assert (verdict.reached, verdict.attempts) == (True, 2)


def test_an_undisturbed_job_passes(matrix: Matrix) -> None:
    """The judge finds nothing in a job that is only stopped for a moment."""
    verdicts = [matrix.run(Case.parse(f"{work.name} step.before:1 none")) for work in own()]

    assert [(each.violations, each.unjudged, each.attempts, each.redelivered) for each in verdicts] == [
        ((), None, 1, 0)
    ] * len(verdicts)


@pytest.mark.parametrize(("kind", "applied"), [("notify-order", "2 times"), ("notify-order-cured", None)])
def test_an_effect_outside_the_fence_is_found_and_its_cure_too(
    matrix: Matrix, kind: str, applied: str | None
) -> None:
    """The how-to page's example repeats its effect when it is killed behind it, and its cure doesn't."""
    verdict = matrix.run(Case.parse(f"{kind} step.after-object:1 kill child"))

    assert [violation.found for violation in verdict.violations] == ([applied] if applied else [])
    assert (verdict.reached, verdict.attempts, verdict.unjudged) == (True, 2, None)
