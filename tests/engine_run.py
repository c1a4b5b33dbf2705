"""Run one scenario job to its end, as a process of its own: ``engine_run.py KIND JOB_ID PAYLOAD``.

Each look at the job that shows something new is a line of JSON on stdout. The exit status is 0 for a job that
ended, 130 for Ctrl-C, and 1 for an error that the engine reports.
"""

from __future__ import annotations

import json
import os
import sys

from autocode.jobs import crash, kinds
from autocode.jobs.engine.environment import configure_client
from autocode.jobs.engine.server import private_server
from autocode.jobs.engine.system import System, open_system
from autocode.jobs.errors import JobsError
from autocode.jobs.ledger import jobs
from autocode.jobs.resource import Job
from autocode.jobs.settings import Home


def show(job: Job) -> None:
    """Print *job* unless it is what was printed last."""
    text = job.model_dump_json()
    if text != show.__dict__.get("last"):
        show.__dict__["last"] = text
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def accept(system: System, kind_name: str, job_id: str, payload: str) -> None:
    """Accept the job; the same request again changes nothing."""
    # a kind is registered when its module is imported
    import autocode.jobs.testing.scenarios  # noqa: F401 - see above

    kind = kinds.get(kind_name)
    parsed = kind.parse(json.loads(payload)).model_dump(mode="json")
    new = jobs.NewJob(job_id, kind.name, parsed, kind.max_attempts, kind.backoff, kind.time_limit)
    jobs.enqueue(system.db, new)


def main(kind_name: str, job_id: str, payload: str) -> int:
    """Run the job; return the exit status."""
    home = Home.from_environment()
    configure_client(home)
    try:
        with open_system(home) as system:
            crash.arm(os.environ.get("AUTOCODE_CRASH"), tokens=home.run / "crash")
            accept(system, kind_name, job_id, payload)
            with private_server(home) as address:
                from autocode.jobs.engine.oneshot import run_to_end

                run_to_end(system, job_id, address, show)
    except KeyboardInterrupt:
        return 130
    except JobsError as error:
        sys.stderr.write(f"{error.type}: {error.detail}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
