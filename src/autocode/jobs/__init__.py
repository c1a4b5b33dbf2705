"""Durable, user-visible background jobs on Prefect.

Importing the package is cheap: it brings the in-process queue and the words of the status contract. The
rooms that need Prefect, a database or pandas are imported by name.
"""

from __future__ import annotations

from autocode.jobs._version import __version__
from autocode.jobs.model import JobStatus
from autocode.jobs.queue import JobQueue

__all__ = ["JobQueue", "JobStatus", "__version__"]
