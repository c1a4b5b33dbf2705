"""Figures in the order of events, never on a time axis, so that every run of a lesson draws the same."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Figure", "Lane", "Mark", "timeline"]

_INK: Final = "#1b2733"
_KILL: Final = "#b3261e"
_DPI: Final = 110
_COLOURS: Final = 32


class Mark(StrEnum):
    """What an attempt did with a step; the word is drawn, so that colour is never the only sign."""

    DONE = "done"
    REUSED = "reused"
    LOST = "lost"
    NOTHING = ""


# Okabe and Ito's colours, which people with any kind of colour vision tell apart
_FILL: Final = {Mark.DONE: "#56b4e9", Mark.REUSED: "#ffffff", Mark.LOST: "#f3c9a5", Mark.NOTHING: "none"}
_HATCH: Final = {Mark.DONE: "", Mark.REUSED: "", Mark.LOST: "////", Mark.NOTHING: ""}


@dataclass(frozen=True, slots=True)
class Lane:
    """One job in a timeline.

    Args:
        name: what its row is called.
        attempts: for each attempt, what it did with each step.
        kills: for each attempt that was killed, by its place in *attempts*: how many steps lay before the
            kill, with a half for a kill inside a step.
    """

    name: str
    attempts: tuple[tuple[Mark, ...], ...]
    kills: Mapping[int, float]


class Figure:
    """A picture with words for those who don't see it; a notebook stores both.

    Args:
        png: the picture.
        alt: what it shows.
    """

    def __init__(self, png: bytes, alt: str) -> None:
        self.png = png
        self.alt = alt

    def __repr__(self) -> str:
        return f"figure: {self.alt}"

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        # the alt text in the output's metadata, where nbconvert's classic template and MyST-NB look for it
        return {"image/png": self.png, "text/plain": repr(self)}, {"image/png": {"alt": self.alt}}


def timeline(steps: Sequence[str], lanes: Sequence[Lane], *, title: str) -> Figure:
    """Draw what each attempt of each job did with each step, from left to right in the order of steps.

    Raises:
        ModuleNotFoundError: matplotlib isn't installed; it comes with the extra ``lessons``.
    """
    # building its cache of fonts, matplotlib says so on stderr, and stderr is part of a stored output
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    import numpy as np  # noqa: PLC0415 - belongs to the extra `lessons`
    from matplotlib import rc_context, rcdefaults  # noqa: PLC0415 - as above
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - as above
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - as above
    from PIL import Image  # noqa: PLC0415 - as above

    with rc_context():
        rcdefaults()
        height = sum(len(lane.attempts) * 0.34 + 0.3 for lane in lanes) + 1.1
        canvas = Canvas(figsize=(9.0, height), layout="constrained")
        axes = canvas.subplots()
        _draw(axes, steps, lanes)
        axes.set_title(title, loc="left", color=_INK, fontsize=12, pad=12)
        canvas.dpi = _DPI
        painter = FigureCanvasAgg(canvas)
        painter.draw()  # type: ignore[no-untyped-call]
        rgba = np.asarray(painter.buffer_rgba())  # type: ignore[no-untyped-call]
        pixels = Image.fromarray(rgba).convert("RGB")
    # a few colours are enough, and make a third of the bytes: notebooks stay in the repository for ever
    stream = io.BytesIO()
    pixels.quantize(colors=_COLOURS).save(stream, format="png", optimize=True)
    return Figure(stream.getvalue(), _words(steps, lanes, title))


def _draw(axes: Axes, steps: Sequence[str], lanes: Sequence[Lane]) -> None:
    top = 0.0
    ticks: list[tuple[float, str]] = []
    for lane in lanes:
        ticks.append((top + len(lane.attempts) / 2, lane.name))
        for row, marks in enumerate(lane.attempts):
            _draw_attempt(axes, top + row, row + 1, marks)
            if row in lane.kills:
                _draw_kill(axes, top + row, lane.kills[row])
        top += len(lane.attempts) + 0.8
    axes.set_xlim(-0.75, len(steps) + 0.6)
    axes.set_ylim(top - 0.6, -0.2)
    axes.set_yticks([place for place, _ in ticks], [name for _, name in ticks])
    axes.set_xticks([place + 0.5 for place in range(len(steps))], list(steps))
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelcolor=_INK, labelsize=9)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_attempt(axes: Axes, top: float, number: int, marks: Sequence[Mark]) -> None:
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - belongs to the extra `lessons`

    middle = top + 0.5
    axes.text(-0.06, middle, f"attempt {number}", ha="right", va="center", color=_INK, fontsize=8)
    for column, mark in enumerate(marks):
        if mark is Mark.NOTHING:
            continue
        width = 0.5 if mark is Mark.LOST else 1.0
        axes.add_patch(
            Rectangle(
                (column + 0.03, top + 0.08),
                width - 0.06,
                0.84,
                facecolor=_FILL[mark],
                edgecolor=_INK,
                hatch=_HATCH[mark],
                linewidth=0.8,
                linestyle="--" if mark is Mark.REUSED else "-",
            )
        )
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 1.0} if mark is Mark.LOST else None
        axes.text(
            column + width / 2, middle, mark, ha="center", va="center", color=_INK, fontsize=9, bbox=behind
        )


def _draw_kill(axes: Axes, top: float, place: float) -> None:
    axes.plot([place] * 2, [top - 0.05, top + 1.05], color=_KILL, linewidth=2.5)
    axes.text(place + 0.06, top + 0.5, "SIGKILL", color=_KILL, va="center", fontsize=9, weight="bold")


def _words(steps: Sequence[str], lanes: Sequence[Lane], title: str) -> str:
    told = [f"{title}. Steps from left to right: {', '.join(steps)}."]
    for lane in lanes:
        parts = []
        for number, marks in enumerate(lane.attempts, 1):
            counts = [(mark, marks.count(mark)) for mark in (Mark.DONE, Mark.LOST, Mark.REUSED)]
            did = ", ".join(f"{count} {mark}" for mark, count in counts if count) or "nothing"
            end = ", then killed" if number - 1 in lane.kills else ""
            parts.append(f"attempt {number}: {did}{end}")
        told.append(f"{lane.name}: {'; '.join(parts)}.")
    return " ".join(told)
