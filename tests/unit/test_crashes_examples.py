"""The kill matrix's own kinds and those of docs/examples load as a team's do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from prefect import Flow

from autocode.jobs import kinds
from autocode.jobs.engine.loading import load_flow
from autocode.jobs.plugins import load_kinds
from autocode.jobs.testing.crashes import kinds as crash_kinds
from autocode.jobs.testing.crashes.undisturbed import run_undisturbed
from autocode.jobs.testing.crashes.witness import Witness
from engine_world import SOURCES

pytest_plugins = ["fixtures_examples"]


@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize(("module", "key"), [("notify_order", None), ("notify_order_cured", "notify:7")])
def test_an_example_tells_its_receiver_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, key: str | None
) -> None:
    """It loads by its module's name, its flow is found, and undisturbed it has one effect."""
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))
    (kind,) = load_kinds(module)
    flow = load_flow(kind)

    with Witness() as witness:
        payload = {"receiver": f"{witness.url_of('case')}/orders", "order": "7"}
        found = run_undisturbed(kind, payload, tmp_path)
        effects = witness.effects("case")

    assert isinstance(flow, Flow)
    assert flow.name == kind.name == module.replace("_", "-")
    assert list(found.checkpoints) == ["notify"]
    assert [(each.path, each.key, each.applied) for each in effects] == [("orders", key, 1)]


def test_the_cure_is_a_few_lines(examples: Path) -> None:
    """But for names and words, the two modules differ in what stands inside the step alone."""
    texts = {}
    for name in ("notify_order", "notify_order_cured"):
        code = (examples / f"{name}.py").read_text("utf-8").replace("notify-order-cured", "notify-order")
        texts[name] = code.partition('"""\n\n')[2]
    start, end = "    httpx.post(", "    return context.put("

    broken, cured = texts["notify_order"], texts["notify_order_cured"]
    head = broken.partition(start)[0]
    assert cured.startswith(head)
    assert cured[cured.index(end) :] == broken[broken.index(end) :]
    assert len(cured.splitlines()) - len(broken.splitlines()) < 10


def test_the_matrix_brings_its_kind_under_the_setting() -> None:
    """The module's name is all that a service needs; the kind's flow is beside it."""
    assert load_kinds(crash_kinds.__name__) == [crash_kinds.ORDER]
    assert kinds.get("scenario-order") is crash_kinds.ORDER
    assert load_flow(crash_kinds.ORDER).name == "scenario-order"


def test_importing_the_matrixs_kinds_is_cheap() -> None:
    """Neither Prefect nor an HTTP client nor a database comes with it: every part of a service imports it."""
    code = (
        f"import sys; sys.path[:0] = [{str(SOURCES)!r}]; import {crash_kinds.__name__};"
        "print(sorted({'prefect', 'httpx', 'sqlalchemy', 'pandas'} & set(sys.modules)))"
    )

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout.strip() == "[]"
