"""A process that serves the API of a home, as the service starts it; logs go to stderr as JSON.

Run as ``python api_process.py HOME [OPTIONS as JSON]``; the option ``tls`` has a certificate and its key.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import autocode.jobs.testing.scenarios  # noqa: F401 - registers the kinds that the tests submit
from autocode.jobs.api.exposure import Exposure
from autocode.jobs.api.process import serve
from autocode.jobs.api.settings import EventLimits
from autocode.jobs.engine.system import open_system
from autocode.jobs.errors import JobsError
from autocode.jobs.settings import Home


class _Lines(logging.Formatter):
    """Everything that a record knows, so that a secret anywhere in it shows."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line of JSON."""
        return json.dumps({**vars(record), "text": super().format(record)}, default=str)


def main() -> int:
    """Serve until told to end."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    logging.basicConfig(level=logging.DEBUG, handlers=[handler])
    options = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    if "events" in options:
        options["events"] = EventLimits(**options["events"])
    if "tls" in options:
        certificate, key = map(Path, options.pop("tls"))
        options["exposure"] = Exposure(certificate, key)
    with open_system(Home(Path(sys.argv[1]))) as system:
        try:
            return serve(system, None, **options)
        except JobsError as error:
            sys.stdout.write(f"{error.type}: {error.detail}\n")
            return 2


if __name__ == "__main__":
    sys.exit(main())
