"""A typed client of the HTTP interface, for the command line, notebooks and other people's code.

::

    from autocode.jobs.client import Client

    with Client("http://127.0.0.1:4280", token) as client:
        accepted = client.enqueue("export", payload, job_id="nightly-2026-01-05")
        job = client.wait(accepted.job.job_id)

Errors are the classes of :mod:`autocode.jobs.errors`, :mod:`autocode.jobs.request_errors` and
:mod:`autocode.jobs.notification_errors`, found by the ``type`` of the problem.
"""

from autocode.jobs.client.client import Accepted, Client
from autocode.jobs.client.discovery import discover
from autocode.jobs.client.upload import Uploaded

__all__ = ["Accepted", "Client", "Uploaded", "discover"]
