"""The allow list: finds that a user knows to be harmless."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from autocode.jobs.errors import UsageError
from autocode.jobs.redaction.linear import LinearText, NotLinear, text_pattern

__all__ = ["Allowance", "digest_of_value"]


def digest_of_value(value: str) -> str:
    """Return the hex digits under which an allow list knows *value*."""
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Allowance:
    """One entry; a find that fits everything that is given stays in the text.

    Args:
        sha256: digest of the value that a rule found, in hex digits.
        pattern: RE2 expression that the whole value must match.
        pointer: where it stands in its record: a JSON pointer (RFC 6901) in which ``*`` stands for one part
            and ``**`` for any number of them, so ``/**/signature`` is that field anywhere.
        rule: id or kind of the rule that found it.

    Raises:
        UsageError: nothing but a rule is given, or a part is malformed.
    """

    sha256: str = ""
    pattern: str = ""
    pointer: str = ""
    rule: str = ""

    def __post_init__(self) -> None:
        if not (self.sha256 or self.pattern or self.pointer):
            raise UsageError(
                "it names no value, pattern or pointer",
                hint='Give one; `pointer = "/**"` switches a rule off everywhere.',
            )
        if self.sha256 and (len(self.sha256) != 64 or not set(self.sha256) <= set("0123456789abcdef")):
            raise UsageError(
                "its `sha256` isn't 64 hex digits in lower case",
                hint="`export --allow-list` prints entries with their digests; or give `value`.",
            )
        if self.pointer and not self.pointer.startswith("/"):
            raise UsageError(
                f"its pointer {self.pointer!r} doesn't begin with /",
                hint=f'Write "/{self.pointer}", or "/**/{self.pointer}" for that member at any depth.',
            )
        try:
            _ = self._value, self._place
        except NotLinear as error:
            raise UsageError(
                f"its pattern is none that RE2 takes: {error}",
                hint="It has no look-around and no back-references: https://github.com/google/re2/wiki/Syntax.",
            ) from error

    def covers(self, value: str, pointer: str, *, rule: str, kind: str) -> bool:
        """Say whether *value*, found at *pointer* by this rule, is allowed."""
        return (
            self.rule in {"", rule, kind}
            and (self._place is None or self._place.fullmatch(pointer) is not None)
            and (self._value is None or self._value.fullmatch(_sound(value)) is not None)
            and self.sha256 in {"", digest_of_value(value)}
        )

    @cached_property
    def _value(self) -> LinearText | None:
        return text_pattern(f"(?s:{self.pattern})") if self.pattern else None

    @cached_property
    def _place(self) -> LinearText | None:
        if not self.pointer:
            return None
        parts = [_glob(part) for part in self.pointer.split("/")[1:]]
        return text_pattern("(?s)" + "".join(parts))


def _glob(part: str) -> str:
    if part == "**":
        return "(?:/[^/]*)*"
    return "/" + "".join("[^/]*" if c == "*" else rf"\x{{{ord(c):x}}}" for c in part)


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
