"""The ring of the newest events: what it keeps, what it lets go, and which reports may be left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autocode.jobs.api.ring import Entry, Ring


def entry(number: int, job_id: str = "job", *, progress: bool = False, text: str = "{}") -> Entry:
    """Return one event."""
    return Entry(number, job_id, None, frozenset(), progress, text)


@given(
    most=st.integers(1, 8),
    most_bytes=st.integers(1, 3_000),
    sizes=st.lists(st.integers(0, 900), max_size=30),
    batch=st.integers(1, 5),
)
def test_what_is_kept_is_the_newest_without_a_gap(
    most: int, most_bytes: int, sizes: list[int], batch: int
) -> None:
    """It holds every event above its floor, within its bounds unless the newest alone is larger."""
    ring = Ring(most, most_bytes)
    entries = [entry(number, text="x" * size) for number, size in enumerate(sizes, start=1)]
    for first in range(0, len(entries), batch):
        some = entries[first : first + batch]
        ring.append(some, some[-1].number)

    assert ring.after(ring.floor, 100) == entries[ring.floor :]
    assert ring.top == len(entries)
    assert len(ring) <= most
    assert ring.bytes <= most_bytes or len(ring) == 1


def test_who_is_within_gets_what_follows() -> None:
    """A reader gets what is above its position, in portions, and nothing where nothing is."""
    ring = Ring(10, 1 << 20)
    ring.begin(5)
    ring.append([entry(6), entry(8), entry(9)], 12)

    numbers = [[each.number for each in ring.after(position, 2)] for position in (5, 6, 7, 8, 9, 12)]

    assert numbers == [[6, 8], [8, 9], [8, 9], [9], [], []]
    assert (ring.floor, ring.top) == (5, 12)


def test_only_a_report_that_was_overtaken_may_be_left_out() -> None:
    """Progress may be left out where a later event of its job is there; the last may not, and no fact."""
    ring = Ring(3, 1 << 20)
    old, early, begun, late = (
        entry(1, progress=True),
        entry(2, progress=True),
        entry(3),
        entry(4, progress=True),
    )
    other = entry(5, "other", progress=True)
    ring.append([old, early, begun, late, other], 5)

    assert [ring.is_overtaken(each) for each in (early, begun, late, other)] == [True, False, False, False]
    assert len(ring) == 3
