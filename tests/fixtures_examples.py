"""The job kinds of docs/examples, importable as a team's own are.

Loaded with ``pytest_plugins = ["fixtures_examples"]``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocode.jobs import kinds

EXAMPLES = Path(__file__).resolve().parent.parent / "docs" / "examples"


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make the examples importable, and give their folder; what they register is forgotten again."""
    monkeypatch.setattr(kinds, "_REGISTRY", dict(kinds._REGISTRY))
    # they send through whatever proxy the environment names
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    path, known = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(EXAMPLES))
    yield EXAMPLES
    # Prefect adds to the path, too, when it loads a flow
    sys.path[:] = path
    loaded = set(sys.modules) - known
    for name in loaded:
        if name.startswith(("notify_", "__prefect_loader")):
            del sys.modules[name]
