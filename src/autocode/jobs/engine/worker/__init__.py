"""The worker: a Prefect worker type of our own whose runs are children forked from a warm process.

``prefect worker start --type autocode-jobs`` finds it through the entry point group ``prefect.collections``;
:func:`run` is what our own command calls.

==================  =====================================================================================
module              holds
==================  =====================================================================================
``prefect_worker``  the worker type: takes due runs, starts children, drains
``arrivals``        wakes it: Prefect's events, a timer for the next due run, freed slots
``children``        its side of the zygote and of every child
``watch``           looks at the ledger: which children, and whose orphans, have lost their attempt
``zygote``          the one-thread process that has imported everything, and forks
``prewarm``         what is imported and built there once instead of in every child
``child``           what a child does from its fork to its end
``stopping``        how a child is stopped: handed back, cancelled, fenced off
``execution``       Prefect's engine in a child
==================  =====================================================================================

Nothing here imports Prefect before it is needed: Prefect reads its settings when it is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autocode.jobs.engine.server import Address
    from autocode.jobs.engine.system import System

__all__ = ["run"]


def run(
    system: System,
    address: Address,
    *,
    pool: str = "autocode",
    limit: int = 2,
    niceness: int = 10,
    name: str | None = None,
    grace: float | None = None,
) -> int:
    """Take runs from *pool* and execute them until SIGTERM or SIGINT; return the exit status.

    The first signal drains: nothing new is taken, running attempts get *grace* seconds and are then handed
    back, which uses none of their budget. A second signal hands them back at once. When it is ready,
    ``run/worker.json`` (``run/worker-NAME.json``) says so; the lock beside it is held until the end.

    Args:
        system: the opened home.
        address: the Prefect server.
        pool: the work pool; made, with the type ``autocode-jobs``, if it is missing.
        limit: how many runs at once.
        niceness: added to the children's nice value, so that interactive work goes first.
        name: tells several workers of one home apart, here and in Prefect.
        grace: seconds that running attempts get after the first signal; by default those of
            ``AUTOCODE_WORKER_GRACE``, else 5.

    Returns:
        0 after an orderly end, 1 where it could not go on.

    Raises:
        UsageError: another worker of this home has this name.
    """
    from autocode.jobs.engine.worker.service import serve  # noqa: PLC0415 - see the module's docstring

    return serve(system, address, pool=pool, limit=limit, niceness=niceness, name=name, grace=grace)
