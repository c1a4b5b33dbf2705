"""Where the command line writes: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import logging
import os
import sys
import textwrap
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, cast

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from autocode.jobs.resource import Job

__all__ = ["Screen", "bytes_text", "local_time", "plural", "visible", "zone"]

_log = logging.getLogger(__name__)

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_LABEL: Final = 9
"""Columns before a value: what 80 of them leave is as wide as a digest."""


class _Out(Console):
    def on_broken_pipe(self) -> None:
        """Let the error through: whoever read our output has seen enough."""
        raise  # noqa: PLE0704 - rich calls this while it handles the error


class _Err(Console):
    def show_cursor(self, show: bool = True) -> bool:
        """Leave the cursor alone: a process that is killed could not bring it back."""
        del show
        return False

    def on_broken_pipe(self) -> None:
        """Go on in silence: that nobody reads the progress is no reason to stop the work."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


class _Lasting:
    """A stream whose reader may go away, or whose disk may be full: what can't be written then is lost.

    Args:
        stream: stdout or stderr of this process.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:
        """Of the stream."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """Say whether somebody looks at a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the stream's descriptor."""
        return self._stream.fileno()

    def write(self, text: str, /) -> int:
        """Write, if that is possible."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._let_go(error)
            return len(text)

    def flush(self) -> None:
        """Flush, if that is possible."""
        try:
            self._stream.flush()
        except OSError as error:
            self._let_go(error)

    def _let_go(self, error: OSError) -> None:
        # what is still in the buffer goes there as well, else it would be tried again at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        _log.warning("nobody can read what is shown any more (%s); it goes on unseen", error.strerror)


class Screen:
    """Two consoles that respect ``NO_COLOR``, ``TERM=dumb`` and an output that is no terminal.

    Text that comes from outside (paths, messages, names) passes through :func:`visible` here, so that no
    file name can move the cursor or recolour the screen.

    Args:
        json_mode: stdout is for machine-readable lines; people's text goes to stderr.
        lasting: go on in silence once nothing more can be written, instead of raising that.
    """

    def __init__(self, *, json_mode: bool = False, lasting: bool = False) -> None:
        self.json_mode = json_mode
        self._stdout = cast("TextIO", _Lasting(sys.stdout)) if lasting else None
        stderr = cast("TextIO", _Lasting(sys.stderr)) if lasting else None
        # rich takes NO_COLOR by its letter and leaves bold and dim; who sets it wants plain text
        colors: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
        self.err: Console = _Err(
            file=stderr, stderr=True, highlight=False, soft_wrap=True, color_system=colors
        )
        self.out: Console = self.err
        if not json_mode:
            self.out = _Out(file=self._stdout, highlight=False, soft_wrap=True, color_system=colors)

    @property
    def live(self) -> bool:
        """Whether stderr is a terminal on which a line can be redrawn."""
        return self.err.is_terminal and not self.err.is_dumb_terminal

    @property
    def width(self) -> int | None:
        """Columns of the terminal that shows the result; ``None`` where it is no terminal."""
        return self.out.width if self.out.is_terminal else None

    def say(self, text: str | Text = "", *, style: str = "") -> None:
        """Print a line of the result for people."""
        self.out.print(text if isinstance(text, Text) else Text(visible(text), style=style))

    def note(self, text: str) -> None:
        """Print a line on the side, to stderr."""
        self.err.print(Text(visible(text), style="dim"))

    def row(self, label: str, value: str, *, style: str = "", wrap: bool = False) -> None:
        """Print a label and its value, aligned with the other rows.

        Args:
            label: at most eight characters.
            value: what is to be told.
            style: of the value.
            wrap: break a long value between words; leave it off for what people copy.
        """
        lines = [visible(value)]
        if wrap and self.width is not None:
            lines = textwrap.wrap(
                lines[0], max(self.width - _LABEL, 20), break_long_words=False, break_on_hyphens=False
            ) or [""]
        text = Text(f"{label:<{_LABEL - 1}} ", style="dim").append(Text(lines[0], style=style))
        for line in lines[1:]:
            text.append("\n" + " " * _LABEL).append(Text(line, style=style))
        self.out.print(text)

    def emit(self, value: Mapping[str, Any] | Job) -> None:
        """Print *value* as one line of JSON on stdout."""
        data = dict(value) if isinstance(value, Mapping) else value.to_json()
        stdout = self._stdout or sys.stdout
        stdout.write(json.dumps(data, ensure_ascii=True) + "\n")
        stdout.flush()

    def fail(self, detail: str, hint: str) -> None:
        """Print an error: what happened, and what to do next."""
        self.err.print(Text("error: ", style="bold red").append(Text(visible(detail), style="default")))
        if hint:
            self.err.print(Text("  next: ", style="bold").append(Text(visible(hint), style="default")))


def visible(text: str) -> str:
    r"""Return *text* with everything a terminal might obey spelt out, as in ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _spelt(each) for each in text)


def _spelt(character: str) -> str:
    try:
        return character.encode("unicode_escape").decode("ascii")
    except UnicodeEncodeError:
        return repr(character)


def bytes_text(size: int) -> str:
    """Return *size* in the largest decimal unit that leaves at least one whole: ``12.3 MB``."""
    value = float(size)
    for unit in _UNITS:
        # what would be rounded up to 1000.0 belongs to the next unit
        if value < 999.95 or unit == _UNITS[-1]:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable: the last unit takes everything")


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return ``1 session``, ``2 sessions``, ``1,234 sessions``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def local_time(text: str | None, *, seconds: bool = True) -> str:
    """Return a time of the contract as the user's clock counts now, or a hyphen where there is none.

    Args:
        text: the time.
        seconds: whole, with the zone behind it; else without both, for a table whose title has the zone.
    """
    if text is None:
        return "-"
    # by today's offset, winter or summer: then all times on a screen have one zone, and can be compared
    moment = datetime.fromisoformat(text).astimezone(_now().tzinfo)
    return f"{moment:%Y-%m-%d %H:%M:%S} {zone()}" if seconds else f"{moment:%Y-%m-%d %H:%M}"


def zone() -> str:
    """Return the zone of :func:`local_time`: ``UTC``, or how far it is from there as in ``+02:00``."""
    now = _now()
    return now.isoformat(timespec="seconds")[19:] if now.utcoffset() else "UTC"


def _now() -> datetime:
    return datetime.now().astimezone()
