"""The page about the contract names everything that the code can show."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from access_rules import RULES
from autocode.jobs import resource
from autocode.jobs.crash import POINTS
from autocode.jobs.ledger import schema, statuses
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.projection import KNOWN_STATES, AttemptFacts, JobFacts, Lease, Outcome, RunState, project

DOCS = Path(__file__).parents[2] / "docs"


def section(title: str) -> str:
    """Return one section of the page about the contract."""
    page = (DOCS / "contract.md").read_text(encoding="utf-8")
    return page.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows_of_the_projection() -> set[str]:
    """Return the name of every row that can decide, found by trying every kind of situation."""
    attempts = [(begun, outcome) for begun in (False, True) for outcome in (None, *Outcome)]
    runs = [None, "GONE", *sorted(KNOWN_STATES)]
    return {
        project(
            JobFacts(max_attempts, result_verified=verified, cancel_requested=cancelled),
            [
                AttemptFacts(
                    1,
                    datetime(2025, 3, 1, tzinfo=UTC),
                    begun,
                    outcome,
                    outcome is not None and outcome.counts,
                )
            ],
            RunState(run),
            lease,
        ).row
        for (begun, outcome), run, lease, max_attempts, verified, cancelled in product(
            attempts, runs, Lease, (1, 2), (False, True), (False, True)
        )
    }


@pytest.mark.parametrize("status", JobStatus)
def test_every_state_is_explained(status: JobStatus) -> None:
    """Each state has a row with its word and its member."""
    assert f"| `{status.value}` | `{status.name}` |" in section("Five states")


@pytest.mark.parametrize("reason", DeadReason)
def test_every_reason_is_explained(reason: DeadReason) -> None:
    """Each reason of death has a row with its word and its member."""
    assert f"| `{reason.value}` | `{reason.name}` |" in section("Five states")


def test_the_table_is_the_projection() -> None:
    """The table of the projection has a line for each row that can decide, and for no other."""
    lines = section("From Prefect's states to these").splitlines()

    named = {line.split("`")[1] for line in lines if line.startswith("| `")}

    assert named == rows_of_the_projection()


@pytest.mark.parametrize("state", sorted(KNOWN_STATES))
def test_every_prefect_state_is_in_the_table(state: str) -> None:
    """Each of Prefect's state types is named in the table."""
    assert f"`{state}`" in section("From Prefect's states to these")


@pytest.mark.parametrize("name", list(resource.Job.model_fields))
def test_every_field_is_explained(name: str) -> None:
    """Each field of the job resource stands in the first column of its table."""
    first_column = [line.split("|")[1] for line in section("The job resource").splitlines() if "|" in line]

    assert any(f"`{name}`" in cell for cell in first_column)


@pytest.mark.parametrize(
    ("field", "model"),
    [
        ("checkpoint", resource.Checkpoint),
        ("history", resource.HistoryEntry),
        ("progress", resource.Progress),
        ("result", resource.Result),
        ("error", resource.Problem),
        ("times", resource.Times),
    ],
)
def test_every_part_of_a_field_is_explained(field: str, model: type[resource.Job]) -> None:
    """The line of a compound field names each of its parts."""
    line = next(line for line in section("The job resource").splitlines() if line.startswith(f"| `{field}` "))

    assert [name for name in model.model_fields if f"`{name}`" not in line] == []


def test_every_link_is_explained() -> None:
    """The line about links names each of them."""
    annotation = resource.Job.model_fields["links"].annotation
    names = get_args(get_args(annotation)[0])

    assert len(names) == 5
    assert [name for name in names if f"`{name}`" not in section("The job resource")] == []


def test_every_type_of_event_is_named() -> None:
    """Each type of event is named: one for each state, and one for each fact that is no state."""
    types = {f"job.{status.value}" for status in JobStatus} | set(statuses._PLAIN_TYPES.values())

    assert [name for name in sorted(types) if f"`{name}`" not in section("Events")] == []


def test_every_collection_of_calls_is_named() -> None:
    """Each route that somebody may use belongs to a call that the page has, and none is only planned."""
    text = section("HTTP")
    collections = {"/".join(path.split("/")[:3]) for _, path in RULES if path.startswith("/v1/")}

    assert [each for each in sorted(collections) if each not in text] == []
    assert "lanned" not in text


@pytest.mark.parametrize("name", sorted(schema.metadata.tables))
def test_every_table_is_explained(name: str) -> None:
    """The page about the ledger names each table in its table of tables."""
    page = (DOCS / "ledger.md").read_text(encoding="utf-8")
    first_column = [line.split("|")[1] for line in page.splitlines() if line.startswith("|")]

    assert any(f"`{name}`" in cell for cell in first_column)


@pytest.mark.parametrize("point", POINTS)
def test_every_crash_point_is_explained(point: str) -> None:
    """The page about the ledger says what is true after a kill at each crash point."""
    page = (DOCS / "ledger.md").read_text(encoding="utf-8")

    assert f"\n| `{point}` |" in page
