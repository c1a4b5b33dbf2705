"""The event that a receiver gets, the same bytes in every try."""

from __future__ import annotations

from typing import Any

from autocode.jobs.canonical import canonical_json
from autocode.jobs.clock import rfc3339
from autocode.jobs.ledger.deliveries import Message

__all__ = ["body_of", "event_of"]


def event_of(message: Message) -> dict[str, Any]:
    """Return the event in the shape of CloudEvents 1.0; ``data`` is the job right after it, without history.

    A test is about no job: its id is the delivery's, and its data says what it is.
    """
    about = f"{message.epoch}:{message.cursor}" if message.cursor is not None else message.delivery_id
    event = {
        "specversion": "1.0",
        "id": about,
        "source": f"autocode-jobs/{message.epoch}",
        "type": message.type,
        "time": rfc3339(message.at),
        "datacontenttype": "application/json",
        "data": message.data if message.data is not None else {"test": True},
    }
    return event if message.job_id is None else {**event, "subject": message.job_id}


def body_of(message: Message) -> bytes:
    """Return the event as canonical JSON in ASCII."""
    return canonical_json(event_of(message))
