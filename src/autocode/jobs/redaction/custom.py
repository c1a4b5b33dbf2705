"""A user's own rules and allow list as one value: what a payload carries, and so what a job keeps to.

It is the content of a rules file without comments, examples and literal values. A job that was accepted
before the file was edited goes on with what it was accepted with, in whichever process.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from autocode.jobs.errors import UsageError
from autocode.jobs.redaction.allow import Allowance
from autocode.jobs.redaction.policy import Policy, Rule
from autocode.jobs.redaction.rules import DEFAULT_POLICY

__all__ = [
    "LONGEST_PATTERN",
    "MOST_ALLOWED",
    "MOST_RULES",
    "CustomRule",
    "CustomRules",
    "KnownFind",
    "allowance_of",
    "policy_with",
]

MOST_RULES: Final = 200
MOST_ALLOWED: Final = 2_000
LONGEST_PATTERN: Final = 2_000

_Pattern = Annotated[str, Field(max_length=LONGEST_PATTERN)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CustomRule(_Frozen):
    """A rule of the user's; RE2 runs its patterns. See :class:`autocode.jobs.redaction.policy.Rule`."""

    id: str
    kind: str
    pattern: _Pattern = ""
    needles: tuple[str, ...] = ()
    group: int = 0
    check: str = ""
    field: _Pattern = ""

    def to_rule(self) -> Rule:
        """Return the rule.

        Raises:
            UsageError: a part is malformed; the detail names the rule.
        """
        return Rule(
            self.kind,
            self.pattern,
            needles=self.needles,
            group=self.group,
            check=self.check,
            field=self.field,
            id=self.id,
            linear=True,
        )


class KnownFind(_Frozen):
    """An entry of the allow list; see :class:`autocode.jobs.redaction.allow.Allowance`."""

    sha256: str = ""
    pattern: _Pattern = ""
    pointer: _Pattern = ""
    rule: str = ""

    def to_allowance(self) -> Allowance:
        """Return the entry as a policy takes it.

        Raises:
            UsageError: it is malformed.
        """
        return Allowance(self.sha256, self.pattern, self.pointer, self.rule)


class CustomRules(_Frozen):
    """Rules that stand behind those of the default policy, and the finds that stay in the text."""

    rules: tuple[CustomRule, ...] = Field(default=(), max_length=MOST_RULES)
    allow: tuple[KnownFind, ...] = Field(default=(), max_length=MOST_ALLOWED)

    @model_validator(mode="after")
    def _makes_a_policy(self) -> Self:
        try:
            policy_with(self)
        except UsageError as error:
            # pydantic takes no other exception for a verdict on the value
            raise ValueError(f"{error.detail.rstrip('.')}. {error.hint}") from error
        return self


def allowance_of(number: int, entry: KnownFind) -> Allowance:
    """Return an entry as a policy takes it.

    Args:
        number: its place in the list, counted from 1.
        entry: the entry.

    Raises:
        UsageError: it is malformed; the detail has the number.
    """
    try:
        return entry.to_allowance()
    except UsageError as error:
        raise UsageError(f"entry {number} of the allow list: {error.detail}", hint=error.hint) from error


@lru_cache(maxsize=8)
def policy_with(custom: CustomRules | None) -> Policy:
    """Return the default policy with the user's rules behind it; itself where there are none.

    Raises:
        UsageError: a rule or an entry is malformed.
    """
    if custom is None or not (custom.rules or custom.allow):
        return DEFAULT_POLICY
    return Policy(
        f"{DEFAULT_POLICY.name}+custom",
        DEFAULT_POLICY.revision,
        (*DEFAULT_POLICY.rules, *(rule.to_rule() for rule in custom.rules)),
        tuple(allowance_of(number, entry) for number, entry in enumerate(custom.allow, 1)),
    )
