"""Job kinds that misbehave on purpose, for tests of the engine and of code that is built on it.

Each is registered under ``scenario-<name>``. What a step did is told from outside: it appends a line to the
*witness*, a file that the payload names, before it does anything else. The flows are in
``scenario_flows.py``, beside this file.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from autocode.jobs.errors import Permanent, Transient
from autocode.jobs.kinds import JobContext, Kind, Produced, StepContext, StepRetries, register
from autocode.jobs.retry import Backoff

__all__ = [
    "BROKEN",
    "EFFECT",
    "ERRAND",
    "FLAKY",
    "NOOP",
    "PERMANENT",
    "READER",
    "SLOW",
    "STUBBORN",
    "TEN_STEPS",
    "UNLUCKY",
    "WEAK",
    "ErrandPayload",
    "FlakyPayload",
    "Part",
    "Payload",
    "ReaderPayload",
    "SlowPayload",
    "witnessed",
]

_FLOWS: Final = Path(__file__).with_name("scenario_flows.py")
_TEXT: Final = "text/plain"


class Payload(BaseModel):
    """The payload of most scenarios.

    Args:
        witness: the file that steps append to; a scenario's payload may name a path, a real one's never.
        salt: makes the inputs of the steps differ between tests, where memo hits aren't wanted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    witness: str
    salt: str = ""


class FlakyPayload(Payload):
    """How often a flaky step fails before it succeeds, over all attempts together."""

    failures: int = 1


class SlowPayload(Payload):
    """How long a slow step takes in seconds."""

    seconds: float = 1.0


class ErrandPayload(Payload):
    """How long an errand takes at most, in seconds; it ends sooner once the file *gate* is there."""

    gate: str = ""
    seconds: float = 1.0


class ReaderPayload(Payload):
    """Which sessions a job says that it reads; ``None``: it can't say."""

    sessions: tuple[str, ...] | None = ()


class Part(BaseModel):
    """The inputs of one step: its number, and what its output depends on."""

    model_config = ConfigDict(frozen=True)

    number: int
    salt: str


class _Witnessed(Part):
    witness: str
    amount: float = 0.0
    gate: str = ""


def _kind(name: str, flow: str, payload: type[Payload], **options: Any) -> Kind[Any]:
    backoff = Backoff(first=0.1, factor=2.0, ceiling=1.0)
    defaults: dict[str, Any] = {
        "max_attempts": 3,
        "time_limit": 120.0,
        "backoff": backoff,
        # none of them reads a session
        "sessions": lambda _: frozenset(),
    }
    return register(Kind(f"scenario-{name}", payload=payload, flow=f"{_FLOWS}:{flow}", **defaults | options))


NOOP: Final = _kind("noop", "noop", Payload)
TEN_STEPS: Final = _kind("ten-steps", "ten_steps", Payload)
FLAKY: Final = _kind("flaky", "flaky", FlakyPayload)
PERMANENT: Final = _kind("permanent", "permanent", Payload)
BROKEN: Final = _kind("broken", "broken", Payload)
EFFECT: Final = _kind("effect", "effect", Payload)
SLOW: Final = _kind("slow", "slow", SlowPayload)
ERRAND: Final = _kind("errand", "errand", ErrandPayload, max_attempts=20)
WEAK: Final = _kind("weak", "weak", FlakyPayload)
UNLUCKY: Final = _kind("unlucky", "unlucky", FlakyPayload)
READER: Final = _kind(
    "reader",
    "reader",
    ReaderPayload,
    sessions=lambda payload: None if payload.sessions is None else frozenset(payload.sessions),
)
STUBBORN: Final = _kind("stubborn", "stubborn", SlowPayload, time_limit=2.0, max_attempts=1)

_QUICK: Final = StepRetries(count=3, backoff=Backoff(first=0.05, factor=2.0, ceiling=0.2))
_SEEN: Final = StepRetries(count=3, backoff=Backoff(first=0.9, factor=1.5, ceiling=2.0, jitter=0.1))
"""Pauses long enough for a reconciler that looks five times a second to see each of them."""
_NONE: Final = StepRetries(count=0)


def witnessed(witness: Path) -> list[str]:
    """Return what the steps of a job told *witness*, in order; nothing where none has begun."""
    return witness.read_text("utf-8").splitlines() if witness.exists() else []


def _tell(witness: str, line: str) -> None:
    # one write in append mode: lines of processes that write at once don't mix
    descriptor = os.open(witness, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


@NOOP.step
def nothing(context: StepContext, inputs: Part) -> Produced:
    """Leave one small object."""
    return context.put([f"nothing {inputs.salt}".encode()], _TEXT)


@NOOP.main
async def _noop(job: JobContext[Payload]) -> Produced:
    return await job.step(nothing, Part(number=0, salt=job.payload.salt))


@READER.step
def read_nothing(context: StepContext, inputs: Part) -> Produced:
    """Leave one small object."""
    return context.put([f"read {inputs.salt}".encode()], _TEXT)


@READER.main
async def _reader(job: JobContext[ReaderPayload]) -> Produced:
    return await job.step(read_nothing, Part(number=0, salt=job.payload.salt))


@TEN_STEPS.step
def part(context: StepContext, inputs: _Witnessed) -> Produced:
    """Tell the witness, and leave a small object."""
    _tell(inputs.witness, f"part {inputs.number}")
    return context.put([f"part {inputs.number} {inputs.salt}".encode()], _TEXT)


@TEN_STEPS.step
def join(context: StepContext, inputs: _Witnessed) -> Produced:
    """Leave an object that names the others."""
    _tell(inputs.witness, "join")
    return context.put([f"join {inputs.salt}".encode()], _TEXT)


@TEN_STEPS.main
async def _ten_steps(job: JobContext[Payload]) -> Produced:
    payload = job.payload
    for number in range(1, 11):
        inputs = _Witnessed(number=number, salt=payload.salt, witness=payload.witness)
        await job.step(part, inputs, label=f"part {number}")
        job.progress(number, 10, "parts")
    return await job.step(join, _Witnessed(number=11, salt=payload.salt, witness=payload.witness))


@FLAKY.step(retries=_SEEN, per_job=True)
def sometimes(context: StepContext, inputs: _Witnessed) -> Produced:
    """Fail in a transient way until the witness has seen enough tries."""
    _tell(inputs.witness, "try")
    if len(witnessed(Path(inputs.witness))) <= inputs.amount:
        raise Transient("The scenario fails for now.")
    return context.put([b"at last"], _TEXT)


@FLAKY.main
async def _flaky(job: JobContext[FlakyPayload]) -> Produced:
    payload = job.payload
    inputs = _Witnessed(number=1, salt=payload.salt, witness=payload.witness, amount=payload.failures)
    return await job.step(sometimes, inputs)


@PERMANENT.step
def never(_context: StepContext, inputs: _Witnessed) -> Produced:
    """Fail for good."""
    _tell(inputs.witness, "try")
    raise Permanent("The scenario can't succeed.", hint="Don't use this scenario.")


@PERMANENT.main
async def _permanent(job: JobContext[Payload]) -> Produced:
    return await job.step(never, _Witnessed(number=1, salt="", witness=job.payload.witness))


@BROKEN.step(retries=_NONE)
def broken_step(_context: StepContext, inputs: _Witnessed) -> Produced:
    """Raise what no room of this project raises, with a secret in its text."""
    _tell(inputs.witness, "try")
    raise ZeroDivisionError(f"password=hunter2hunter2 in part {inputs.number}")


@BROKEN.main
async def _broken(job: JobContext[Payload]) -> Produced:
    return await job.step(broken_step, _Witnessed(number=1, salt="", witness=job.payload.witness))


@EFFECT.step(retries=_NONE, per_job=True)
def once(context: StepContext, inputs: _Witnessed) -> Produced:
    """Change the world once, under an idempotency key."""

    def send(key: str) -> dict[str, str]:
        _tell(inputs.witness, f"effect {key}")
        return {"receipt": key}

    receipt = context.once(f"send:{inputs.salt}", send)
    return context.put([receipt["receipt"].encode()], _TEXT)


@EFFECT.step(retries=_NONE, per_job=True)
def after(context: StepContext, inputs: _Witnessed) -> Produced:
    """Do something behind the effect."""
    return context.put([f"after {inputs.salt}".encode()], _TEXT)


@EFFECT.main
async def _effect(job: JobContext[Payload]) -> Produced:
    inputs = _Witnessed(number=1, salt=job.payload.salt, witness=job.payload.witness)
    await job.step(once, inputs)
    return await job.step(after, inputs)


@SLOW.step(per_job=True)
def slow_step(context: StepContext, inputs: _Witnessed) -> Produced:
    """Take a while, looking up often."""
    _tell(inputs.witness, f"slow {os.getpid()}")
    _pass_time(inputs.amount, context)
    _tell(inputs.witness, f"slow ends {os.getpid()}")
    return context.put([f"slow {inputs.salt}".encode()], _TEXT)


@SLOW.main
async def _slow(job: JobContext[SlowPayload]) -> Produced:
    payload = job.payload
    inputs = _Witnessed(number=1, salt=payload.salt, witness=payload.witness, amount=payload.seconds)
    return await job.step(slow_step, inputs)


@ERRAND.step(per_job=True)
def leave(context: StepContext, inputs: Part) -> Produced:
    """Leave a checkpoint before the errand."""
    return context.put([f"leave {inputs.salt}".encode()], _TEXT)


@ERRAND.step(retries=_NONE, per_job=True)
def carry(context: StepContext, inputs: _Witnessed) -> Produced:
    """Change the world once and then take a while, so that a kill falls between that and the checkpoint."""
    _tell(inputs.witness, f"begin {os.getpid()} {inputs.salt}")

    def send(key: str) -> dict[str, str]:
        _tell(inputs.witness, f"effect {key}")
        return {"receipt": key}

    receipt = context.once(f"carry:{inputs.salt}", send)
    _pass_time(inputs.amount, context, gate=inputs.gate)
    return context.put([receipt["receipt"].encode()], _TEXT)


@ERRAND.main
async def _errand(job: JobContext[ErrandPayload]) -> Produced:
    payload = job.payload
    await job.step(leave, Part(number=0, salt=payload.salt))
    inputs = _Witnessed(
        number=1, salt=payload.salt, witness=payload.witness, amount=payload.seconds, gate=payload.gate
    )
    return await job.step(carry, inputs)


@WEAK.step(retries=_NONE, per_job=True)
def give_in(context: StepContext, inputs: _Witnessed) -> Produced:
    """End the attempt with a transient error until the witness has seen enough tries."""
    _tell(inputs.witness, "try")
    if len(witnessed(Path(inputs.witness))) <= inputs.amount:
        raise Transient("The scenario fails for now.")
    return context.put([b"at last"], _TEXT)


@WEAK.main
async def _weak(job: JobContext[FlakyPayload]) -> Produced:
    payload = job.payload
    inputs = _Witnessed(number=1, salt=payload.salt, witness=payload.witness, amount=payload.failures)
    return await job.step(give_in, inputs)


@UNLUCKY.step(retries=_NONE, per_job=True)
def stumble(context: StepContext, inputs: _Witnessed) -> Produced:
    """Take the process down, as if by the kernel, until the witness has seen enough tries."""
    _tell(inputs.witness, "try")
    if len(witnessed(Path(inputs.witness))) <= inputs.amount:
        os.kill(os.getpid(), signal.SIGKILL)
    return context.put([b"alive"], _TEXT)


@UNLUCKY.main
async def _unlucky(job: JobContext[FlakyPayload]) -> Produced:
    payload = job.payload
    inputs = _Witnessed(number=1, salt=payload.salt, witness=payload.witness, amount=payload.failures)
    return await job.step(stumble, inputs)


@STUBBORN.step(per_job=True)
def stubborn_step(context: StepContext, inputs: _Witnessed) -> Produced:
    """Take a while and never look up."""
    _tell(inputs.witness, f"stubborn {os.getpid()}")
    _pass_time(inputs.amount, None)
    return context.put([b"too late"], _TEXT)


@STUBBORN.main
async def _stubborn(job: JobContext[SlowPayload]) -> Produced:
    payload = job.payload
    inputs = _Witnessed(number=1, salt=payload.salt, witness=payload.witness, amount=payload.seconds)
    return await job.step(stubborn_step, inputs)


def _pass_time(seconds: float, context: StepContext | None, *, gate: str = "") -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (gate and Path(gate).exists()):
        if context is not None:
            context.check()
        time.sleep(0.02)
