"""Byte ranges and conditions, as RFC 9110 has them."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from autocode.jobs.api.ranges import is_unchanged, span_of
from autocode.jobs.request_errors import RangeUnsatisfiable

TAG = '"abc"'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=2-5", (2, 6)),
        ("bytes=2-", (2, 10)),
        ("bytes=2-999", (2, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-999", (0, 10)),
        ("Bytes = 9 - 9", (9, 10)),
        ("bytes=0-1,3-4", None),
        ("bytes=5-2", None),
        ("bytes=-", None),
        ("bytes=a-b", None),
        ("bytes=0x1-2", None),
        ("lines=1-2", None),
        ("bytes=" + "9" * 40 + "-", None),
    ],
)
def test_a_range_of_ten_bytes(text: str, expected: tuple[int, int] | None) -> None:
    """One range of bytes is cut at the end; several, foreign and malformed ones mean all of it."""
    assert span_of(Headers({"range": text}), TAG, 10) == expected


@pytest.mark.parametrize(("text", "size"), [("bytes=10-", 10), ("bytes=-0", 10), ("bytes=0-0", 0)])
def test_a_range_behind_the_end(text: str, size: int) -> None:
    """A range that holds no byte is refused, with the size."""
    with pytest.raises(RangeUnsatisfiable) as caught:
        span_of(Headers({"range": text}), TAG, size)

    assert caught.value.data == {"size": size}


@pytest.mark.parametrize(
    ("condition", "held"),
    [(TAG, True), ('"other"', False), ('W/"abc"', False), ("Wed, 21 Oct 2015 07:28:00 GMT", False)],
)
def test_a_range_of_a_known_version_only(condition: str, held: bool) -> None:
    """With If-Range another tag, a weak one and a date mean all of it."""
    found = span_of(Headers({"range": "bytes=1-2", "if-range": condition}), TAG, 10)

    assert (found is not None) is held


@pytest.mark.parametrize(
    ("text", "unchanged"),
    [(TAG, True), (f"W/{TAG}", True), ("*", True), (f'"x", {TAG}', True), ('"x,abc"', False), ("abc", False)],
)
def test_if_none_match(text: str, unchanged: bool) -> None:
    """If-None-Match is compared weakly, in a list too, and never by a part of a tag."""
    assert is_unchanged(Headers({"if-none-match": text}), TAG) is unchanged
