"""What every test stands on: an environment without our own variables, and a home of its own."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# a deadline, or a check of how fast examples are drawn, would test the machine
settings.register_profile(
    "project", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("project")

_KEPT = {
    "AUTOCODE_SAMPLES",
    "AUTOCODE_SEEDS",
    "AUTOCODE_KILL_SEED",
    "AUTOCODE_KILL_ROUNDS",
    "AUTOCODE_FUZZ_EXAMPLES",
    "AUTOCODE_KILL_JOBS",
}
_NEEDS = {"needs_samples": "AUTOCODE_SAMPLES", "needs_seeds": "AUTOCODE_SEEDS"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, and count so, what runs on material that isn't in the repository; put slow files first."""
    missing = {mark for mark, variable in _NEEDS.items() if not os.environ.get(variable)}
    left_out = [item for item in items if any(item.get_closest_marker(mark) for mark in missing)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    # two processes share the files: what takes long begins first, so that neither waits for the other
    tests = Counter(item.path for item in items)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, -tests[item.path]))


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Strip AUTOCODE_* and PREFECT_* from the environment and give the test a home of its own."""
    for name in list(os.environ):
        if name.startswith(("AUTOCODE_", "PREFECT_")) and name not in _KEPT:
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("AUTOCODE_HOME", str(home / "autocode"))
    monkeypatch.setenv("PREFECT_HOME", str(home / "prefect"))
    return home
