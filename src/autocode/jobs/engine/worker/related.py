"""What a run belongs to, asked for once instead of for every run.

Prefect's worker reads a run's deployment twice and its flow once, and each child would read both again, with
the work queue and the work pool, to name them in its events. Every such question costs the server some 10 ms
of processor time.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import Flow, FlowRun, WorkPool
from prefect.client.schemas.responses import DeploymentResponse
from prefect.events import related
from prefect.types._datetime import now

__all__ = ["Named", "hand_on", "name_all", "read_seldom"]

FRESH_SECONDS: Final = 5.0
"""How old a worker's knowledge of a deployment or a flow may be when it starts a run."""

_KEPT: Final = 200


class _Model(Protocol):
    def model_copy(self, *, deep: bool) -> Any:
        """Return a copy."""


M = TypeVar("M", bound=_Model)
Named = dict[str, Any]
"""One thing that a run belongs to: ``kind``, ``key``, ``id``, ``name`` and ``tags``."""


def read_seldom(client: PrefectClient, monotonic: Callable[[], float] = time.monotonic) -> None:
    """Let *client* answer from memory what it read a moment ago of deployments and flows.

    What isn't there is not remembered: it is asked for again. Callers get copies, since Prefect's own code
    changes what it reads.
    """
    methods = vars(client)
    methods["read_deployment"] = _remembering(client.read_deployment, monotonic)
    methods["read_flow"] = _remembering(client.read_flow, monotonic)


def _remembering(
    read: Callable[[Any], Awaitable[M]], monotonic: Callable[[], float]
) -> Callable[[UUID | str], Awaitable[M]]:
    known: dict[str, tuple[float, M]] = {}

    async def remembered(wanted: UUID | str, /) -> M:
        at, found = known.get(str(wanted), (0.0, None))
        if found is None or monotonic() - at > FRESH_SECONDS:
            known.pop(str(wanted), None)
            asked = monotonic()
            found = await read(wanted)
            while len(known) >= _KEPT:
                del known[next(iter(known))]
            known[str(wanted)] = (asked, found)
        copied: M = found.model_copy(deep=True)
        return copied

    return remembered


def name_all(
    run: FlowRun, deployment: DeploymentResponse | None, flow: Flow | None, pool: WorkPool | None
) -> list[Named]:
    """Return what *run* belongs to, for the child that executes it."""
    found: list[Named] = []

    def add(kind: str, key: object, thing: Any) -> None:
        tags = sorted(getattr(thing, "tags", None) or ())
        found.append({"kind": kind, "key": str(key), "id": str(thing.id), "name": thing.name, "tags": tags})

    if flow is not None:
        add("flow", run.flow_id, flow)
    if deployment is not None:
        add("deployment", run.deployment_id, deployment)
    queue = run.work_queue_name or (None if deployment is None else deployment.work_queue_name)
    if run.work_queue_id is not None and queue is not None:
        add("work-queue", run.work_queue_id, SimpleNamespace(id=run.work_queue_id, name=queue))
    if pool is not None:
        add("work-pool", pool.name, pool)
    return found


def hand_on(named: Sequence[Named]) -> None:
    """Let events of this process name what its run belongs to unasked (``prefect/events/related.py``)."""
    for each in named:
        thing: Any = SimpleNamespace(id=each["id"], name=each["name"], tags=each["tags"])
        entry: Any = ({"kind": each["kind"], "object": thing}, now("UTC"))
        related.RESOURCE_CACHE[f"{each['kind']}.{each['key']}"] = entry
