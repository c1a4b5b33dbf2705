"""Side by side: every item is worked on once, and an error ends it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from autocode.jobs.operations.export import parallel
from autocode.jobs.operations.export.parallel import side_by_side


@pytest.fixture(autouse=True)
def _three_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_cores", lambda: 3)


def test_every_item_is_worked_on_once() -> None:
    """What comes out is the work on each item, whoever did it."""
    results = list(side_by_side(range(1000), lambda number: number * 2))

    assert sorted(results) == list(range(0, 2000, 2))


def test_items_are_worked_on_at_the_same_time() -> None:
    """As many as there are cores are under way at once."""
    together = threading.Barrier(3)

    results = list(side_by_side(range(3), lambda _: together.wait(timeout=30)))

    assert sorted(results) == [0, 1, 2]


@pytest.mark.parametrize("broken", ["work", "source"])
def test_an_error_is_raised_where_results_are_taken(broken: str) -> None:
    """Neither an error of the work nor one of the source is lost, and nothing hangs."""

    def source() -> Iterator[int]:
        yield from range(10)
        if broken == "source":
            raise ValueError("broken")

    def work(number: int) -> int:
        if broken == "work" and number == 5:
            raise ValueError("broken")
        return number

    with pytest.raises(ValueError, match="broken"):
        list(side_by_side(source(), work))
