"""Backoff and the bounded retry loop, with sleep and draws injected."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocode.jobs.errors import Permanent, Transient
from autocode.jobs.retry import Backoff, call_with_retries

BACKOFFS = st.builds(
    Backoff,
    first=st.floats(0, 1e6),
    factor=st.floats(1, 1e9),
    ceiling=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
)
DRAWS = st.floats(0, 1, exclude_max=True)


@given(BACKOFFS, st.integers(1, 10**9), DRAWS)
def test_a_pause_lies_between_the_unrandom_share_and_the_ceiling(
    backoff: Backoff, failures: int, draw: float
) -> None:
    """Jitter only shortens, by its fraction at most, and neither bound is ever passed."""
    full = backoff.delay(failures, lambda: 0.0)

    pause = backoff.delay(failures, lambda: draw)

    assert full * (1 - backoff.jitter) <= pause <= full <= backoff.ceiling


@given(BACKOFFS, st.integers(1, 2_000))
def test_without_jitter_pauses_never_shrink(backoff: Backoff, failures: int) -> None:
    """A later pause is at least as long as the one before."""
    assert backoff.delay(failures, lambda: 0.0) <= backoff.delay(failures + 1, lambda: 0.0)


def test_pauses_double_until_the_ceiling() -> None:
    """The plain case in numbers."""
    backoff = Backoff(first=1, factor=2, ceiling=10, jitter=0)

    assert backoff.delays(6) == [1, 2, 4, 8, 10, 10]


def test_jitter_takes_its_fraction_of_the_draw() -> None:
    """Half jitter and a draw of one half shorten the pause by a quarter."""
    assert Backoff(first=8, jitter=0.5).delay(1, lambda: 0.5) == 6


def test_a_growth_beyond_any_float_is_the_ceiling() -> None:
    """A large factor and many failures end at the ceiling, not in an overflow."""
    assert Backoff(factor=1e10, ceiling=30, jitter=0).delay(10_000) == 30
    assert Backoff(first=0, factor=1e10, ceiling=30, jitter=0).delay(10_000) == 0


@pytest.mark.parametrize("field", ["first", "factor", "ceiling", "jitter"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf])
def test_a_backoff_that_makes_no_sense_is_refused(field: str, value: float) -> None:
    """Negative, infinite and not-a-number settings are found when they are made, not when they are used."""
    with pytest.raises(ValueError, match="finite"):
        Backoff(**{field: value})


@pytest.mark.parametrize("failures", [0, -1])
def test_no_pause_precedes_the_first_failure(failures: int) -> None:
    """Asking for the pause after no failure is a mistake of the caller."""
    with pytest.raises(ValueError, match="at least one failure"):
        Backoff().delay(failures)


class Flaky:
    """Fails a number of times, then answers; counts its calls."""

    def __init__(self, failures: int, error: type[Exception] = Transient) -> None:
        self.failures, self.error, self.calls = failures, error, 0

    def __call__(self) -> str:
        """Fail or answer."""
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error(f"failure {self.calls}")
        return "answer"


PLAIN = Backoff(first=1, factor=2, jitter=0)


def test_a_call_is_repeated_until_it_succeeds() -> None:
    """Two failures and three attempts give the answer after the pauses of the backoff."""
    call, pauses = Flaky(2), list[float]()

    answer = call_with_retries(call, max_attempts=3, backoff=PLAIN, sleep=pauses.append)

    assert (answer, call.calls, pauses) == ("answer", 3, [1, 2])


def test_the_last_error_comes_out_once_attempts_are_spent() -> None:
    """The error is the last one, and no pause follows it."""
    call, pauses = Flaky(9, ValueError), list[float]()

    with pytest.raises(ValueError, match="failure 3"):
        call_with_retries(call, max_attempts=3, backoff=PLAIN, sleep=pauses.append)

    assert (call.calls, pauses) == (3, [1, 2])


@pytest.mark.parametrize("error", [Permanent, KeyboardInterrupt])
def test_what_another_try_cannot_cure_is_not_tried_again(error: type[Exception]) -> None:
    """A permanent error and an interrupt come out at once."""
    call, pauses = Flaky(9, error), list[float]()

    with pytest.raises(error, match="failure 1"):
        call_with_retries(call, max_attempts=3, backoff=PLAIN, sleep=pauses.append)

    assert (call.calls, pauses) == (1, [])


def test_every_pause_is_announced_before_it_begins() -> None:
    """The observer hears the error and the pause, in time to show them."""
    log: list[object] = []

    call_with_retries(
        Flaky(2),
        max_attempts=3,
        backoff=PLAIN,
        sleep=lambda pause: log.append(("slept", pause)),
        on_retry=lambda error, pause: log.append((str(error), pause)),
    )

    assert log == [("failure 1", 1), ("slept", 1), ("failure 2", 2), ("slept", 2)]


def test_a_budget_without_attempts_is_refused() -> None:
    """No attempt at all is no call, and the caller hears it before anything happens."""
    call = Flaky(0)

    with pytest.raises(ValueError, match="max_attempts"):
        call_with_retries(call, max_attempts=0, backoff=PLAIN)

    assert call.calls == 0


def storm(backoff: Backoff, *, clients: int = 300, outage: float = 10.0, room: int = 15) -> tuple[int, int]:
    """Let *clients* fail together, and return all their calls and the most in one tenth of a second.

    The service is down for *outage* seconds and then serves *room* calls each tenth.
    """
    draw = random.Random(20_240_229).random
    due = [(0.0, 0)] * clients
    calls, busiest = 0, 0
    while due:
        start = min(when for when, _ in due)
        tick = math.floor(start * 10 + 1e-9)
        now = [one for one in due if math.floor(one[0] * 10 + 1e-9) == tick]
        due = [one for one in due if math.floor(one[0] * 10 + 1e-9) != tick]
        served = room if tick / 10 >= outage else 0
        calls += len(now)
        busiest = max(busiest, len(now) if start else 0)
        due += [(when + backoff.delay(failures + 1, draw), failures + 1) for when, failures in now[served:]]
    return calls, busiest


def test_backoff_with_jitter_breaks_a_retry_storm() -> None:
    """After a common failure, spread and growing pauses cost the service far less than a fixed one."""
    fixed = storm(Backoff(first=1, factor=1, jitter=0))
    growing = storm(Backoff(first=1, factor=2, ceiling=60, jitter=0))
    jittered = storm(Backoff(first=1, factor=2, ceiling=60, jitter=1))

    assert fixed == (6_150, 300)
    assert growing[1] == 300
    assert (jittered[0] < fixed[0] / 3, jittered[1] < fixed[1] / 3) == (True, True)


def test_a_fixed_pause_keeps_the_herd_together() -> None:
    """Without jitter everybody comes back in the same instant, at every try."""
    backoff = Backoff(first=1, factor=1, jitter=0)

    arrivals = Counter(sum(backoff.delays(3)) for _ in range(100))

    assert arrivals == {3.0: 100}
