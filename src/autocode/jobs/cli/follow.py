"""Running a job from the command line, with its progress on the screen as it was persisted."""

from __future__ import annotations

import importlib
import threading
from typing import Final

from autocode.jobs.cli.progress import JobView
from autocode.jobs.cli.screen import Screen
from autocode.jobs.cli.served import follow_here, is_served
from autocode.jobs.engine.environment import configure_client
from autocode.jobs.engine.server import private_server
from autocode.jobs.engine.system import System
from autocode.jobs.resource import Job

__all__ = ["follow"]

_ENGINE: Final = "autocode.jobs.engine.oneshot"


def follow(screen: Screen, system: System, job_id: str) -> Job:
    """Bring a job to its end, here or by following who runs it, and show its progress.

    Raises:
        ServerUnavailable: the private Prefect server did not start.
        KeyboardInterrupt: Ctrl-C or SIGTERM; the attempt was handed back, or the service goes on with it.
    """
    if is_served(system):
        return follow_here(screen, system, job_id)
    configure_client(system.home)
    # Prefect takes seconds to import, and its server takes seconds to start: at the same time
    importing = threading.Thread(target=importlib.import_module, args=(_ENGINE,), daemon=True)
    importing.start()
    with JobView(screen) as view, private_server(system.home, waiting=view.waiting) as address:
        importing.join()
        engine = importlib.import_module(_ENGINE)
        job: Job = engine.run_to_end(system, job_id, address, view.update)
    return job
