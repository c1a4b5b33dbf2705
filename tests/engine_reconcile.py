"""A reconcile process for the tests: ``engine_reconcile.py NAME URL``, on the home that AUTOCODE_HOME names.

An empty name or URL stands for none.
"""

from __future__ import annotations

import logging
import os
import sys

from autocode.jobs import crash
from autocode.jobs.engine.connection import prefect_address
from autocode.jobs.engine.environment import configure_client
from autocode.jobs.engine.system import open_system
from autocode.jobs.settings import Home


def main(name: str | None, url: str | None) -> int:
    """Reconcile until SIGTERM; return the exit status."""
    home = Home.from_environment()
    configure_client(home)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    for noisy in ("httpx", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    with open_system(home) as system, prefect_address(home, url) as address:
        crash.arm(os.environ.get("AUTOCODE_CRASH"), tokens=home.run / "crash")
        # kinds are registered when their module is imported, and Prefect when it is configured
        import autocode.jobs.operations.export
        import autocode.jobs.testing.scenarios  # noqa: F401 - see above
        from autocode.jobs.engine.daemon import run

        return run(system, address, name=name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] or None, sys.argv[2] or None))
