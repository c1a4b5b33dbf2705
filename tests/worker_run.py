"""Run a worker on a home, as a process of its own: ``worker_run.py OPTIONS``, a JSON object.

``url`` and ``auth`` name the Prefect server, the rest goes to the entry function. The exit status is the worker's.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from autocode.jobs.engine import worker
from autocode.jobs.engine.environment import configure_client
from autocode.jobs.engine.server import Address
from autocode.jobs.engine.system import open_system
from autocode.jobs.errors import JobsError
from autocode.jobs.settings import Home


def main(options: dict[str, Any]) -> int:
    """Run the worker; return its exit status."""
    home = Home.from_environment()
    configure_client(home)
    address = Address(options.pop("url"), options.pop("auth"), 0)
    try:
        with open_system(home) as system:
            return worker.run(system, address, **options)
    except JobsError as error:
        sys.stderr.write(f"{error.type}: {error.detail} {error.hint}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
