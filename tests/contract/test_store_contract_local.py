"""The local store keeps the contract of every store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autocode.jobs.store import LocalStore
from autocode.jobs.testing.store_contract import StoreContract


class TestLocalStore(StoreContract):
    """The contract, over a folder."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> LocalStore:
        """Return an empty store."""
        return LocalStore(tmp_path / "store")

    def tamper(self, store: LocalStore, digest: str, change: Callable[[bytes], bytes]) -> None:
        """Put other bytes in the object's place, as a new file."""
        path = store.path_of(digest)
        stored = change(path.read_bytes())
        path.unlink()
        path.write_bytes(stored)
