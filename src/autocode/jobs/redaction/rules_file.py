"""Reading a rules file: TOML, checked as a whole before anything is exported."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from autocode.jobs.errors import RedactionFailed, UsageError
from autocode.jobs.redaction.allow import digest_of_value
from autocode.jobs.redaction.custom import (
    MOST_ALLOWED,
    MOST_RULES,
    CustomRule,
    CustomRules,
    KnownFind,
    allowance_of,
)
from autocode.jobs.redaction.policy import Policy
from autocode.jobs.redaction.redactor import Redactor
from autocode.jobs.redaction.rules import DEFAULT_POLICY
from autocode.jobs.redaction.rules_file_faults import fault_told

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
                path,
                f"two rules have the id {table.id!r}",
                "Give it another; those of the default policy are taken, too.",
            )
        known.add(table.id)
        _check_rule(path, table)
    kinds = {rule.kind for rule in DEFAULT_POLICY.rules} | {
        table.kind for table in tables.rules if table.kind
    }
    for number, entry in enumerate(tables.allow, 1):
        _check_entry(path, number, entry, known | kinds)
    return CustomRules(
        rules=tuple(table.frozen() for table in tables.rules),
        allow=tuple(entry.frozen() for entry in tables.allow),
    )


def _check_entry(path: Path, number: int, entry: _AllowTable, known: set[str]) -> None:
    where = f"entry {number} of the allow list"
    if entry.value and entry.sha256:
        raise _off(path, f"{where} gives both `value` and `sha256`", "Give one of them.")
    if entry.rule and entry.rule not in known:
        near = get_close_matches(entry.rule, sorted(known), n=1)
        hint = f"Did you mean {near[0]!r}?" if near else "docs/redaction.md has a table of ids and kinds."
        raise _off(path, f"{where} names a rule {entry.rule!r}, which there isn't", hint)
    try:
        allowance_of(number, entry.frozen())
    except UsageError as error:
        raise _off(path, error.detail, error.hint) from error


def _parsed(path: Path) -> _File:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise _off(path, "it is longer than a mebibyte", "Name forms of secrets, not every one of them.")
        tables: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise _off(path, f"it can't be read: {error.strerror or error}", "Check the path.") from error
    except UnicodeDecodeError as error:
        raise _off(path, f"byte {error.start + 1} is no UTF-8", "Save the file as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise _off(
            path,
            f"it is no TOML: {error}",
            "Tables begin with [[rules]] or [[allow]]; a pattern stands between single quotes.",
        ) from None
    return _shaped(path, tables)


def _shaped(path: Path, tables: dict[str, Any]) -> _File:
    for name, most in (("rules", MOST_RULES), ("allow", MOST_ALLOWED)):
        if isinstance(tables.get(name), list) and len(tables[name]) > most:
            raise _off(
                path, f"it has more than {most:,} tables [[{name}]]", "One pattern may stand for many."
            )
    try:
        return _File.model_validate(tables)
    except ValidationError as error:
        # without the values: an example may be a real secret
        faults = error.errors(include_url=False, include_input=False, include_context=False)
    known = {
        "": tuple(_File.model_fields),
        "rules": tuple(_RuleTable.model_fields),
        "allow": tuple(_AllowTable.model_fields),
    }
    # a misspelt key comes first: it explains the missing one
    first = min(faults, key=lambda fault: fault["type"] != "extra_forbidden")
    raise _off(path, *fault_told(first, tables, known))


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


def _off(path: Path, what: str, hint: str) -> UsageError:
    return UsageError(f"{path}: {what.rstrip('.')}.", hint=hint)
