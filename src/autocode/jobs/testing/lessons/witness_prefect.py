"""What Prefect's own API says, asked over HTTP as any other client of that server would."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx

from autocode.jobs.engine.server import Address

__all__ = ["FINAL", "PrefectWitness", "TaskRow"]

FINAL: Final = frozenset({"COMPLETED", "FAILED", "CRASHED", "CANCELLED"})
"""Types of states that a run doesn't leave."""

_RECORDED_SECONDS: Final = 60.0
"""How long Prefect may take to write down what it was told: it records task runs in batches."""

_PAUSE: Final = 0.1


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task run: its name, and the name of its state."""

    name: str
    state: str


class PrefectWitness:
    """Asks a Prefect server.

    Args:
        address: where it is.
    """

    def __init__(self, address: Address) -> None:
        user, _, password = address.auth.partition(":")
        self._client = httpx.Client(
            base_url=address.url, auth=(user, password), trust_env=False, timeout=30.0
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def run_state(self, run_id: str, *, final: bool) -> str:
        """Return the name of a flow run's state.

        Args:
            run_id: the run.
            final: it will come to an end soon, or has: wait for that.
        """
        deadline = time.monotonic() + _RECORDED_SECONDS
        while True:
            state = self._client.get(f"/flow_runs/{run_id}").raise_for_status().json()["state"]
            if not final or state["type"] in FINAL or time.monotonic() > deadline:
                return str(state["name"])
            _wait()

    def task_runs(self, run_id: str, names: Sequence[str]) -> list[TaskRow]:
        """Return the task runs of a flow run that ended, in the order of *names*, which are all awaited.

        Prefect records a task run some time after the process that ran it has ended.
        """
        deadline = time.monotonic() + _RECORDED_SECONDS
        while True:
            found = {each["name"]: each["state"] for each in self._asked(run_id) if each["state"]}
            recorded = [name for name in names if name in found and found[name]["type"] in FINAL]
            if len(recorded) == len(names) or time.monotonic() > deadline:
                return [TaskRow(name, str(found[name]["name"])) for name in recorded]
            _wait()

    def _asked(self, run_id: str) -> list[dict[str, Any]]:
        question = {"flow_runs": {"id": {"any_": [run_id]}}}
        answer: list[dict[str, Any]] = (
            self._client.post("/task_runs/filter", json=question).raise_for_status().json()
        )
        return answer


def _wait() -> None:
    threading.Event().wait(_PAUSE)
