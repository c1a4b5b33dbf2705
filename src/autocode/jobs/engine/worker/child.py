"""What a child does from its fork to its end: one flow run, under a name that proves its death."""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

from prefect.client.schemas.objects import FlowRun

from autocode.jobs import crash
from autocode.jobs.engine.attempt import attempt_over, fenced_off, holder_name
from autocode.jobs.engine.holder import holding
from autocode.jobs.engine.system import current_system
from autocode.jobs.engine.worker.execution import execute
from autocode.jobs.engine.worker.messages import Order
from autocode.jobs.engine.worker.processes import call_oneself, finish
from autocode.jobs.engine.worker.registry import registered
from autocode.jobs.engine.worker.stopping import Stop
from autocode.jobs.errors import UsageError
from autocode.jobs.settings import Home

__all__ = ["live"]


def live(lifeline: socket.socket) -> int:
    """Read the order from *lifeline*, execute it, and return the exit status of this process."""
    order = _read_order(lifeline)
    if order is None:
        # the worker died before it said what to do: nothing was begun
        return 0
    home = Home(Path(order.home))
    run = FlowRun.model_validate(order.flow_run)
    with ExitStack() as stack:
        _settle(order, home)
        worker = (order.worker, order.worker_began)
        stack.enter_context(registered(home, str(run.id), *worker))
        holder = stack.enter_context(holding(home))
        stop = Stop(lambda: current_system(home.path), run, holder)
        holder_name.set(holder)
        fenced_off.set(stop.fenced_off)
        attempt_over.set(stop.attempt_is_over)
        # it takes as long as Prefect's server to hear that the run begins, and neither waits for the other
        threading.Thread(target=_open_ahead, args=(home,), name="opens the home", daemon=True).start()
        stop.install()
        stop.listen(lifeline)
        try:
            return execute(order, run, stop)
        finally:
            finish()
            stop.flow_is_over()


def _open_ahead(home: Home) -> None:
    # whoever needs it opens it again, and tells what is wrong
    with suppress(Exception):
        current_system(home.path)


def _read_order(lifeline: socket.socket) -> Order | None:
    with lifeline.makefile("rb", buffering=0) as stream:
        parts: list[bytes] = []
        while not parts or not parts[-1].endswith(b"\n"):
            part = stream.read(1 << 16)
            if not part:
                return None
            parts.append(part)
    return Order.decode(b"".join(parts))


def _settle(order: Order, home: Home) -> None:
    call_oneself("run")
    with suppress(OSError):
        os.nice(order.niceness)
    if order.directory is not None:
        os.chdir(order.directory)
        # as for a flow that Prefect's own worker starts there
        sys.path.insert(0, order.directory)
    os.environ["AUTOCODE_HOME"] = order.home
    with suppress(UsageError):
        crash.arm(os.environ.get("AUTOCODE_CRASH"), tokens=home.run / "crash")
