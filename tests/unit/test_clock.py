"""Times as the contract writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocode.jobs.clock import SystemClock, parse_time, rfc3339

AWARE = st.datetimes(min_value=datetime(1000, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC))


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2025, 3, 1, 12, 0, tzinfo=UTC), "2025-03-01T12:00:00.000Z"),
        (datetime(2025, 3, 1, 12, 0, 0, 999_999, tzinfo=UTC), "2025-03-01T12:00:00.999Z"),
        (datetime(2025, 3, 1, 1, 30, tzinfo=timezone(timedelta(hours=2))), "2025-02-28T23:30:00.000Z"),
    ],
)
def test_times_are_written_in_utc_with_milliseconds(moment: datetime, text: str) -> None:
    """A time is written as RFC 3339 in UTC, cut to whole milliseconds."""
    assert rfc3339(moment) == text


def test_no_time_stays_no_time() -> None:
    """What has no time is written and read as nothing."""
    assert rfc3339(None) is None
    assert parse_time(None) is None


def test_a_naive_time_is_refused() -> None:
    """A time without a zone is a guess."""
    with pytest.raises(ValueError, match="zone"):
        rfc3339(datetime(2025, 3, 1))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2025-03-01T12:00:00Z", datetime(2025, 3, 1, 12, 0, tzinfo=UTC)),
        ("2025-03-01t12:00:00z", datetime(2025, 3, 1, 12, 0, tzinfo=UTC)),
        ("2025-03-01T12:00:00.5+02:00", datetime(2025, 3, 1, 10, 0, 0, 500_000, tzinfo=UTC)),
        ("2025-03-01 12:00:00.123456789-00:30", datetime(2025, 3, 1, 12, 30, 0, 123_456, tzinfo=UTC)),
    ],
)
def test_every_form_of_rfc_3339_is_read(text: str, moment: datetime) -> None:
    """Any zone, any number of digits, small letters and a space: all that RFC 3339 allows is read, as UTC."""
    assert parse_time(text) == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2025-03-01",
        "2025-03-01T12:00:00",
        "2025-02-30T12:00:00Z",
        "2025-W09-6T12:00:00Z",
        "20250301T120000Z",
        "2025-03-01T12:00Z",
        "2025-03-01T12:00:00Z\n",
        "2025-03-01x12:00:00Z",
        "٢٠٢٥-03-01T12:00:00Z",
    ],
)
def test_other_forms_are_refused(text: str) -> None:
    """What isn't an RFC 3339 time, or has no zone, is refused."""
    with pytest.raises(ValueError, match=r"zone|RFC 3339|month|day"):
        parse_time(text)


@given(AWARE)
def test_what_is_written_is_read_back(moment: datetime) -> None:
    """A time comes back from its text, cut to milliseconds, and texts sort as times do."""
    cut = moment.replace(microsecond=moment.microsecond // 1000 * 1000)

    assert parse_time(rfc3339(moment)) == cut


@given(AWARE, AWARE)
def test_texts_sort_as_times(first: datetime, second: datetime) -> None:
    """Texts of times sort as the times do, to the millisecond."""
    texts = [rfc3339(first) or "", rfc3339(second) or ""]

    assert [parse_time(text) for text in sorted(texts)] == sorted(parse_time(text) or first for text in texts)


def test_the_system_clock_is_cut_and_aware() -> None:
    """The machine's clock gives aware times in whole milliseconds, and a clock that never goes back."""
    clock = SystemClock()

    moment, first, second = clock.now(), clock.monotonic(), clock.monotonic()

    assert moment.tzinfo is UTC
    assert moment.microsecond % 1000 == 0
    assert first <= second


def test_a_file_puts_the_clock_wrong_while_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For tests of clocks that jump: its seconds are added to the time, and to nothing that is measured."""
    offset = tmp_path / "clock"
    monkeypatch.setenv("AUTOCODE_CLOCK", str(offset))
    clock = SystemClock()

    right, measured = clock.now(), clock.monotonic()
    offset.write_text("-3600")
    wrong, still_measured = clock.now(), clock.monotonic()
    offset.unlink()
    again = clock.now()

    assert timedelta(minutes=-60) <= wrong - right < timedelta(minutes=-59)
    assert timedelta() <= again - right < timedelta(minutes=1)
    assert 0 <= still_measured - measured < 60
