"""Where the command line writes: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from autocode.jobs.errors import JobsError
from autocode.jobs.resource import Job

__all__ = ["Screen", "bytes_text", "local_time", "plural"]

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


class Screen:
    """Two consoles that respect ``NO_COLOR`` and a stdout that isn't a terminal.

    Args:
        json_mode: stdout is for one machine-readable line; people's text goes to stderr.
    """

    def __init__(self, *, json_mode: bool = False) -> None:
        self.json_mode = json_mode
        self.err = Console(stderr=True, highlight=False, soft_wrap=True)
        self.out = self.err if json_mode else Console(highlight=False, soft_wrap=True)

    def say(self, text: str | Text = "") -> None:
        """Print a line of the result for people."""
        self.out.print(text if isinstance(text, Text) else Text.from_markup(text))

    def note(self, text: str) -> None:
        """Print a line on the side, to stderr; *text* is taken as it is."""
        self.err.print(Text(text, style="dim"))

    def row(self, label: str, value: str, *, style: str = "") -> None:
        """Print a label and its value, aligned with the other rows; *value* is taken as it is."""
        line = Text(f"  {label:<10} ", style="dim")
        self.out.print(line.append(Text(value, style=style)))

    def emit(self, value: Mapping[str, Any] | Job) -> None:
        """Print *value* as one line of JSON on stdout."""
        data = value.to_json() if isinstance(value, Job) else dict(value)
        sys.stdout.write(json.dumps(data, ensure_ascii=True) + "\n")
        sys.stdout.flush()

    def fail(self, error: JobsError) -> None:
        """Print an error: what happened, and what to do next."""
        self.err.print(Text("error: ", style="bold red").append(Text(error.detail, style="default")))
        if error.hint:
            self.err.print(Text("  next: ", style="bold").append(Text(error.hint, style="default")))


def bytes_text(size: int) -> str:
    """Return *size* in the largest decimal unit that leaves at least one whole: ``12.3 MB``."""
    value = float(size)
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable: the last unit takes everything")


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return ``1 session``, ``2 sessions``, ``1,234 sessions``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def local_time(text: str | None) -> str:
    """Return a time of the contract in the user's own zone, or a hyphen where there is none."""
    if text is None:
        return "-"
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
