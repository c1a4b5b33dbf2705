"""Behind a broken member of a JSON document: where the next one begins, of whatever container."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from autocode.jobs.sessions.head import opened_object
from autocode.jobs.sessions.jsonvalue import loads
from autocode.jobs.sessions.window import STEP, Broken, Region, Window

__all__ = ["EACH", "MAX_KEYS", "OVERLAP", "ROOT", "Frame", "Layout", "Resumption"]

ROOT: Final = ""
"""The place that a document's outermost container is."""

EACH: Final = "[]"
"""In a layout, what stands for the name of every element of a list."""

Layout = Mapping[str, Mapping[str, str]]
"""For each place the members that are opened, by name, and the place that each of them is.

``{ROOT: {EACH: "talk", "chat": "chat"}, "talk": {"chat": "chat"}, "chat": {}}`` opens a list of talks or a
single one, and in each its ``chat``. A place may lie within itself.
"""

MAX_KEYS: Final = 8
"""First keys that are remembered of the members of a container."""

OVERLAP: Final = 1024
"""Bytes by which searches overlap: nothing that is searched for is longer."""

_SHOWN: Final = 64 * 1024
_SPACE: Final = rb"[ \t\r\n]{0,200}+"
_NAME: Final = rb'"[^"\\\x00-\x1f]{1,200}+"' + _SPACE + b":" + _SPACE
_ENDS: Final = frozenset(b",]}") | {-1}


@dataclass(slots=True)
class Frame:
    """A container that was entered and not left yet.

    Args:
        place: what the layout calls it.
        is_list: whether its members have no names.
        keys: the first keys, in quotes, of members that are objects.
        indent: the newline and the spaces before its members, empty where they aren't on lines of their own,
            ``None`` before the first.
    """

    place: str
    is_list: bool
    keys: set[bytes] = field(default_factory=set)
    indent: bytes | None = None


class Resumption:
    """Looks for the next member behind a broken one, in linear time.

    A member looks like those before it: the same indentation, the same first key. It must be whole, followed
    by what may follow it, and *recognises* tells it from a value inside the broken one.

    Args:
        window: the document.
        frames: the containers that are open, outermost first.
        layout: which containers are opened.
        recognises: says whether a value may be a member of a place.
    """

    def __init__(
        self,
        window: Window,
        frames: Sequence[Frame],
        layout: Layout,
        recognises: Callable[[str, Any], bool],
    ) -> None:
        self._window = window
        self._frames = frames
        self._layout = layout
        self._recognises = recognises
        # Candidates may lie inside one another; what is spent on them is bounded by what was passed.
        self._spent = 0

    def find(self, first: int, region: Region) -> tuple[int, int] | None:
        """Return where a member begins, from *first* on, and how many frames it is in; ``None`` at the end.

        What was passed is given to *region*.
        """
        looks = [(depth, look) for depth, frame in enumerate(self._frames, 1) if (look := self._look(frame))]
        if not looks:
            self._pass_all(region)
            return None
        # innermost first: at one position it's the likelier
        pattern = re.compile(b"|".join(b"(?P<f%d>%s)" % look for look in reversed(looks)))
        window, at = self._window, first - max(len(frame.indent or b"") for frame in self._frames)
        while True:
            stop = min(window.end, at + STEP)
            match = window.search(pattern, at, stop)
            if match is not None:
                depth = int((match.lastgroup or "f0")[1:])
                start, at = window.offset_of(match.start()), window.offset_of(match.start() + 1)
                begin = start + len(self._frames[depth - 1].indent or b"")
                affordable = self._spent <= STEP + 2 * (begin - first)
                if begin >= first and affordable and self._is_member(begin, self._frames[depth - 1]):
                    return begin, depth
                continue
            if stop == window.end and not window.more():
                self._pass_all(region)
                return None
            at = max(at, stop - OVERLAP)
            region.take(max(region.done, at))

    def _pass_all(self, region: Region) -> None:
        while self._window.more():
            region.take(self._window.end)

    def _look(self, frame: Frame) -> bytes:
        """Return the pattern of a member of *frame*; an empty one where nothing is known of it."""
        indent = re.escape(frame.indent or b"")
        patterns = []
        if frame.keys:
            keys = rb"\{" + _SPACE + b"(?:" + b"|".join(map(re.escape, sorted(frame.keys))) + b")"
            patterns.append(keys if frame.is_list else _NAME + keys)
        names = [re.escape(name.encode()) for name in self._layout[frame.place] if name != EACH]
        if names and not frame.is_list:
            patterns.append(b'"(?:' + b"|".join(names) + b')"' + _SPACE + b":" + _SPACE + rb"[{\[]")
        return indent + b"(?:" + b"|".join(patterns) + b")" if patterns else b""

    def _is_member(self, start: int, frame: Frame) -> bool:
        window = self._window
        try:
            value, name = (start, EACH) if frame.is_list else self._named(start)
            if name not in self._layout[frame.place]:
                return self._is_whole(value, frame.place)
        except Broken as broken:
            self._spent += broken.offset - start
            return False
        except ValueError:
            return False
        if name != EACH:
            return True
        # It may be longer than what can be held, so its first keys must do.
        window.byte(value + _SHOWN)
        self._spent += _SHOWN
        return self._recognises(frame.place, opened_object(window.slice(value, value + _SHOWN)))

    def _is_whole(self, value: int, place: str) -> bool:
        window = self._window
        end = window.follow(value, is_tried=True)
        self._spent += 2 * (end - value)
        if window.byte(window.space(end)) not in _ENDS:
            return False
        return self._recognises(place, loads(window.slice(value, end), Counter()))

    def _named(self, start: int) -> tuple[int, str]:
        window = self._window
        end = window.follow(start, is_tried=True)
        name = str(loads(window.slice(start, end), Counter()))
        return window.space(window.space(end) + 1), name
