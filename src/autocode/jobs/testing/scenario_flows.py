"""The flows of :mod:`autocode.jobs.testing.scenarios`."""

from __future__ import annotations

from autocode.jobs.engine.attempt import run_attempt
from autocode.jobs.engine.steps import job_flow, step_task
from autocode.jobs.testing import scenarios as s

_noop = (step_task(s.nothing),)
_reader = (step_task(s.read_nothing),)
_ten_steps = (step_task(s.part), step_task(s.join))
_flaky = (step_task(s.sometimes),)
_permanent = (step_task(s.never),)
_broken = (step_task(s.broken_step),)
_effect = (step_task(s.once), step_task(s.after))
_slow = (step_task(s.slow_step),)
_errand = (step_task(s.leave), step_task(s.carry))
_weak = (step_task(s.give_in),)
_unlucky = (step_task(s.stumble),)
_stubborn = (step_task(s.stubborn_step),)


@job_flow(s.NOOP)
async def noop(witness: str, salt: str = "") -> str:
    """Do nothing."""
    return await run_attempt(s.NOOP, {"witness": witness, "salt": salt}, _noop)


@job_flow(s.READER)
async def reader(witness: str, salt: str = "", sessions: list[str] | None = None) -> str:
    """Say which sessions are read, and read none."""
    payload = {"witness": witness, "salt": salt, "sessions": sessions}
    return await run_attempt(s.READER, payload, _reader)


@job_flow(s.TEN_STEPS)
async def ten_steps(witness: str, salt: str = "") -> str:
    """Take ten steps, and one that joins them."""
    return await run_attempt(s.TEN_STEPS, {"witness": witness, "salt": salt}, _ten_steps)


@job_flow(s.FLAKY)
async def flaky(witness: str, salt: str = "", failures: int = 1) -> str:
    """Fail a few times, then succeed."""
    payload = {"witness": witness, "salt": salt, "failures": failures}
    return await run_attempt(s.FLAKY, payload, _flaky)


@job_flow(s.PERMANENT)
async def permanent(witness: str, salt: str = "") -> str:
    """Fail for good."""
    return await run_attempt(s.PERMANENT, {"witness": witness, "salt": salt}, _permanent)


@job_flow(s.BROKEN)
async def broken(witness: str, salt: str = "") -> str:
    """Raise what nobody expects."""
    return await run_attempt(s.BROKEN, {"witness": witness, "salt": salt}, _broken)


@job_flow(s.EFFECT)
async def effect(witness: str, salt: str = "") -> str:
    """Change the world once."""
    return await run_attempt(s.EFFECT, {"witness": witness, "salt": salt}, _effect)


@job_flow(s.SLOW)
async def slow(witness: str, salt: str = "", seconds: float = 1.0) -> str:
    """Take a while."""
    return await run_attempt(s.SLOW, {"witness": witness, "salt": salt, "seconds": seconds}, _slow)


@job_flow(s.ERRAND)
async def errand(witness: str, salt: str = "", gate: str = "", seconds: float = 1.0) -> str:
    """Change the world once, and take a while."""
    payload = {"witness": witness, "salt": salt, "gate": gate, "seconds": seconds}
    return await run_attempt(s.ERRAND, payload, _errand)


@job_flow(s.WEAK)
async def weak(witness: str, salt: str = "", failures: int = 1) -> str:
    """Fail a few attempts, then succeed."""
    payload = {"witness": witness, "salt": salt, "failures": failures}
    return await run_attempt(s.WEAK, payload, _weak)


@job_flow(s.UNLUCKY)
async def unlucky(witness: str, salt: str = "", failures: int = 1) -> str:
    """Take the process down a few times, then succeed."""
    payload = {"witness": witness, "salt": salt, "failures": failures}
    return await run_attempt(s.UNLUCKY, payload, _unlucky)


@job_flow(s.STUBBORN)
async def stubborn(witness: str, salt: str = "", seconds: float = 1.0) -> str:
    """Take a while and ignore every request to stop."""
    return await run_attempt(s.STUBBORN, {"witness": witness, "salt": salt, "seconds": seconds}, _stubborn)
