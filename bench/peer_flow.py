"""A flow of one task that leaves a small file, as the scenario ``noop`` leaves a small object."""

from __future__ import annotations

import tempfile

from prefect import flow, task


@task
def leave(salt: str) -> str:
    """Leave a small file, which is gone when the process ends."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(f"nothing {salt}".encode())
        return file.name


@flow(name="bench-peer", log_prints=False)
def nothing(salt: str) -> str:
    """Do nothing."""
    return leave(salt)
