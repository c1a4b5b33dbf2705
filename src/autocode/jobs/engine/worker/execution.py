"""Prefect's engine in a child: the settings of the run, its flow, and the run itself."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final, cast

from prefect import Flow, flow_engine
from prefect._internal.metrics import RunMetrics
from prefect.client.schemas.objects import FlowRun
from prefect.context import SettingsContext, get_settings_context
from prefect.engine import _drive_run_flow_result, handle_engine_signals
from prefect.flow_engine import run_flow
from prefect.flows import load_flow_from_flow_run
from prefect.logging.loggers import flow_run_logger
from prefect.settings import Settings
from prefect.utilities.asyncutils import run_coro_as_sync

from autocode.jobs.engine.submit import identify
from autocode.jobs.engine.worker.messages import Order
from autocode.jobs.engine.worker.prewarm import flow_of
from autocode.jobs.engine.worker.related import hand_on
from autocode.jobs.engine.worker.stopping import Stop

__all__ = ["execute"]

_SETTING: Final = "PREFECT_"
_INTERNAL: Final = "PREFECT__"


def execute(order: Order, run: FlowRun, stop: Stop) -> int:
    """Run the flow run to its end in this process; return the exit status, as Prefect's engine has it.

    0 also for a flow that failed: Prefect knows that already. Anything else makes the worker say ``Crashed``.
    """
    try:
        with ExitStack() as stack:
            stack.enter_context(_environment(order.environment))
            hand_on(order.related)
            if identify(run)[1] is not None:
                _leave_out_what_a_lease_does()
            with handle_engine_signals(run.id):
                _run(order, run, stop)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    return 0


def _run(order: Order, run: FlowRun, stop: Stop) -> None:
    log = flow_run_logger(flow_run=run)
    try:
        flow = _flow(order, run)
    except Exception:
        log.exception("The flow can't be loaded.")
        raise
    with RunMetrics(run, flow):
        result = run_flow(flow, flow_run=run, error_logger=cast("logging.Logger", log))
        if asyncio.iscoroutine(result):
            asyncio.run(stop.interruptible(result))
        else:
            _drive_run_flow_result(flow, result)


def _flow(order: Order, run: FlowRun) -> Flow[..., Any]:
    if order.entrypoint is not None:
        return flow_of(order.entrypoint)
    loaded: Flow[..., Any] = run_coro_as_sync(load_flow_from_flow_run(run, use_placeholder_flow=False))
    return loaded


@contextmanager
def _environment(wanted: Mapping[str, str | None]) -> Iterator[None]:
    """Set the variables of the run, and Prefect's settings anew where they say something else."""
    before = dict(os.environ)
    for name, value in wanted.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    changed = {name for name in {*before, *os.environ} if before.get(name) != os.environ.get(name)}
    if not any(name.startswith(_SETTING) and not name.startswith(_INTERNAL) for name in changed):
        yield
        return
    with SettingsContext(profile=get_settings_context().profile, settings=Settings()):
        yield


def _leave_out_what_a_lease_does() -> None:
    """Spare the runs of jobs two threads that Prefect starts for each run.

    A job's lease says every second what Prefect's heartbeat says every three minutes, and a run of a job is
    never suspended and resumed: its next attempt is another run. The thread of the heartbeat makes a sync
    flow end a second later, the observer of suspensions opens a websocket of its own before the flow begins.
    """
    vars(flow_engine)["_send_heartbeats"] = _nothing
    vars(flow_engine)["observe_flow_run_suspension"] = _nothing


@contextmanager
def _nothing(*_args: Any, **_options: Any) -> Iterator[None]:
    yield
