"""The kill matrix's kinds on a real engine: what they leave equals what an undisturbed run leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autocode.jobs import crash
from autocode.jobs.engine.oneshot import run_to_end
from autocode.jobs.engine.server import Address
from autocode.jobs.kinds import Kind
from autocode.jobs.model import JobStatus
from autocode.jobs.operations.export import EXPORT
from autocode.jobs.plugins import load_kinds
from autocode.jobs.resource import Job
from autocode.jobs.testing import scenarios
from autocode.jobs.testing.crashes.kinds import ORDER
from autocode.jobs.testing.crashes.undisturbed import run_undisturbed
from autocode.jobs.testing.crashes.witness import Effect, Witness
from autocode.jobs.testing.samples import write_samples
from engine_world import Engine

pytest_plugins = ["fixtures_engine", "fixtures_examples"]
# Prefect leaves the socket of its event client to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

Served = tuple[Engine, Address]


def run(served: Served, kind: Kind[Any], job_id: str, payload: dict[str, Any]) -> Job:
    """Run a job of the kind to its end, on the shared server."""
    engine, address = served
    engine.accept_payload(kind, job_id, payload)
    job = run_to_end(engine.system, job_id, address, lambda _: None)
    assert job.status is JobStatus.COMPLETE, job.error
    return job


def test_a_real_job_leaves_what_an_undisturbed_one_does(served: Served, tmp_path: Path) -> None:
    """For an export, ten steps and an order: the same result, and under each label the same checkpoint."""
    engine, _ = served
    sessions = tmp_path / "sessions"
    write_samples(sessions, seed=11, sessions=4, megabytes=0.2)
    root = engine.home.add_root(sessions)
    effects: list[list[Effect]] = []

    with Witness() as witness:
        payloads: list[tuple[Kind[Any], dict[str, Any]]] = [
            (EXPORT, {"sources": [{"root": root}]}),
            (scenarios.TEN_STEPS, {"witness": str(tmp_path / "witness"), "salt": "equal"}),
            (ORDER, {"witness": witness.url_of("case"), "order": "equal", "items": 3}),
        ]
        for kind, payload in payloads:
            witness.forget("case")
            job_id = f"equal-{kind.name}"
            peace = run_undisturbed(kind, payload, tmp_path / "peace", {root: sessions}, job_id)
            effects.append(witness.effects("case"))
            witness.forget("case")

            job = run(served, kind, job_id, payload)

            assert job.result is not None
            assert job.result.digest == peace.digest
            history = [(entry.step, entry.digest) for entry in job.history]
            assert history == list(peace.checkpoints.items()), kind.name
            assert witness.effects("case") == effects[-1]

    assert [(each.path, each.key, each.applied) for each in effects[-1]] == [
        ("charge", "charge:equal", 1),
        ("ship", "ship:equal", 1),
    ]


def test_an_order_repeats_a_delivery_under_its_key(served: Served, tmp_path: Path) -> None:
    """An attempt that ends between effect and record delivers the effect again, and it is applied once."""
    crash.arm("effect.after-call:2=raise", tokens=tmp_path / "tokens")

    with Witness() as witness:
        try:
            job = run(served, ORDER, "again", {"witness": witness.url_of("case"), "order": "again"})
        finally:
            crash.disarm()
        effects = witness.effects("case")

    assert job.result is not None
    assert [(each.path, each.applied, each.deliveries) for each in effects] == [
        ("charge", 1, 1),
        ("ship", 1, 2),
    ]


@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize(
    ("module", "point", "counts"),
    [
        ("notify_order", "step.after-object", (2, 2)),
        ("notify_order_cured", "step.after-object", (1, 1)),
        ("notify_order_cured", "effect.after-call", (1, 2)),
    ],
)
def test_the_example_tells_twice_until_it_is_cured(
    served: Served, tmp_path: Path, module: str, point: str, counts: tuple[int, int]
) -> None:
    """What stands outside of ``once`` happens again in the next try; inside, it is applied once."""
    (kind,) = load_kinds(module)
    crash.arm(f"{point}=raise", tokens=tmp_path / "tokens")

    with Witness() as witness:
        payload = {"receiver": f"{witness.url_of('case')}/orders", "order": f"{module} {point}"}
        try:
            run(served, kind, f"{module}-{point}", payload)
        finally:
            crash.disarm()
        effects = witness.effects("case")

    assert [(each.applied, each.deliveries) for each in effects] == [counts]
