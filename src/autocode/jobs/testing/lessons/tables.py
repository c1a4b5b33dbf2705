"""Tables and sentences as plain text, so that a stored output can be compared, read aloud and diffed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Cell", "Table", "Text"]

Cell = str | int
_GAP: Final = "  "


class Text(str):
    """A sentence that a notebook shows as it is, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """Rows under named columns; its ``repr`` is the table as text, columns with numbers to the right.

    Args:
        columns: the names of the columns.
        rows: the cells, as many in each row as there are columns.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @classmethod
    def of(cls, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table:
        """Return the table of *rows* under *columns*.

        Raises:
            ValueError: a row has more or fewer cells than there are columns.
        """
        kept = tuple(tuple(row) for row in rows)
        for row in kept:
            if len(row) != len(columns):
                raise ValueError(f"{len(columns)} columns, and a row of {len(row)} cells: {row!r}")
        return cls(tuple(columns), kept)

    def column(self, name: str) -> list[Cell]:
        """Return the cells under *name*, from top to bottom.

        Raises:
            ValueError: no column has this name.
        """
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        if not self.rows:
            return f"(nothing under {', '.join(self.columns)})"
        widths = [
            max(len(name), *(len(str(row[place])) for row in self.rows))
            for place, name in enumerate(self.columns)
        ]
        numeric = [any(isinstance(row[place], int) for row in self.rows) for place in range(len(widths))]
        lines = [self.columns, tuple("-" * width for width in widths), *self.rows]
        return "\n".join(_line(line, widths, numeric) for line in lines)


def _line(cells: Sequence[Cell], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = (
        str(cell).rjust(width) if right else str(cell).ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    )
    return _GAP.join(padded).rstrip()
