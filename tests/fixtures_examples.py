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


def _importable() -> Iterator[Path]:
    path, known = list(sys.path), set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kinds, "_REGISTRY", dict(kinds._REGISTRY))
        # they send through whatever proxy the environment names
        patch.setenv("NO_PROXY", "127.0.0.1")
        sys.path.insert(0, str(EXAMPLES))
        yield EXAMPLES
    # Prefect adds to the path, too, when it loads a flow
    sys.path[:] = path
    for name in set(sys.modules) - known:
        if name.startswith(("notify_", "__prefect_loader")):
            del sys.modules[name]


@pytest.fixture
def examples() -> Iterator[Path]:
    """Make the examples importable, and give their folder; what they register is forgotten again."""
    yield from _importable()


@pytest.fixture(scope="module")
def module_examples() -> Iterator[Path]:
    """Do the same for all tests of a module."""
    yield from _importable()
