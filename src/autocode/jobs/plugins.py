"""Job kinds that a team brings: found by the modules that the setting ``kinds`` names.

A module may stand alone (``team.jobs``: every kind in it counts) or with one name in it
(``team.jobs:REINDEX``). It has to be importable: installed beside this package, or on ``PYTHONPATH``.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

from autocode.jobs import kinds
from autocode.jobs.errors import UsageError
from autocode.jobs.kinds import Kind

__all__ = ["load_kinds"]


def load_kinds(names: str) -> list[Kind[Any]]:
    """Import the modules and register their kinds. Idempotent.

    Args:
        names: ``module`` or ``module:name``, separated by commas; empty for none.

    Returns:
        The kinds, in the order in which they are named.

    Raises:
        UsageError: a module can't be imported, holds no kind, or brings a name that is taken.
    """
    found: list[Kind[Any]] = []
    for name in filter(None, map(str.strip, names.split(","))):
        for kind in _kinds_of(name):
            try:
                found.append(kinds.register(kind))
            except ValueError as error:
                raise _refusal(name, f"{error}") from error
    return found


def _kinds_of(name: str) -> list[Kind[Any]]:
    try:
        loaded = EntryPoint(name, name, "kinds").load()
    except Exception as error:
        # whatever a foreign module raises, the setting is what has to be mended
        raise _refusal(name, f"importing it ends with {type(error).__name__}: {error}") from error
    if isinstance(loaded, Kind):
        return [loaded]
    values = vars(loaded).values() if isinstance(loaded, ModuleType) else ()
    # two names for one kind are one kind
    found = list({id(value): value for value in values if isinstance(value, Kind)}.values())
    if not found:
        raise _refusal(name, "there is no job kind in it")
    return found


def _refusal(name: str, why: str) -> UsageError:
    return UsageError(
        f"The setting kinds names {name!r}: {why}.",
        hint="Name modules that Python can import here, as module or module:KIND, separated by commas.",
    )
