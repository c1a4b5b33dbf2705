"""Tables of an export as pandas frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pandas as pd

from autocode.jobs.errors import UsageError
from autocode.jobs.operations.views.bundles import opened_bundle
from autocode.jobs.operations.views.counting import Row
from autocode.jobs.operations.views.rows import rows_of
from autocode.jobs.operations.views.tables import Column, Kind, Table, table_named

__all__ = ["DTYPES", "iter_frames", "load_frame"]

DTYPES: Final = {
    Kind.INTEGER: "Int64",
    Kind.REAL: "Float64",
    Kind.TEXT: "string[python]",
    Kind.WORD: "category",
    Kind.TIME: "datetime64[ms, UTC]",
    Kind.FLAG: "boolean",
    Kind.JSON: "string[python]",
}
"""The type of a column by what it holds; all of them can be missing."""

_ROWS: Final = 20_000
_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%S.%fZ"


def load_frame(
    digest: str | Path,
    *,
    home: str | Path | None = None,
    table: str = "records",
    columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return a table of an export, its rows by their key; :func:`autocode.jobs.load` is the public name.

    Everything that is read is verified first, or an error is raised. The frame and its parts lie in memory at
    the same time for a moment; where that is too much, choose *columns*, or use :func:`iter_frames`.

    Raises what :func:`iter_frames` raises.
    """
    described, chosen = _described(table, columns)
    sorting = [name for name in described.key if described.of_records]
    taken = list(dict.fromkeys([*(column.name for column in chosen), *sorting]))
    parts = list(_frames(digest, home, described, _columns(described, taken), _ROWS))
    frame = pd.concat(parts, ignore_index=True)
    if sorting:
        frame = frame.sort_values(sorting, ignore_index=True)
    frame = frame[[column.name for column in chosen]]
    frame = frame.astype({column.name: "category" for column in chosen if column.kind is Kind.WORD})
    with opened_bundle(digest, home) as bundle:
        frame.attrs = {"digest": bundle.manifest.digest, "table": table}
    return frame


def iter_frames(
    digest: str | Path,
    *,
    home: str | Path | None = None,
    table: str = "records",
    columns: Sequence[str] | None = None,
    rows: int = _ROWS,
) -> Iterator[pd.DataFrame]:
    """Yield a table of an export in frames of at most *rows* rows, at least one, in bounded memory.

    Rows of ``tool_calls`` and ``usage`` come when they are complete, so not quite by their key. Columns of
    words are of the type ``string[python]`` here, since no frame knows the words of the others. A member is
    proven only when its last row came: an error may follow upon frames that were handed out.

    Args:
        digest: ``sha256:`` and 64 hexadecimal digits, or the first 8 and more of them, for an export in the
            local store; or the path of an unpacked bundle, or of its zip file.
        home: the data folder of the store; that of ``AUTOCODE_HOME``, or the usual one, if not given.
        table: name of the table; docs/tables.md describes them all.
        columns: names of columns, in the order wanted; all of them if not given.
        rows: rows of a frame.

    Raises:
        ObjectMissing: no such export is in the store, or an object of it is missing.
        ObjectCorrupt: an object of it is damaged; it is in quarantine.
        BundleDamaged: a file of the unpacked or zipped bundle is missing or changed.
        UsageError: *digest* is no export and no bundle, or a table or column has another name.
    """
    described, chosen = _described(table, columns)
    if rows < 1:
        raise UsageError("A frame has at least one row.", hint="Give rows=1 or more.")
    return _frames(digest, home, described, chosen, rows)


def _frames(
    digest: str | Path,
    home: str | Path | None,
    table: Table,
    columns: Sequence[Column],
    size: int,
) -> Iterator[pd.DataFrame]:
    with opened_bundle(digest, home) as bundle:
        rows = (row for _, row in rows_of(bundle, (table.name,)))
        first = True
        while (batch := _batch(rows, columns, size))[0] or first:
            series = zip(columns, batch[1], strict=True)
            yield pd.DataFrame({column.name: _series(values, column) for column, values in series})
            first = False


def _batch(rows: Iterator[Row], columns: Sequence[Column], size: int) -> tuple[int, list[list[Any]]]:
    """Return how many rows came, and their values by column: the rest of each row is dropped at once."""
    values: list[list[Any]] = [[] for _ in columns]
    count = 0
    for row in islice(rows, size):
        count += 1
        for column, taken in zip(columns, values, strict=True):
            taken.append(row[column.name])
    return count, values


def _series(values: list[Any], column: Column) -> Any:
    if column.kind is Kind.TIME:
        times = pd.to_datetime(pd.Series(values, dtype="object"), format=_TIME_FORMAT, utc=True)
        return times.astype(pd.api.types.pandas_dtype(DTYPES[Kind.TIME]))
    # words become categories when all of them are known
    dtype = pd.api.types.pandas_dtype(DTYPES[Kind.TEXT if column.kind is Kind.WORD else column.kind])
    return pd.Series(values, dtype=dtype)


def _described(table: str, columns: Sequence[str] | None) -> tuple[Table, tuple[Column, ...]]:
    described = table_named(table)
    return described, described.columns if columns is None else _columns(described, columns)


def _columns(table: Table, names: Sequence[str]) -> tuple[Column, ...]:
    known = {column.name: column for column in table.columns}
    if isinstance(names, str) or not names or len(set(names)) != len(names):
        raise UsageError("columns takes a list of different names, at least one.")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(
            f"The table {table.name} has no column {unknown[0]!r}.", hint=f"It has: {', '.join(known)}."
        )
    return tuple(known[name] for name in names)
