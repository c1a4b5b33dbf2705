"""What the kill matrix runs: job kinds, payloads for them, and how far a job of each gets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from autocode.jobs.crash import POINTS
from autocode.jobs.engine.loading import load_flow
from autocode.jobs.errors import PayloadInvalid, UsageError
from autocode.jobs.kinds import Kind
from autocode.jobs.operations.export import EXPORT
from autocode.jobs.plugins import load_kinds
from autocode.jobs.testing import scenarios
from autocode.jobs.testing.crashes import kinds as orders
from autocode.jobs.testing.samples import write_samples

__all__ = ["Place", "Prepared", "Workload", "of_user", "own"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where one case works.

    Args:
        case: the case's id, unlike any other's.
        number: of the case, from 1.
        folder: a folder of its own.
        witness: the URL below which its effects are told.
        add_root: makes a folder known to the service; returns its name there.
    """

    case: str
    number: int
    folder: Path
    witness: str
    add_root: Callable[[Path], str]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A payload, and the folders of the roots that it names."""

    payload: Mapping[str, Any]
    roots: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Workload:
    """A job kind, and how jobs of it are made for the matrix.

    Args:
        kind: the kind.
        prepare: makes a payload that shares no step with another case's.
        nths: by crash point, the highest passage that a first attempt reaches in one process; a point that is
            missing is never passed.
        modules: what the service imports to know the kind.
    """

    kind: Kind[Any]
    prepare: Callable[[Place], Prepared]
    nths: Mapping[str, int]
    modules: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The kind's name."""
        return self.kind.name


_ONCE: Final = {
    "enqueue.after-commit": 1,
    "submit.after-create": 1,
    "claim.before": 1,
    "claim.after": 1,
    "result.before": 1,
    "result.after": 1,
    # queued, running and complete are told in transactions of their own; what comes between may be joined
    "reconcile.before-commit": 3,
}
"""Points that every job passes; which passage is meant depends on nothing but the job's own life."""

_SESSIONS: Final = 3

_EFFECT: Final = tuple(name for name in POINTS if name.startswith("effect."))


def _steps(count: int, *, effects: int = 0) -> dict[str, int]:
    passed = {name: count for name in POINTS if name.startswith("step.")}
    made = dict.fromkeys(_EFFECT, effects) if effects else {}
    return {**_ONCE, **passed, **made}


def _export(place: Place) -> Prepared:
    sessions = place.folder / "sessions"
    write_samples(sessions, seed=place.number, sessions=_SESSIONS, megabytes=0.05)
    name = place.add_root(sessions)
    return Prepared({"sources": [{"root": name}]}, {name: sessions})


def _ten_steps(place: Place) -> Prepared:
    return Prepared({"witness": str(place.folder / "witness"), "salt": place.case})


def _order(place: Place) -> Prepared:
    return Prepared({"witness": place.witness, "order": place.case, "items": 2})


def own() -> list[Workload]:
    """Return the workloads of the project's own kinds."""
    return [
        Workload(EXPORT, _export, _steps(_SESSIONS + 2)),
        Workload(scenarios.TEN_STEPS, _ten_steps, _steps(11), (scenarios.__name__,)),
        Workload(orders.ORDER, _order, _steps(5, effects=2), (orders.__name__,)),
    ]


def of_user(spec: str, payload: Mapping[str, Any]) -> Workload:
    """Return the workload of somebody's own kind.

    Args:
        spec: ``MODULE:KIND`` or ``MODULE``, as in the setting ``kinds``: ``shop.jobs:NOTIFY``.
        payload: a payload; within its strings, ``{witness}`` stands for the URL below which effects are
            counted, ``{case}`` for the case's id. It needs one of them: equal jobs share steps.

    Raises:
        UsageError: there is no kind of this name, or more than one, its flow can't be loaded, the payload
            doesn't fit it, or all cases would get one payload.
    """
    found = load_kinds(spec)
    if len(found) != 1:
        names = ", ".join(kind.name for kind in found) or "none"
        raise UsageError(f"{spec!r} names several job kinds: {names}.", hint="Name one, as MODULE:KIND.")
    [kind] = found
    pattern = json.dumps(payload)
    if "{case}" not in pattern and "{witness}" not in pattern:
        raise UsageError(
            "Each case would get the same payload, and the second job find what the first one left.",
            hint="Let some text in it say {case}, or {witness} where effects are sent.",
        )

    def prepare(place: Place) -> Prepared:
        return Prepared(json.loads(pattern.replace("{witness}", place.witness).replace("{case}", place.case)))

    example = pattern.replace("{witness}", "http://127.0.0.1:1/a-case").replace("{case}", "a-case")
    try:
        kind.parse(json.loads(example))
    except PayloadInvalid as error:
        raise UsageError(f"--payload doesn't fit. {error.detail}", hint="Mend the payload.") from error
    try:
        load_flow(kind)
    except Exception as error:
        # whatever a foreign module raises; in a service it would be told in the logs of its parts alone
        raise UsageError(
            f"The flow of {kind.name!r} can't be loaded: {type(error).__name__}: {error}.",
            hint=f"A service loads it from {kind.flow}; see docs/howto-crash-test.md.",
        ) from error
    # how far it gets is not known: a case whose point is passed less often is told as not reached
    return Workload(kind, prepare, _steps(len(kind.steps), effects=1), (spec,))
