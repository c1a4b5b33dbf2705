"""Reading a rules file: TOML, checked as a whole before anything is exported."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from autocode.jobs.errors import RedactionFailed, UsageError
from autocode.jobs.redaction.allow import digest_of_value
from autocode.jobs.redaction.custom import CustomRule, CustomRules, KnownFind
from autocode.jobs.redaction.policy import Policy
from autocode.jobs.redaction.redactor import Redactor
from autocode.jobs.redaction.rules import DEFAULT_POLICY

__all__ = ["read_rules"]

_LARGEST: Final = 1 << 20

Example = str | dict[str, str]


class _RuleTable(CustomRule):
    kind: str = ""
    examples: tuple[Example, ...] = Field(min_length=1)
    counter_examples: tuple[Example, ...] = Field(min_length=1)

    def frozen(self) -> CustomRule:
        kept = self.model_dump(exclude={"examples", "counter_examples"})
        return CustomRule(**kept | {"kind": self.kind or self.id})


class _AllowTable(KnownFind):
    value: str = ""
    reason: str = ""

    def frozen(self) -> KnownFind:
        kept = self.model_dump(exclude={"value", "reason"})
        return KnownFind(**kept | ({"sha256": digest_of_value(self.value)} if self.value else {}))


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    rules: tuple[_RuleTable, ...] = ()
    allow: tuple[_AllowTable, ...] = ()


def read_rules(path: Path) -> CustomRules:
    """Read, check and freeze a rules file.

    Each rule must find something in each of its examples and nothing in its counter-examples, alone, without
    the default policy. Examples and literal values aren't part of what is returned.

    Raises:
        UsageError: the file can't be read, isn't what it should be, or a rule doesn't keep its word; the
            detail names file and rule and quotes no example.
    """
    tables = _parsed(path)
    known = {rule.id for rule in DEFAULT_POLICY.rules}
    for table in tables.rules:
        if table.id in known:
            raise _off(
                path, f"two rules have the id {table.id!r}", "Ids of the default policy are taken, too."
            )
        known.add(table.id)
        _check_rule(path, table)
    for entry in tables.allow:
        if entry.value and entry.sha256:
            raise _off(
                path, "an entry of the allow list gives both `value` and `sha256`", "Give one of them."
            )
        if entry.rule and entry.rule not in known | {rule.kind for rule in DEFAULT_POLICY.rules}:
            raise _off(path, f"the allow list names a rule {entry.rule!r}, which there isn't", "See its id.")
    try:
        return CustomRules(
            rules=tuple(table.frozen() for table in tables.rules),
            allow=tuple(entry.frozen() for entry in tables.allow),
        )
    except ValidationError as error:
        raise _off(path, _told(error), "Correct the file.") from None


def _parsed(path: Path) -> _File:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise _off(path, "it is longer than a mebibyte", "Name forms of secrets, not every one of them.")
        return _File.model_validate(tomllib.loads(data.decode("utf-8")))
    except OSError as error:
        raise _off(path, f"it can't be read: {error.strerror or error}", "Check the path.") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _off(path, f"it is no TOML: {error}", "Write patterns between single quotes.") from None
    except ValidationError as error:
        raise _off(path, _told(error), "See docs/redaction.md for what a rules file holds.") from None


def _check_rule(path: Path, table: _RuleTable) -> None:
    try:
        policy = Policy("alone", 1, (table.frozen().to_rule(),))
        found = [Redactor(policy).redact(_record(example)) != _record(example) for example in table.examples]
        alarms = [
            Redactor(policy).redact(_record(example)) != _record(example)
            for example in table.counter_examples
        ]
    except (UsageError, RedactionFailed) as error:
        raise _off(path, error.detail, error.hint) from error
    if not all(found):
        raise _off(
            path,
            f"rule {table.id!r} finds nothing in its example {found.index(False) + 1}",
            "Correct the pattern, its check, or the example.",
        )
    if any(alarms):
        raise _off(
            path,
            f"rule {table.id!r} finds something in its counter-example {alarms.index(True) + 1}",
            "Make the pattern narrower, add a check, or correct the counter-example.",
        )
    if Redactor(DEFAULT_POLICY).redact(table.pattern) != table.pattern:
        raise _off(
            path,
            f"the pattern of rule {table.id!r} holds what looks like a secret itself",
            "Describe the form of the secret: a pattern is recorded with each job.",
        )


def _record(example: Example) -> Any:
    return dict(example) if isinstance(example, Mapping) else [example]


def _told(error: ValidationError) -> str:
    """Say what is off without the values: an example may be a real secret."""
    told = [
        f"{'.'.join(map(str, item['loc'])) or 'the file'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return "; ".join(told[:3])


def _off(path: Path, what: str, hint: str) -> UsageError:
    return UsageError(f"{path}: {what}.", hint=hint)
