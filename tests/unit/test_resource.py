"""The job resource: strict, frozen, and JSON that says what the contract says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from autocode.jobs import resource
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.resource import Job

AT = "2025-03-01T12:00:00.000Z"


def full(**changes: Any) -> dict[str, Any]:
    """Return a job with every field filled in, as JSON values."""
    fields: dict[str, Any] = {
        "job_id": "job",
        "kind": "noop",
        "session_id": "s-1",
        "status": "dead",
        "reason": "exhausted",
        "note": "a note",
        "attempts": 3,
        "max_attempts": 3,
        "next_attempt_at": AT,
        "checkpoint": {"seq": 1, "step": "read", "digest": "sha256:0", "at": AT},
        "history": [
            {"seq": 1, "step": "read", "digest": "sha256:0", "attempt": 1, "at": AT, "reused": False}
        ],
        "progress": {"done": 1, "total": 2, "unit": "files", "at": AT, "retry_at": AT},
        "result": {"digest": "sha256:0", "size": 1, "media_type": "a/b", "href": "/r", "expired_at": AT},
        "error": {
            "type": "transient",
            "title": "T",
            "detail": "D",
            "hint": "H",
            "step": "read",
            "attempt": 3,
            "retryable": True,
            "at": AT,
        },
        "times": {
            "file_saved_at": AT,
            "enqueued_at": AT,
            "started_at": AT,
            "checkpoint_at": AT,
            "completed_at": AT,
        },
        "oldest_unsearchable_at": AT,
        "possible_double_run": True,
        "rev": 9,
        "as_of": AT,
        "links": {"self": "/v1/jobs/job", "events": "/e", "retry": "/r", "cancel": "/c", "prefect": None},
    }
    return {**fields, **changes}


def test_json_is_what_went_in() -> None:
    """A job's JSON has every field of the contract, in its order, with plain values."""
    values = full()

    written = Job.model_validate(values).to_json()

    assert written == values
    assert list(written) == list(values)
    assert json.loads(json.dumps(written)) == values


def test_states_are_wire_values() -> None:
    """Status and reason are members that equal their wire values."""
    job = Job.model_validate(full())

    assert (job.status, job.reason) == (JobStatus.DEAD, DeadReason.EXHAUSTED)
    assert job.status == "dead"


@pytest.mark.parametrize("name", list(Job.model_fields))
def test_no_field_may_be_left_out(name: str) -> None:
    """A field that has no value is said to have none; it is never left out."""
    values = full()
    del values[name]

    with pytest.raises(ValidationError, match=name):
        Job.model_validate(values)


@pytest.mark.parametrize(
    "change",
    [
        {"status": "pending"},
        {"reason": "tired"},
        {"extra": 1},
        {"rev": "many"},
        {"links": {"self": "/", "other": "/"}},
    ],
)
def test_what_the_contract_does_not_know_is_refused(change: dict[str, Any]) -> None:
    """Unknown states, reasons, fields and links are refused."""
    with pytest.raises(ValidationError):
        Job.model_validate(full(**change))


@pytest.mark.parametrize("name", resource.__all__)
def test_resources_do_not_change(name: str) -> None:
    """Every part of the resource is frozen and refuses fields that it doesn't know."""
    model: type[BaseModel] = getattr(resource, name)

    assert model.model_config["frozen"]
    assert model.model_config["extra"] == "forbid"
