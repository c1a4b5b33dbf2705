"""A redaction policy: named rules, and the digest that an export records.

What a rule's pattern must keep to, so that a scan is linear, the same in any window, and idempotent:

1. Whether it matches at a place is decided by the 64 characters before and the :data:`REACH` characters
   after it; only a final greedy run of one character class may go on for longer.
2. A failed attempt costs a bounded number of steps, or can't be repeated inside the same run.
3. The replaced group takes every letter and digit that follows it, so that the marker which takes its place
   frees no word after it. What still becomes visible by a replacement is caught by looking again.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

from autocode.jobs.canonical import canonical_json, digest_of
from autocode.jobs.errors import UsageError
from autocode.jobs.redaction.allow import Allowance
from autocode.jobs.redaction.checks import (
    CHECKS,
    CHECKS_REVISION,
    PLACEHOLDER_PARTS,
    PLACEHOLDER_WORDS,
    SHORTEST,
)
from autocode.jobs.redaction.linear import LinearText, NotLinear, text_pattern
from autocode.jobs.redaction.sieve import entry_sieve, field_sieve, sieve_of

__all__ = ["ENTRY_NAMES", "ENTRY_VALUES", "MARKER", "REACH", "Policy", "Rule", "marker"]

REACH: Final = 8192
"""How many characters from its start a pattern may need before it is decided."""

ENTRY_NAMES: Final = ("name", "Name", "key", "Key")
"""Members whose text names the value beside it: ``{"name": "DB_PASSWORD", "value": "…"}``."""

ENTRY_VALUES: Final = ("value", "Value")
"""Members that hold that value."""

MARKER: Final = re.compile(r"\[REDACTED:[a-z0-9-]{1,64}:[0-9]{1,12}\]", re.ASCII)
"""The written form of a marker; the text of one is never touched again."""

_LINEAR: Final = (
    "Use what RE2 and Python's re both know: no look-around, back-references or possessive repetition; "
    "https://github.com/google/re2/wiki/Syntax."
)
_BOTH: Final = (
    "Write what both RE2 and Python's re read; a character that has a meaning of its own is itself behind a "
    "backslash."
)
_SETS: Final = r"Write [A-Za-z] for [[:alpha:]], [0-9] for [[:digit:]], and \[ for a bracket in a set."
_KIND: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")


def _syntax(error: Exception) -> str:
    """Return what Python's parser says, with the place counted from 1."""
    if isinstance(error, re.error) and error.pos is not None:
        return f"{error.msg}, at character {error.pos + 1}"
    return str(error)


def _ambiguous(warning: Warning) -> str:
    told, _, place = str(warning).rpartition(" at position ")
    at = f", at character {int(place) + 1}" if place.isdigit() else ""
    if "nested" in told:
        return f"a POSIX class or another set within a set{at}"
    return f"a {told.removeprefix('Possible ')}{at}"


def marker(kind: str, n: int) -> str:
    """Return the text that takes the place of the *n*-th secret of *kind*."""
    return f"[REDACTED:{kind}:{n}]"


@dataclass(frozen=True)
class Rule:
    """One form of secret.

    Args:
        kind: what the marker calls it, lower case with dashes; several rules may share a kind.
        pattern: regular expression over text, compiled with ``re.ASCII``; see the module's docstring. A
            linear rule may go without, if it has a field.
        needles: literals in lower case; a string without any of them, in any case, is not searched.
        group: the group to replace; 0 is the whole match.
        check: name of a check in :mod:`autocode.jobs.redaction.checks` that the group must pass.
        field: regular expression that a whole object key must match for its string value to count
            as a candidate (it must pass the check and hold no space); empty for none. The name in an entry
            ``{"name": …, "value": …}`` counts as the key of its value, too.
        id: names this rule among those of its kind; the kind where none is given.
        linear: its patterns are RE2's (see :mod:`autocode.jobs.redaction.linear`), and the three points above
            don't apply to it.

    Raises:
        UsageError: a part is malformed; the detail names the rule.
    """

    kind: str
    pattern: str
    needles: tuple[str, ...] = ()
    group: int = 0
    check: str = ""
    field: str = ""
    id: str = ""
    linear: bool = False

    def __post_init__(self) -> None:
        if _KIND.fullmatch(self.kind) is None:
            raise UsageError(
                f"{self.kind!r} can't name a kind of secret", hint="Use lower case, digits and dashes."
            )
        if not self.id:
            object.__setattr__(self, "id", self.kind)
        if _KIND.fullmatch(self.id) is None:
            raise UsageError(f"{self.id!r} can't name a rule", hint="Use lower case, digits and dashes.")
        if not all(n and n.isascii() and n == n.lower() for n in self.needles):
            raise UsageError(
                f"a needle of rule {self.id!r} is no text in lower-case ASCII", hint="Correct `needles`."
            )
        if self.check not in CHECKS:
            raise UsageError(
                f"rule {self.id!r} names no known check: {self.check!r}",
                hint=f"Known: {', '.join(sorted(filter(None, CHECKS)))}; leave it out for none.",
            )
        groups = self._check_linear() if self.linear else self._check_own()
        if not 0 <= self.group <= groups:
            raise UsageError(
                f"rule {self.id!r} has no group {self.group}",
                hint=f"It has {groups} in parentheses; 0 is the whole match.",
            )

    def _check_own(self) -> int:
        try:
            _ = self.compiled_field
            groups = self.compiled.groups
        except re.error as error:
            raise UsageError(
                f"a pattern of rule {self.id!r} has a syntax error: {_syntax(error)}", hint=_BOTH
            ) from error
        return groups

    def _check_linear(self) -> int:
        """Refuse what isn't linear, and what RE2 and Python's parser (the gate's) would read apart."""
        if not (self.pattern or self.field):
            raise UsageError(
                f"rule {self.id!r} has neither a pattern nor a field",
                hint="Give `pattern` for a form in text, `field` for the name of a member, or both.",
            )
        for name, pattern in (("pattern", self.pattern), ("field", self.field)):
            where = f"the {name} of rule {self.id!r}"
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    re.compile(pattern, re.ASCII)
            except Warning as warning:
                raise UsageError(
                    f"{where} has {_ambiguous(warning)}, which RE2 and Python's re read differently",
                    hint=_SETS,
                ) from warning
            except (re.error, OverflowError) as error:
                raise UsageError(f"{where} has a syntax error: {_syntax(error)}", hint=_BOTH) from error
            try:
                text_pattern(pattern)
            except NotLinear as error:
                raise UsageError(
                    f"{where} has something that RE2 refuses, since it may not be linear: {error}",
                    hint=_LINEAR,
                ) from error
            if "{," in pattern:
                raise UsageError(f"{where} has a repetition without a lower bound", hint="Write {0,n}.")
        if self.pattern and text_pattern(self.pattern).search("") is not None:
            raise UsageError(
                f"the pattern of rule {self.id!r} matches the empty text", hint="Let it ask for a character."
            )
        return self.compiled_linear.groups

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return re.compile(self.pattern, re.ASCII)

    @cached_property
    def compiled_field(self) -> re.Pattern[str] | None:
        """The compiled pattern of object keys, or None."""
        return re.compile(self.field, re.ASCII) if self.field else None

    @cached_property
    def compiled_linear(self) -> LinearText:
        """The pattern as RE2 compiles it, for rules that are ``linear``."""
        return text_pattern(self.pattern)

    def names(self, key: str) -> bool:
        """Say whether an object key makes its value a candidate."""
        if not self.field:
            return False
        if self.linear:
            return (
                text_pattern(self.field).fullmatch(key.encode("utf-8", "replace").decode("utf-8")) is not None
            )
        return self.compiled_field is not None and self.compiled_field.fullmatch(key) is not None

    @cached_property
    def sieve(self) -> str:
        """The pattern over encoded JSON that matches wherever this rule does; empty where none is known."""
        sieves = [sieve_of(self.pattern, re2=self.linear)] if self.pattern else []
        if self.field:
            sieves.append(field_sieve(self.field, SHORTEST[self.check], re2=self.linear))
            sieves.append(entry_sieve(self.field, re2=self.linear))
        return "|".join(f"(?:{sieve})" for sieve in sieves) if all(sieves) else ""


@dataclass(frozen=True)
class Policy:
    """Rules under a name; of two that find secrets at the same place, the longer, then the earlier names it.

    Args:
        name: the policy's name.
        revision: number to raise when the rules change, for people; the digest tells machines.
        rules: the rules in order of precedence.
        allow: finds that stay in the text.
    """

    name: str
    revision: int
    rules: tuple[Rule, ...]
    allow: tuple[Allowance, ...] = ()

    def __hash__(self) -> int:
        # equal policies have equal digests; hashing all rules each time would cost as much as a short session
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """Digest over everything that influences the output: same digest, same markers for the same text."""
        return digest_of(canonical_json(self.to_json()))

    def allows(self, rule: Rule, value: str, pointer: str) -> bool:
        """Say whether *value*, which *rule* found at *pointer*, is on the allow list."""
        return any(entry.covers(value, pointer, rule=rule.id, kind=rule.kind) for entry in self.allow)

    def to_json(self) -> dict[str, Any]:
        """Return the policy as the JSON object that :attr:`digest` is computed over."""
        return {
            "name": self.name,
            "revision": self.revision,
            "rules": [asdict(rule) for rule in self.rules],
            "allow": [asdict(entry) for entry in self.allow],
            "marker": marker("kind", 1),
            "entries": [list(ENTRY_NAMES), list(ENTRY_VALUES)],
            "checks": {
                "revision": CHECKS_REVISION,
                "parts": list(PLACEHOLDER_PARTS),
                "words": sorted(PLACEHOLDER_WORDS),
            },
        }
