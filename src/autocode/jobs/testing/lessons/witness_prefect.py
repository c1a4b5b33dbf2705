"""What Prefect's own API says, asked over HTTP as any other client of that server would."""

from __future__ import annotations

import re
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
_MANY: Final = re.compile(r"\w+ (\d+) \w+")


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task run: its name, and the name of its state."""

    name: str
    state: str

    @property
    def steps(self) -> int:
        """How many steps it stands for: one task run may read many sessions, and says so in its name."""
        many = _MANY.fullmatch(self.name)
        return int(many[1]) if many else 1


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

    def task_runs(self, run_id: str, steps: Sequence[str]) -> list[TaskRow]:
        """Return the task runs of a flow run that ended, in the order in which they began.

        Prefect records a task run some time after the process that ran it has ended, in the order of what it
        was told. So the last of *steps* is awaited, and that they are enough for all of them.
        """
        deadline = time.monotonic() + _RECORDED_SECONDS
        while True:
            found = [each for each in self._asked(run_id) if each["state"] and each["state"]["type"] in FINAL]
            rows = [TaskRow(each["name"], str(each["state"]["name"])) for each in sorted(found, key=_began)]
            whole = sum(row.steps for row in rows) >= len(steps) and set(steps[-1:]) <= {
                row.name for row in rows
            }
            if whole or time.monotonic() > deadline:
                return rows
            _wait()

    def _asked(self, run_id: str) -> list[dict[str, Any]]:
        question = {"flow_runs": {"id": {"any_": [run_id]}}}
        answer: list[dict[str, Any]] = (
            self._client.post("/task_runs/filter", json=question).raise_for_status().json()
        )
        return answer


def _began(run: dict[str, Any]) -> str:
    # RFC 3339 in UTC, which sorts as text
    return str(run["start_time"])


def _wait() -> None:
    threading.Event().wait(_PAUSE)
