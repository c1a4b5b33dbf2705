"""Durable, user-visible background jobs on Prefect.

Importing the package is cheap: it brings the in-process queue and the words of the status contract. The
rooms that need Prefect, a database or pandas are imported by name, or when :func:`load` is called.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autocode.jobs._version import __version__
from autocode.jobs.model import JobStatus
from autocode.jobs.queue import JobQueue

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["JobQueue", "JobStatus", "__version__", "load"]

# whoever sets up no logging gets none, instead of warnings in the middle of their screen
logging.getLogger(__name__).addHandler(logging.NullHandler())


def load(
    digest: str | Path,
    *,
    home: str | Path | None = None,
    table: str = "records",
    columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return a table of an export as a pandas DataFrame. Nothing is written.

    The tables and their columns are in docs/tables.md: ``records`` (one row for each record of the normal
    form), ``sessions``, ``messages``, ``tool_calls``, ``usage``, ``sources``, ``losses``, ``damage``,
    ``redactions``, ``redaction_counts``, ``unread`` and ``bundle``. Types are ``Int64``, ``Float64``,
    ``string[python]``, ``category``, ``boolean`` and ``datetime64[ms, UTC]``, whatever the values are, so an
    empty table has them too. Every byte is verified on the way. ``attrs`` has the digest and the table.

    For an export that is larger than the memory: ``autocode.jobs.operations.views.frame.iter_frames``.

    Args:
        digest: ``sha256:`` and 64 hexadecimal digits, or the first 8 and more of them, for an export in the
            local store; or the path of an unpacked bundle, or of its zip file.
        home: the data folder of the store; that of ``AUTOCODE_HOME``, or the usual one, if not given.
        table: name of the table.
        columns: names of columns, in the order wanted; all of them if not given.

    Raises:
        ObjectMissing: no such export is in the store, or an object of it is missing.
        ObjectCorrupt: an object of it is damaged; it is in quarantine.
        BundleDamaged: a file of the unpacked or zipped bundle is missing or changed.
        UsageError: *digest* is no export and no bundle, or a table or column has another name.
    """
    from autocode.jobs.operations.views.frame import load_frame  # noqa: PLC0415 - pandas takes half a second

    return load_frame(digest, home=home, table=table, columns=columns)
