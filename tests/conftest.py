"""What every test stands on: an environment without our own variables, and a home of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Strip AUTOCODE_* and PREFECT_* from the environment and give the test a home of its own."""
    for name in list(os.environ):
        if name.startswith(("AUTOCODE_", "PREFECT_")) and name not in {"AUTOCODE_SAMPLES", "AUTOCODE_SEEDS"}:
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("AUTOCODE_HOME", str(home / "autocode"))
    monkeypatch.setenv("PREFECT_HOME", str(home / "prefect"))
    return home
