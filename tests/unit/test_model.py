"""The words of the status contract."""

from __future__ import annotations

import json
import pickle

import pytest

from autocode.jobs.model import TERMINAL, TRANSITIONS, DeadReason, JobStatus

WIRE = {"QUEUED": "queued", "RUNNING": "running", "RETRY": "retrying", "COMPLETE": "complete", "DEAD": "dead"}


def test_members_and_wire_values_are_the_five_of_the_contract() -> None:
    """Nothing but the five names and values that clients rely on exists."""
    actual = {status.name: status.value for status in JobStatus}

    assert actual == WIRE


@pytest.mark.parametrize("status", JobStatus)
def test_a_status_is_its_wire_value_wherever_text_is_wanted(status: JobStatus) -> None:
    """Comparing, formatting, str(), JSON and a dict key all give the wire value."""
    wire = WIRE[status.name]

    assert (status == wire, f"{status}", str(status), json.dumps(status), {wire: 1}[status]) == (
        True,
        wire,
        wire,
        f'"{wire}"',
        1,
    )


def test_a_status_survives_pickling_as_the_same_member() -> None:
    """A status that crosses a process boundary is still identical, not only equal."""
    assert pickle.loads(pickle.dumps(JobStatus.RETRY)) is JobStatus.RETRY  # noqa: S301 - our own bytes


def test_reasons_are_the_four_of_the_contract() -> None:
    """A dead job has one of four reasons."""
    assert [str(reason) for reason in DeadReason] == ["exhausted", "permanent", "poison", "cancelled"]


def test_every_status_has_a_row_of_moves() -> None:
    """The table is total, so looking up a status never fails."""
    assert set(TRANSITIONS) == set(JobStatus)


def test_no_state_moves_to_itself_and_complete_is_final() -> None:
    """A move changes the state, and a committed result is never taken back."""
    assert [status for status in JobStatus if status in TRANSITIONS[status]] == []
    assert TRANSITIONS[JobStatus.COMPLETE] == frozenset()


def test_a_result_is_committed_by_a_running_attempt_alone() -> None:
    """Only running leads to complete."""
    assert [status for status in JobStatus if JobStatus.COMPLETE in TRANSITIONS[status]] == [
        JobStatus.RUNNING
    ]


def test_a_terminal_state_never_leads_straight_to_running() -> None:
    """The manual retry makes an attempt due; it doesn't begin one."""
    reachable = frozenset[JobStatus]().union(*(TRANSITIONS[status] for status in TERMINAL))

    assert reachable == {JobStatus.QUEUED, JobStatus.RETRY}


def test_the_table_cannot_be_changed() -> None:
    """No caller can make a move legal for everybody else."""
    with pytest.raises(TypeError):
        TRANSITIONS[JobStatus.COMPLETE] = frozenset({JobStatus.DEAD})  # type: ignore[index]
