"""The job that others are compared with: run by the harness itself, and twice to see that it can be."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Final

from autocode.jobs.errors import UsageError
from autocode.jobs.testing.crashes.undisturbed import Undisturbed, run_undisturbed
from autocode.jobs.testing.crashes.workloads import Prepared, Workload

__all__ = ["check_steady", "in_peace"]

_LIMIT_SECONDS: Final = 150.0
"""How long such a job may take: as long as one on the service."""


def check_steady(workload: Workload, prepared: Prepared, folder: Path, job_id: str) -> None:
    """Make sure that a kind leaves the same twice; otherwise no comparison says anything.

    Raises:
        UsageError: it doesn't, or it fails or hangs by itself.
    """
    first, second = (in_peace(workload, prepared, folder / f"steady-{n}", job_id) for n in (1, 2))
    if first != second:
        raise UsageError(
            f"Two jobs of {workload.name!r} with one payload, which nobody disturbed, left different bytes.",
            hint="Leave clocks, chance and counters out of what its steps make: jobs are compared by it.",
        )


def in_peace(workload: Workload, prepared: Prepared, folder: Path, job_id: str) -> Undisturbed:
    """Run a job that nobody disturbs; what its kind prints goes to stderr, since stdout may be for a program.

    Raises:
        UsageError: it takes too long, or fails by itself.
    """
    kind = workload.kind
    try:
        with _stdout_apart():
            return run_undisturbed(
                kind, prepared.payload, folder, prepared.roots, job_id, within=_LIMIT_SECONDS
            )
    except TimeoutError:
        raise UsageError(
            f"A job of {kind.name!r} that nobody disturbs isn't over within {_LIMIT_SECONDS:g} s.",
            hint="Give it a smaller payload, or find out what it waits for.",
        ) from None
    except Exception as error:
        # whatever a foreign kind raises
        raise UsageError(
            f"A job of {kind.name!r} that nobody disturbs fails: {type(error).__name__}: {error}",
            hint="Mend the kind or the payload first; AUTOCODE_TRACEBACK=1 shows where it was raised.",
        ) from error


@contextmanager
def _stdout_apart() -> Iterator[None]:
    """Let what is written to stdout go to stderr, also by those who write to the descriptor itself."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
