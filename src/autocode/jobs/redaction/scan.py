"""Finding the spans of secrets in one text, in windows, so that no single call runs for long."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
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
    """A half-open piece ``[start, end)`` of a text that a *rule*, of this *kind*, wants replaced."""

    start: int
    end: int
    kind: str
    rule: str


def find_spans(
    text: str,
    rules: Sequence[Rule],
    *,
    window: int = WINDOW,
    whole: Sequence[Rule] = (),
    allowed: Callable[[Rule, str], bool] = lambda _rule, _value: False,
) -> list[Span]:
    """Return the spans to replace, in order, disjoint, none of them touching a marker.

    Overlapping finds become one span over all of them, named by the leftmost, then the longest, then the
    earlier rule: what any rule calls secret is gone. The result doesn't depend on *window*.

    Args:
        text: the text to search.
        rules: rules whose patterns are searched for.
        window: characters that one search covers.
        whole: rules whose key said that the whole text may be a secret.
        allowed: says that what a rule found is harmless.

    Raises:
        RedactionFailed: a rule raised; the detail names the rule, never the text.
    """
    spans: list[tuple[int, int, int, Rule]] = []
    for rank, rule in enumerate(rules):
        # The error is raised outside the handler so that the failed frame's text isn't attached to it.
        cause = ""
        try:
            spans += [
                (start, -end, rank, rule)
                for start, end in _found(text, rule, window, whole=rule in whole)
                if not allowed(rule, text[start:end])
            ]
        except Exception as error:  # noqa: BLE001 - whatever a rule raises, the export must stop
            cause = type(error).__name__
        if cause:
            raise RedactionFailed(f"rule {rule.id!r} failed with {cause}", rule=rule.id, cause=cause)
    return _outside_markers(text, _merged(sorted(spans, key=lambda span: span[:3])))


def _found(text: str, rule: Rule, window: int, *, whole: bool) -> Iterator[tuple[int, int]]:
    if whole and _accepts(rule, text):
        yield 0, len(text)
    if not rule.pattern or not _is_about(rule, text):
        return
    if rule.linear:
        yield from _linear_matches(text, rule)
    else:
        yield from _matches(text, rule, window)


def _linear_matches(text: str, rule: Rule) -> Iterator[tuple[int, int]]:
    """Search the whole text at once: RE2 frees the interpreter lock, so nobody waits for it."""
    try:
        text.encode("utf-8")
        shown = text
    except UnicodeEncodeError:
        # a lone surrogate becomes one other character, so that the places stay the same
        shown = text.encode("utf-8", "replace").decode("utf-8")
    for match in rule.compiled_linear.finditer(shown):
        first, last = match.span(rule.group)
        if first < last and _accepts(rule, text[first:last]):
            yield first, last


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


def _is_about(rule: Rule, text: str) -> bool:
    if not rule.needles:
        return True
    lowered = text.lower()
    return any(needle in lowered for needle in rule.needles)


def _accepts(rule: Rule, value: str) -> bool:
    if "[REDACTED:" in value:
        value = MARKER.sub("", value[: 4 * LOOK])
    return CHECKS[rule.check](value)


def _merged(spans: Sequence[tuple[int, int, int, Rule]]) -> list[Span]:
    merged: list[Span] = []
    for start, minus_end, _rank, rule in spans:
        if merged and start < merged[-1].end:
            last = merged[-1]
            merged[-1] = Span(last.start, max(last.end, -minus_end), last.kind, last.rule)
        else:
            merged.append(Span(start, -minus_end, rule.kind, rule.id))
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
                pieces.append(Span(start, marker.start(), span.kind, span.rule))
            start = max(start, marker.end())
            if marker.end() >= span.end:
                break
            marker = next(markers, None)
        if start < span.end:
            pieces.append(Span(start, span.end, span.kind, span.rule))
    return pieces
