"""A Ctrl-C that waits until the work can be stopped."""

from __future__ import annotations

import signal
import threading

import pytest

from autocode.jobs.cli.interrupts import deferred


@pytest.fixture(autouse=True)
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give SIGINT Python's own handler, as the command does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_ctrl_c_waits_for_the_next_check() -> None:
    """Between two checks nothing is interrupted; the next one raises."""
    reached = []

    def work() -> None:
        with deferred() as check:
            check()
            signal.raise_signal(signal.SIGINT)
            reached.append("after the signal")
            check()
            reached.append("after the check")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["after the signal"]


def test_ctrl_c_that_nobody_checked_is_raised_at_the_end() -> None:
    """What the user asked for isn't forgotten when the block ends first."""
    reached = []

    def work() -> None:
        with deferred():
            signal.raise_signal(signal.SIGINT)
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["the end"]


def test_a_second_ctrl_c_interrupts_at_once() -> None:
    """Who presses it twice doesn't want to wait."""
    reached = []

    def work() -> None:
        with deferred():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            reached.append("after the second")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == []


def test_patience_ends() -> None:
    """Work that never looks up is interrupted when the patience is over."""

    def work() -> None:
        with deferred(patience=0.01):
            signal.raise_signal(signal.SIGINT)
            threading.Event().wait(30)
            pytest.fail("nobody interrupted the wait")

    with pytest.raises(KeyboardInterrupt):
        work()


def test_handlers_are_as_before_and_no_timer_is_left() -> None:
    """After the block Ctrl-C interrupts as it did, and no alarm is pending."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)

    with deferred() as check:
        check()

    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_another_thread_is_left_alone() -> None:
    """Only the main thread hears signals; elsewhere the check does nothing."""
    done = []

    def work() -> None:
        with deferred() as check:
            check()
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert done == [True]
