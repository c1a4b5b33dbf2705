"""The work pool and the deployments through which a service runs its kinds, made again when they are gone."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.utilities.callables import parameter_schema

from autocode.jobs import kinds
from autocode.jobs.engine.loading import entrypoint_of, load_flow
from autocode.jobs.errors import KindUnknown
from autocode.jobs.kinds import Kind

__all__ = ["POOL", "POOL_TYPE", "SERVICE", "TAG", "Deployments"]

POOL: Final = "autocode"
"""The work pool that the service's runs wait in."""

POOL_TYPE: Final = "autocode-jobs"
"""The type of worker that takes from it."""

SERVICE: Final = "service"
"""The name of the deployment of each kind."""

TAG: Final = "autocode-jobs"

logger = logging.getLogger(__name__)


class Deployments:
    """Knows the deployment of each kind, and makes what is missing. Idempotent; for one event loop.

    A pool that exists is used as it is, whatever its type: somebody may have chosen another.

    Args:
        client: an open client.
        pool: the work pool's name.
        pool_type: its type, where it has to be made.
    """

    def __init__(self, client: PrefectClient, *, pool: str = POOL, pool_type: str = POOL_TYPE) -> None:
        self._client = client
        self._pool = pool
        self._pool_type = pool_type
        self._known: dict[str, UUID] = {}
        self._pool_id: UUID | None = None
        self._told: set[str] = set()
        self._lock = asyncio.Lock()

    async def of(self, kind: Kind[Any]) -> UUID:
        """Return the id of the kind's deployment, which exists or is made now.

        Raises:
            KindUnknown: the file of the kind's flow is missing.
            httpx.HTTPError: Prefect doesn't answer as it should.
        """
        async with self._lock:
            if kind.name not in self._known:
                await self._ensure_pool()
                self._known[kind.name] = await self._make(kind)
            return self._known[kind.name]

    async def ensure_all(self) -> None:
        """Make what is missing for every registered kind; a kind without its flow's file is told of.

        Raises:
            httpx.HTTPError: Prefect doesn't answer as it should.
        """
        for kind in kinds.registered():
            try:
                await self.of(kind)
            except KindUnknown as error:
                if kind.name not in self._told:
                    logger.warning("%s", error)
                self._told.add(kind.name)

    def forget(self, kind: Kind[Any]) -> None:
        """Look again at the next call: Prefect answered that the deployment is gone."""
        self._known.pop(kind.name, None)

    async def look_at_pool(self) -> None:
        """Forget every deployment if the work pool is gone: whoever deleted it took it from all of them.

        Raises:
            httpx.HTTPError: Prefect doesn't answer as it should.
        """
        try:
            pool = await self._client.read_work_pool(self._pool)
        except ObjectNotFound:
            self._known.clear()
            self._pool_id = None
            return
        if self._pool_id not in {None, pool.id}:
            # a worker has made another one since
            self._known.clear()
        self._pool_id = pool.id

    async def _ensure_pool(self) -> None:
        try:
            await self._client.read_work_pool(self._pool)
        except ObjectNotFound:
            wanted = WorkPoolCreate(
                name=self._pool,
                type=self._pool_type,
                description="The jobs of autocode-jobs. Retry and cancel them with its own commands.",
            )
            try:
                await self._client.create_work_pool(wanted)
            except ObjectAlreadyExists:
                # another process was faster
                return

    async def _make(self, kind: Kind[Any]) -> UUID:
        # importing a flow's file may take a while
        flow = await asyncio.to_thread(load_flow, kind)
        entrypoint = entrypoint_of(kind)
        folder = str(Path(entrypoint.rpartition(":")[0]).parent)
        flow_id = await self._client.create_flow(flow)
        # Prefect updates a deployment of this name where there is one
        return await self._client.create_deployment(
            flow_id,
            SERVICE,
            version=flow.version,
            description=f"Runs the jobs of kind {kind.name} that autocode-jobs accepted.",
            entrypoint=entrypoint,
            path=folder,
            # without a step Prefect copies the folder of the flow into the worker's own
            pull_steps=[{"prefect.deployments.steps.set_working_directory": {"directory": folder}}],
            work_pool_name=self._pool,
            tags=[TAG, f"kind:{kind.name}"],
            parameter_openapi_schema=parameter_schema(flow).model_dump_for_openapi(),
            # the kind itself checks, and says more; what it accepted must never be refused here
            enforce_parameter_schema=False,
        )
