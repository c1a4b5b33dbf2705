"""Text on its way to a database or from it: what people give, checked, and what a driver says, to be shown.

The two databases refuse different things.
"""

from __future__ import annotations

from typing import Final

from autocode.jobs.errors import UsageError

__all__ = ["LONGEST_REASON", "required", "sentence", "storable"]

LONGEST_REASON: Final = 2_000
"""Characters that a reason may have."""


def sentence(said: object) -> str:
    """Return what a driver said as one line with one mark at its end: libpq breaks lines, and may ask.

    Empty where it said nothing.
    """
    text = " ".join(str(said).split())
    return f"{text}." if text and text[-1] not in ".?!" else text


def storable(text: str, what: str) -> str:
    """Return *text* if both databases can store and compare it.

    Raises:
        UsageError: it holds a NUL or half of a surrogate pair; *what* names it in the detail.
    """
    if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"The {what} holds a character that is no text.", hint="Leave it out and ask again.")
    return text


def required(text: str, what: str, *, longest: int = LONGEST_REASON) -> str:
    """Return *text* without the space around it.

    Raises:
        UsageError: nothing is left of it, it has more than *longest* characters, or it isn't storable.
    """
    found = storable(text, what).strip()
    if not found:
        raise UsageError(f"The {what} is empty.", hint=f"Say it in a few words: the {what} is kept for good.")
    if len(found) > longest:
        raise UsageError(
            f"The {what} has {len(found)} characters, and {longest} are kept at most.", hint="Shorten it."
        )
    return found
