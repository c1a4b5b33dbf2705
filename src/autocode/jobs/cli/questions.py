"""Asking the person at the terminal, so that Ctrl-C is heard at any moment of it."""

from __future__ import annotations

import select
import sys
from typing import Final

from autocode.jobs.cli.screen import Screen
from autocode.jobs.errors import UsageError

__all__ = ["confirmed"]

_LOOK_SECONDS: Final = 0.2
"""Between two looks whether a question was answered."""


def confirmed(screen: Screen, question: str, *, nobody: str, hint: str) -> bool:
    """Ask *question* until it is answered with yes or no; the empty answer means yes.

    Args:
        screen: where to ask.
        question: without the choice of answers.
        nobody: what to say where there is no terminal to ask at.
        hint: what to do then.

    Raises:
        UsageError: there is no terminal.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(nobody, hint=hint)
    while True:
        screen.err.print(f"{question} [Y/n] ", end="", markup=False)
        said = _answer()
        if said.strip().casefold() in {"y", "yes"} or said == "\n":
            return True
        if said == "" or said.strip().casefold() in {"n", "no"}:
            return False


def _answer() -> str:
    # Ctrl-C just before a read would be heard only when that ends: so read when there is something to read
    while not select.select([sys.stdin], [], [], _LOOK_SECONDS)[0]:
        pass
    return sys.stdin.readline()
