"""Ids, times and token totals."""

from __future__ import annotations

import pytest

from autocode.jobs.sessions import Report
from autocode.jobs.sessions.identity import Calls, Identities
from autocode.jobs.sessions.times import normalise
from autocode.jobs.sessions.usage import Totals


def identities(limit: int = 100) -> tuple[Identities, Report]:
    """Return an allocator of ids and its report."""
    report = Report(tool="t", reader="r", revision=1)
    return Identities(report, limit=limit), report


def test_an_own_id_is_used_once() -> None:
    """The second record with an id gets one from its position, and that is counted."""
    ids, report = identities()

    assert [ids.claim("a", "L1"), ids.claim("a", "L2"), ids.claim(None, "L3")] == ["a", "L2", "L3"]
    assert report.lost == {"duplicate-id": 1}


@pytest.mark.parametrize("own", ["", "L7", "L7.1", "session", "a b", "a\n", "\ud800", "x" * 101, 5, ["a"]])
def test_an_own_id_that_could_be_mistaken_is_not_used(own: object) -> None:
    """Ids that look like ours, hold odd characters or are no string are replaced and counted."""
    ids, report = identities()

    assert ids.claim(own, "L1") == "L1"
    assert report.lost == {"unusable-id": 1}


def test_parts_never_take_an_id_that_is_taken() -> None:
    """A part of one record can't get the own id of another, in whichever order they come."""
    ids, report = identities()
    ids.claim("a.1", "L1")
    ids.claim("b", "L2")

    made = [ids.part("a", "L3", 0), ids.part("a", "L3", 1), ids.part("b", "L2", 1), ids.part("L4", "L4", 1)]

    assert made == ["a", "L3.1", "b.1", "L4.1"]
    assert ids.claim("b.1", "L5") == "L5"
    assert report.lost == {"duplicate-id": 1}


@pytest.mark.parametrize(
    ("edges", "loops"),
    [
        ([("a", None), ("b", "a"), ("c", "b")], 0),
        ([("a", "a")], 1),
        ([("a", "b"), ("b", "a")], 1),
        ([("a", "c"), ("b", "a"), ("c", "b")], 1),
        ([("a", "x"), ("b", "x"), ("x", None)], 0),
        ([("a", "x"), ("b", "x"), ("x", "b")], 1),
        ([("a", "b"), ("c", "d"), ("d", "a"), ("b", "c")], 1),
        ([("a", "nowhere"), ("b", "a")], 0),
    ],
)
def test_loops_of_parents_are_counted(edges: list[tuple[str, str | None]], loops: int) -> None:
    """A loop is counted once, at the record that closes it; parents that come later are no loop."""
    ids, report = identities()

    for number, (own, parent) in enumerate(edges):
        ids.claim(own, f"L{number}", parent)

    assert report.lost["cyclic-parent"] == loops


def test_past_the_limit_ids_come_from_positions() -> None:
    """When no more ids can be remembered, records get ids that are unique without memory."""
    ids, report = identities(limit=1)

    assert [ids.claim("a", "L1"), ids.claim("b", "L2"), ids.part("a", "L1", 1)] == ["a", "L2", "L1.1"]
    assert report.lost == {"id-limit": 1}


def test_calls_are_forgotten_oldest_first() -> None:
    """A call is found until too many others were made after it."""
    calls = Calls(limit=2)

    for name in ("a", "b", "c"):
        calls.made(name, f"record-{name}")

    assert [calls.find("a"), calls.find("c"), calls.find(None)] == [None, "record-c", None]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2026-02-07T22:04:44.409Z", "2026-02-07T22:04:44.409Z"),
        ("2026-02-07T22:04:44Z", "2026-02-07T22:04:44.000Z"),
        ("2026-02-07T23:04:44.409876+01:00", "2026-02-07T22:04:44.409Z"),
        ("2026-02-07 22:04:44.409999z", "2026-02-07T22:04:44.409Z"),
        ("2026-02-07T22:04:44.409", None),
        ("2026-02-30T22:04:44.409Z", None),
        ("2026-02-07T24:00:00.000Z", None),
        ("2026-02-07T22:04:60.000Z", None),
        ("1970-01-01T00:00:00.000Z", None),
        ("9999-12-31T23:59:59.999Z", None),
        ("9999-12-31T23:59:59-23:00", None),
        ("2026-W01-1T22:04:44.409Z", None),
        ("yesterday", None),
        ("\u0662026-02-07T22:04:44.409Z", None),
        (1770501884409, None),
        (None, None),
    ],
)
def test_times_are_normalised_or_refused(given: object, expected: str | None) -> None:
    """A time in RFC 3339 with a zone becomes UTC with milliseconds; anything else is no time."""
    assert normalise(given) == expected


def test_the_last_record_of_a_message_counts() -> None:
    """Records of a streamed message replace each other in the totals; others add up."""
    sums = {"input": 0, "output": 0}
    totals = Totals(sums, limit=2)

    for output in (1, 5, 3):
        totals.add({"input": 10, "output": output}, ("m", "r"))
    totals.add({"input": 1, "output": 1})
    totals.add({"input": 1, "output": 1})

    assert sums == {"input": 12, "output": 5}


def test_messages_past_the_limit_are_settled() -> None:
    """What was counted stays counted when a message is too old to be corrected."""
    sums = {"input": 0}
    totals = Totals(sums, limit=1)

    for key in ("a", "b", "a"):
        totals.add({"input": 1}, (key, ""))

    assert sums == {"input": 3}
