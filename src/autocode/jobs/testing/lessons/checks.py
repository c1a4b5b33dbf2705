"""What a lesson claims, held against what was seen; and what a reader predicted, held against both."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Final

from autocode.jobs.errors import UsageError
from autocode.jobs.testing.lessons.tables import Text

__all__ = ["Claim", "check", "judge"]

_WIDTH: Final = 90  # characters that fit beside the number of a cell, also on a small screen

Claim = tuple[str, bool, str]
"""What is claimed, whether it holds, and why it does."""


def check(*claims: Claim) -> Text:
    """Return one line for each claim with the reason under it, and how many hold.

    A claim that doesn't hold is shown as such; nothing is raised, so that a reader sees all of them.
    """
    lines: list[str] = []
    for claim, holds, because in claims:
        lines += [f"{'ok ' if holds else 'NO '} {claim}", f"    because {because}"]
    lines.append(f"{sum(holds for _, holds, _ in claims)} of {len(claims)} hold")
    return Text("\n".join(lines))


def judge(prediction: str, *, right: str, options: Mapping[str, str]) -> Text:
    """Return what there is to say about a prediction: why it is right, or which mistake it is.

    Args:
        prediction: the reader's letter; anything that is no letter of *options* counts as none.
        right: the letter of the answer.
        options: by letter, one sentence on why it is right or what makes it wrong.

    Raises:
        UsageError: *right* is none of the options; a mistake of the lesson, not of the reader.
    """
    if right not in options:
        raise UsageError(f"The answer {right!r} is none of the options {', '.join(sorted(options))}.")
    said = prediction.strip().lower()
    if said == right:
        told = [f"You said {said}, and so it is. {options[right]}"]
    elif said in options:
        told = [f"You said {said}. {options[said]}", f"What happened is {right}. {options[right]}"]
    else:
        told = [f"You predicted nothing. What happened is {right}. {options[right]}"]
    return Text("\n".join(textwrap.fill(sentence, _WIDTH) for sentence in told))
