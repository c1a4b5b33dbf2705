"""What the zygote imports and builds once, so that no child has to.

Figures on two busy cores, per run: reading the certificate bundle 25 to 50 ms, building Prefect's models
10 ms, importing a flow's file with all it needs 50 ms to seconds.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import ssl
import threading
import types
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import prefect.context
from prefect import Flow
from prefect.client import orchestration
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.context import SettingsContext, get_settings_context
from prefect.exceptions import MissingFlowError
from prefect.flows import load_flow_from_entrypoint, load_function_and_convert_to_flow
from prefect.settings import Settings
from prefect.states import Scheduled
from pydantic import BaseModel

from autocode.jobs.engine.flows import flows_folder
from autocode.jobs.errors import UnexpectedError

__all__ = ["EXTRA_FLOWS", "flow_of", "freeze", "preload", "prewarm"]

EXTRA_FLOWS: Final = "AUTOCODE_WORKER_FLOWS"
"""Names absolute ``file:function`` entrypoints of a team's own kinds, separated by commas."""

_IMPORTED: Final = (
    "prefect.main",
    "prefect.flow_engine",
    "prefect.task_engine",
    "prefect.engine",
    "prefect.events.clients",
    "prefect.events.worker",
    "prefect.logging.handlers",
    "prefect._internal.metrics",
    "prefect.runtime",
    # each call of a task imports it, and graphviz with it
    "prefect.utilities.visualization",
    # what fetches a flow by the steps of its deployment
    "prefect.deployments.steps",
    "autocode.jobs.engine.attempt",
    "autocode.jobs.engine.worker.execution",
    "autocode.jobs.ledger.postgresql",
    "autocode.jobs.postgres.client",
    "sqlalchemy.dialects.sqlite",
    "sqlalchemy.dialects.postgresql.psycopg",
    # host names are encoded by it
    "encodings.idna",
)

_flows: dict[str, tuple[int, Flow[..., Any]]] = {}


def preload() -> None:
    """Import what every run needs; the environment of the runs need not be known yet. Idempotent."""
    for module in _IMPORTED:
        # an optional part of another version is no reason not to work
        with suppress(ImportError):
            importlib.import_module(module)


def prewarm() -> None:
    """Build what every run needs, after :func:`preload`. Leaves one thread, so that the process may fork.

    Raises:
        UnexpectedError: something started a thread; a fork would then be unsafe.
    """
    # the environment may be another than when Prefect was imported; for all threads, which a context isn't
    renewed = SettingsContext(profile=get_settings_context().profile, settings=Settings())
    vars(prefect.context)["GLOBAL_SETTINGS_CONTEXT"] = renewed
    # the one logger of Prefect's that isn't named after it (prefect/_internal/concurrency/services.py)
    logging.getLogger("EventsWorker").setLevel(os.environ.get("PREFECT_LOGGING_LEVEL", "WARNING"))
    _share_certificates()
    asyncio.run(_build_clients())
    _build_models()
    _load_flows()
    freeze()


def freeze() -> None:
    """Make this process fit to fork: see that it has one thread, and keep the collector off what it has.

    Raises:
        UnexpectedError: something started a thread; a fork would then be unsafe.
    """
    threads = [thread.name for thread in threading.enumerate()]
    if len(threads) != 1:
        raise UnexpectedError(f"The process that forks children has more than one thread: {threads}.")
    gc.collect()
    # pages that the collector marks would be copied in every child
    gc.freeze()


def flow_of(entrypoint: str) -> Flow[..., Any]:
    """Return the flow of an absolute ``file:function``, from before the fork if its file is still the same.

    Raises:
        FileNotFoundError: the file is gone.
    """
    known = _flows.get(entrypoint)
    if known is not None and known[0] == _changed_at(entrypoint):
        return known[1]
    try:
        return load_flow_from_entrypoint(entrypoint, use_placeholder_flow=False)
    except MissingFlowError:
        return load_function_and_convert_to_flow(entrypoint)


def _changed_at(entrypoint: str) -> int:
    return Path(entrypoint.rpartition(":")[0]).stat().st_mtime_ns


def _share_certificates() -> None:
    """Let Prefect's clients share one TLS context; nobody else's calls of :mod:`ssl` are touched."""
    shared = types.SimpleNamespace(**vars(ssl))
    shared.create_default_context = cache(ssl.create_default_context)
    # settings that switch verification off change the context that they get
    if not os.environ.get("PREFECT_API_TLS_INSECURE_SKIP_VERIFY"):
        vars(orchestration)["ssl"] = shared


async def _build_clients() -> None:
    with get_client(sync_client=True):
        pass
    async with get_client():
        pass


_USED: Final = (
    "prefect.client.schemas.actions:FlowRunUpdate",
    "prefect.client.schemas.actions:ArtifactCreate",
    "prefect.client.schemas.objects:Artifact",
    "prefect.client.schemas.objects:ConcurrencyLeaseHolder",
    "prefect.events.schemas.events:Event",
)
"""Models that a run builds at their first use, 3 ms each."""


def _build_models() -> None:
    for each in _USED:
        module, _, name = each.partition(":")
        model = getattr(importlib.import_module(module), name, None)
        if model is not None:
            model.model_rebuild(raise_errors=False)
    run = FlowRun(flow_id=uuid.uuid4(), name="warm", state=Scheduled())
    FlowRun.model_validate(run.model_dump(mode="json"))
    context = importlib.import_module("prefect.context")
    for model in vars(context).values():
        if isinstance(model, type) and issubclass(model, BaseModel) and model is not BaseModel:
            model.model_rebuild(raise_errors=False)


def _load_flows() -> None:
    """Load the flows that ship with this package, and those that ``AUTOCODE_WORKER_FLOWS`` names.

    Any other code is loaded in the child that runs it: it may start threads.
    """
    shipped = [f"{path}:{path.stem}" for path in sorted(flows_folder().glob("*.py"))]
    named = os.environ.get(EXTRA_FLOWS, "").split(",")
    for entrypoint in filter(None, [*shipped, *named]):
        # a flow that can't be loaded fails in its own run, where it is told
        with suppress(Exception):
            changed = _changed_at(entrypoint)
            _flows[entrypoint] = (changed, load_flow_from_entrypoint(entrypoint, use_placeholder_flow=False))
