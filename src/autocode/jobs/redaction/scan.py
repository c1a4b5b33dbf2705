"""Finding the spans of secrets in one text, in windows, so that no single call runs for long."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from autocode.jobs.errors import RedactionFailed
from autocode.jobs.redaction.checks import CHECKS, LOOK
from autocode.jobs.redaction.policy import MARKER, REACH, Rule

__all__ = ["WINDOW", "Span", "find_spans"]

WINDOW: Final = 1 << 18
"""Characters that one regular-expression search covers, beside ``REACH``."""

_RETRY: Final = 1024


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open piece ``[start, end)`` of a text that a rule of this *kind* wants replaced."""

    start: int
    end: int
    kind: str


def find_spans(
    text: str, rules: Sequence[Rule], *, window: int = WINDOW, whole: Sequence[Rule] = ()
) -> list[Span]:
    """Return the spans to replace, in order, disjoint, none of them touching a marker.

    Overlapping finds become one span over all of them, named by the leftmost, then the longest, then the
    earlier rule: what any rule calls secret is gone. The result doesn't depend on *window*.

    Args:
        text: the text to search.
        rules: rules whose patterns are searched for.
        window: characters that one search covers.
        whole: rules whose key said that the whole text may be a secret.

    Raises:
        RedactionFailed: a rule raised; the detail names the rule, never the text.
    """
    spans: list[tuple[int, int, int, str]] = []
    for rank, rule in enumerate(rules):
        # The error is raised outside the handler so that the failed frame's text isn't attached to it.
        cause = ""
        try:
            if _names_it(rule, text):
                spans += [(start, -end, rank, rule.kind) for start, end in _matches(text, rule, window)]
            if rule in whole and _accepts(rule, text):
                spans.append((0, -len(text), rank, rule.kind))
        except Exception as error:  # noqa: BLE001 - whatever a rule raises, the export must stop
            cause = type(error).__name__
        if cause:
            raise RedactionFailed(f"rule {rule.kind!r} failed with {cause}", rule=rule.kind, cause=cause)
    return _outside_markers(text, _merged(sorted(spans)))


def _matches(text: str, rule: Rule, window: int) -> Iterator[tuple[int, int]]:
    pattern, group, size = rule.compiled, rule.group, len(text)
    start = 0
    while start < size:
        end = min(size, start + window + REACH)
        decided = size if end == size else end - REACH
        found = pattern.search(text, start, end)
        if found is None or found.start() >= decided:
            start = decided
            continue
        # The window may have cut the final run short: the extent comes from the text itself.
        match = pattern.match(text, found.start())
        if match is None or match.end() == match.start():
            start = found.start() + 1
            continue
        first, last = match.span(group)
        if first < last and _accepts(rule, match.group(group)):
            yield first, last
            start = match.end()
        else:
            # what was refused may hold another name, with a value of its own behind it
            start = match.start() + 1 if last - first <= _RETRY else match.end()


def _names_it(rule: Rule, text: str) -> bool:
    if not rule.needles:
        return True
    lowered = text.lower()
    return any(needle in lowered for needle in rule.needles)


def _accepts(rule: Rule, value: str) -> bool:
    if "[REDACTED:" in value:
        value = MARKER.sub("", value[: 4 * LOOK])
    return CHECKS[rule.check](value)


def _merged(spans: Sequence[tuple[int, int, int, str]]) -> list[Span]:
    merged: list[Span] = []
    for start, minus_end, _rank, kind in spans:
        if merged and start < merged[-1].end:
            last = merged[-1]
            merged[-1] = Span(last.start, max(last.end, -minus_end), last.kind)
        else:
            merged.append(Span(start, -minus_end, kind))
    return merged


def _outside_markers(text: str, spans: list[Span]) -> list[Span]:
    if not spans or "[REDACTED:" not in text:
        return spans
    pieces: list[Span] = []
    markers = MARKER.finditer(text)
    marker: re.Match[str] | None = next(markers, None)
    for span in spans:
        start = span.start
        while marker is not None and marker.start() < span.end:
            if start < marker.start():
                pieces.append(Span(start, marker.start(), span.kind))
            start = max(start, marker.end())
            if marker.end() >= span.end:
                break
            marker = next(markers, None)
        if start < span.end:
            pieces.append(Span(start, span.end, span.kind))
    return pieces
