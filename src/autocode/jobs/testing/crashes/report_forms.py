"""A summary of many cases, written down: a table on a terminal, plain text, a table in a page."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from rich.table import Table

from autocode.jobs.errors import UsageError
from autocode.jobs.testing.crashes.report import HEAD, Summary

__all__ = ["as_markdown", "as_table", "as_text", "check_page", "conditions", "into_page"]

_BEGIN: Final = "<!-- crash-test: begin -->\n"
_END: Final = "<!-- crash-test: end -->\n"


def as_table(summary: Summary) -> Table:
    """Return the summary for a terminal."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(HEAD):
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in summary.rows:
        bad = row.repeats + row.losses + row.other + row.not_judged
        table.add_row(*row.cells, style="red" if bad else "")
    table.add_row(*summary.total.cells, style="bold")
    return table


def as_text(summary: Summary) -> str:
    """Return the summary as lines of plain text, columns aligned."""
    lines = [HEAD, *(row.cells for row in (*summary.rows, summary.total))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = (
        [cell.rjust(width) if number else cell.ljust(width) for number, (cell, width) in enumerate(pairs)]
        for pairs in (list(zip(line, widths, strict=True)) for line in lines)
    )
    return "".join("  ".join(cells).rstrip() + "\n" for cells in aligned)


def as_markdown(summary: Summary, about: str) -> str:
    """Return the summary as a table in Markdown, with what it depends on before it.

    Args:
        summary: of the run.
        about: the sentence of :func:`conditions`, or another.
    """
    ruler = ("---", *("---:" for _ in HEAD[1:]))
    rows = [HEAD, ruler, *(row.cells for row in (*summary.rows, summary.total))]
    told = (
        f"{about} {summary.total.cases} cases in {summary.seconds / 60:.0f} minutes; "
        f"effects delivered again under their key, and not applied again: {summary.total.redelivered}."
    )
    return f"{told}\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def conditions() -> str:
    """Return what times depend on as a sentence: date, machine, versions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{name} {version(name)}" for name in ("autocode-jobs", "prefect"))
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {cores} cores; {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}; {versions}."
    )


def check_page(page: Path) -> None:
    """Make sure, before hours of measuring, that a page has a place for the summary.

    Raises:
        UsageError: it hasn't, or isn't there.
    """
    _parts(page)


def into_page(page: Path, text: str) -> None:
    """Replace what stands between the page's two marks by *text*, and nothing else.

    Raises:
        UsageError: the page has no such marks, or isn't there; nothing was written.
    """
    before, after = _parts(page)
    page.write_text(f"{before}{_BEGIN}\n{text}\n{_END}{after}", "utf-8")


def _parts(page: Path) -> tuple[str, str]:
    text = page.read_text("utf-8") if page.is_file() else ""
    before, _, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise UsageError(
            f"{page} has no place for the summary.",
            hint=f"Write {_BEGIN.strip()} and {_END.strip()} there, each on a line of its own.",
        )
    return before, after
