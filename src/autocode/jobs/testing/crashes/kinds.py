"""Job kinds for the kill matrix; the setting ``kinds`` takes this module's name.

The flows are in ``flows.py``, beside this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from autocode.jobs.errors import Permanent, Transient
from autocode.jobs.kinds import JobContext, Kind, Produced, StepContext, register
from autocode.jobs.retry import Backoff

__all__ = [
    "ORDER",
    "Confirmation",
    "Deed",
    "Item",
    "OrderPayload",
    "charge",
    "confirm",
    "item",
    "reserve",
    "ship",
]

_FLOWS: Final = Path(__file__).with_name("flows.py")
_TEXT: Final = "text/plain"
_POST_SECONDS: Final = 10.0

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,100}$")]
"""What fits into an idempotency key, which is a header."""


class OrderPayload(BaseModel):
    """An order.

    Args:
        witness: the URL that its effects are told to, with the case in it.
        order: its name. It is part of the effects' keys, which count for all jobs of a ledger: one that was
            used before has no effects any more.
        items: how many small steps come before the effects.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    witness: str
    order: _Name
    items: int = Field(default=3, ge=0, le=1000)


class Item(BaseModel):
    """One item of an order; number 0 stands for all of them."""

    model_config = ConfigDict(frozen=True)

    order: str
    number: int = 0


class Deed(BaseModel):
    """An effect of an order, and what it is about."""

    model_config = ConfigDict(frozen=True)

    witness: str
    order: str
    reserved: str


class Confirmation(BaseModel):
    """The digests of what the two effects left."""

    model_config = ConfigDict(frozen=True)

    order: str
    charged: str
    shipped: str


ORDER: Final = register(
    Kind(
        "scenario-order",
        payload=OrderPayload,
        flow=f"{_FLOWS}:order",
        # a case is judged by what the job left and not by its luck: no fault may use up the budget
        max_attempts=20,
        backoff=Backoff(first=0.1, factor=2.0, ceiling=1.0),
        time_limit=120.0,
    )
)


@ORDER.step
def item(context: StepContext, inputs: Item) -> Produced:
    """Leave a small object; the same order again finds it."""
    return context.put([f"item {inputs.number} of {inputs.order}".encode()], _TEXT)


@ORDER.step
def reserve(context: StepContext, inputs: Item) -> Produced:
    """Leave an object that stands for what is reserved."""
    return context.put([f"reserved for {inputs.order}".encode()], _TEXT)


@ORDER.step(per_job=True)
def charge(context: StepContext, inputs: Deed) -> Produced:
    """Charge the order once."""
    return _do(context, inputs, "charge")


@ORDER.step(per_job=True)
def ship(context: StepContext, inputs: Deed) -> Produced:
    """Ship the order once."""
    return _do(context, inputs, "ship")


@ORDER.step
def confirm(context: StepContext, inputs: Confirmation) -> Produced:
    """Leave an object that names what the effects left, and needs it."""
    deeds = [inputs.charged, inputs.shipped]
    lines = [f"order {inputs.order}", f"charged {inputs.charged}", f"shipped {inputs.shipped}"]
    return context.put(["\n".join(lines).encode()], _TEXT, needs=deeds)


@ORDER.main
async def _order(job: JobContext[OrderPayload]) -> Produced:
    payload = job.payload
    for number in range(1, payload.items + 1):
        await job.step(item, Item(order=payload.order, number=number), label=f"item {number}")
        job.progress(number, payload.items, "items")
    reserved = await job.step(reserve, Item(order=payload.order))
    deed = Deed(witness=payload.witness, order=payload.order, reserved=reserved.digest)
    charged = await job.step(charge, deed)
    shipped = await job.step(ship, deed)
    done = Confirmation(order=payload.order, charged=charged.digest, shipped=shipped.digest)
    return await job.step(confirm, done)


def _do(context: StepContext, deed: Deed, what: str) -> Produced:
    told = {"order": deed.order, "reserved": deed.reserved}
    receipt = context.once(f"{what}:{deed.order}", lambda key: _post(f"{deed.witness}/{what}", told, key))
    # where the witness serves is left out: the same order leaves the same objects everywhere
    return context.put([f"{what} {deed.order} {receipt}".encode()], _TEXT)


def _post(url: str, told: dict[str, str], key: str) -> str:
    import httpx  # noqa: PLC0415 - a tenth of a second, and every part of the service imports this module

    try:
        # the witness is on the loopback interface, which is no proxy's business
        answer = httpx.post(
            url, json=told, headers={"Idempotency-Key": key}, timeout=_POST_SECONDS, trust_env=False
        )
    except httpx.TransportError as error:
        raise Transient(f"The witness can't be reached: {type(error).__name__}.") from error
    if answer.is_client_error:
        raise Permanent(f"The witness refuses the request with status {answer.status_code}.")
    if not answer.is_success:
        raise Transient(f"The witness answers with status {answer.status_code}.")
    return str(answer.json()["receipt"])
