"""What every test of the command stands on."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture(autouse=True, scope="session")
def hangups_are_heard() -> None:
    """Undo what ``nohup`` does: commands that ignore SIGHUP from birth would go on ignoring it."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
