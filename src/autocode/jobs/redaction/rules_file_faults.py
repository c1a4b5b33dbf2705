"""What is off in a rules file, told in the file's own words: which rule, which key, and what to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from pydantic_core import ErrorDetails

from autocode.jobs.redaction.custom import LONGEST_PATTERN

__all__ = ["fault_told"]

_KINDS: Final = {"string": "a text", "int": "a whole number", "tuple": "a list", "model": "a table"}
_EXAMPLES: Final = (
    "`examples` lists at least one text that the rule finds, `counter_examples` at least one that it leaves."
)
_TABLES: Final = "Rules stand below [[rules]], what is allowed below [[allow]], each in double brackets."


def fault_told(
    error: ErrorDetails, data: Mapping[str, Any], known: Mapping[str, Sequence[str]]
) -> tuple[str, str]:
    """Return what is off, without any value but an id, and what to do about it.

    Args:
        error: one of pydantic's errors.
        data: the file as TOML has it, for the ids of the rules.
        known: the keys by table: ``rules``, ``allow``, and the empty text for the file itself.
    """
    kind, loc = error["type"], error["loc"]
    table = str(loc[0]) if len(loc) > 1 and loc[0] in {"rules", "allow"} else ""
    if kind == "extra_forbidden":
        return _unknown(str(loc[-1]), _where(loc, data), known[table])
    if not table:
        return f"`{loc[0] if loc else 'rules'}` is no list of tables", _TABLES
    where = _where(loc, data)
    if len(loc) == 2:
        return f"{where} is no table", _TABLES
    if loc[2] in {"examples", "counter_examples"}:
        return _about_examples(kind, loc, where)
    return _about_value(kind, loc, where)


def _about_value(kind: str, loc: Sequence[int | str], where: str) -> tuple[str, str]:
    key = loc[2]
    if kind == "missing":
        return f"{where} has no `{key}`", f'Give it one: {key} = "…".'
    if kind == "string_too_long":
        return f"`{key}` of {where} is longer than {LONGEST_PATTERN:,} characters", "Make two rules of it."
    wanted = f"has to be {_KINDS.get(kind.partition('_')[0], 'of another type')}"
    place = f"part {loc[3] + 1} of `{key}`" if len(loc) > 3 and isinstance(loc[3], int) else f"`{key}`"
    return (
        f"{place} of {where} {wanted}",
        "Texts stand between quotes, numbers without, lists between [ and ].",
    )


def _about_examples(kind: str, loc: Sequence[int | str], where: str) -> tuple[str, str]:
    if kind == "missing":
        return f"{where} has no `{loc[2]}`", _EXAMPLES
    if kind == "too_short":
        return f"`{loc[2]}` of {where} is empty", _EXAMPLES
    if len(loc) > 3 and isinstance(loc[3], int):
        return (
            f"part {loc[3] + 1} of `{loc[2]}` of {where} is neither a text nor a table of texts",
            'Write "text", or { name = "text" } for a member of an object.',
        )
    return f"`{loc[2]}` of {where} is no list", f'Write {loc[2]} = ["…"].'


def _unknown(key: str, where: str, known: Sequence[str]) -> tuple[str, str]:
    near = get_close_matches(key, known, n=1)
    hint = (
        f"Did you mean `{near[0]}`?" if near else f"It may have: {', '.join(f'`{name}`' for name in known)}."
    )
    return f"{where} has a key `{key}`, which means nothing", hint


def _where(loc: Sequence[int | str], data: Mapping[str, Any]) -> str:
    """Name the table: a rule by its id, where it has one, else by its number, counted from 1."""
    if len(loc) < 2 or not isinstance(loc[1], int):
        return "the file"
    if loc[0] == "allow":
        return f"entry {loc[1] + 1} of the allow list"
    table = data["rules"][loc[1]]
    name = table.get("id") if isinstance(table, Mapping) else None
    return f"rule {name!r}" if isinstance(name, str) and name else f"rule {loc[1] + 1}"
