"""What a home may look like after kills, accidents and other people's settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autocode.jobs import locks
from autocode.jobs.engine import holder
from autocode.jobs.engine.environment import configure_client
from autocode.jobs.engine.reconcile import sweep_ledger
from autocode.jobs.engine.system import open_system
from autocode.jobs.errors import HomeUnusable, UsageError
from autocode.jobs.operations.export.kind import _label
from autocode.jobs.operations.export.payload import FoundFile
from autocode.jobs.settings import Home
from autocode.jobs.store import put_bytes

HOLD = """
import sys, time
from pathlib import Path
from autocode.jobs import locks
with locks.owned(Path(sys.argv[1]), within=1.0):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Give a home that was used before."""
    home = Home(tmp_path / "home")
    with open_system(home) as system:
        put_bytes(system.store, b"something that was exported")
    return home


def test_the_owner_of_a_lock_is_named_by_the_lock_alone(tmp_path: Path) -> None:
    """A living holder is named by its id; what a dead one left in the file proves nothing."""
    path = tmp_path / "server.lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"

        living = locks.owner(path)
        process.kill()
        process.wait()

    assert living == process.pid
    assert path.read_text() == f"{process.pid}\n"
    assert locks.owner(path) is None


@pytest.mark.parametrize("empty", [True, False])
def test_a_ledger_that_vanished_is_not_taken_for_a_new_home(home: Home, *, empty: bool) -> None:
    """With objects in the store, a missing or empty ledger is an accident, and nothing is begun anew."""
    home.ledger.unlink()
    if empty:
        home.ledger.touch()

    with pytest.raises(HomeUnusable, match="gone or empty"), open_system(home):
        pass

    assert not home.ledger.exists() or home.ledger.stat().st_size == 0


def test_the_ledger_is_for_its_owner_alone(home: Home) -> None:
    """Whatever the umask was, nobody else may read the ledger."""
    assert home.ledger.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["[]", '"x"', '{"a": 1}', '{"a": null}', "[" * 100_000, "{"])
def test_damaged_roots_are_told_as_such(home: Home, text: str) -> None:
    """Whatever is in roots.json, the error names the file."""
    (home.path / "roots.json").write_text(text)

    with pytest.raises(HomeUnusable, match=r"roots\.json"):
        home.roots()


@pytest.mark.parametrize("name", ["~nobody-of-this-name/x", os.fsdecode(b"/tmp/h\xff")])
def test_a_home_that_can_not_be_named_is_refused(name: str) -> None:
    """An unknown user or bytes that aren't text are a mistake in the setting."""
    with pytest.raises(UsageError, match="AUTOCODE_HOME"):
        Home.from_environment({"AUTOCODE_HOME": name})


def test_what_killed_processes_left_is_swept(home: Home) -> None:
    """Half-written objects and proofs of death that nobody needs go; what is held or needed stays."""
    dead, needed = home.run / "holders" / "dead", home.run / "holders" / "needed"
    with open_system(home) as system, holder.holding(home) as living:
        dead.touch()
        needed.touch()
        half = home.store / "objects" / "sha256" / "tmp" / "1-x.tmp"
        half.touch()
        holder.sweep(home, {"host:1:needed"})

        sweep_ledger(system)

        assert not dead.exists()
        assert not half.exists()
        assert holder.proven_alive(home, living)
    assert not needed.exists()


def test_the_private_server_is_never_asked_through_a_proxy(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loopback is added to the hosts without a proxy, and the user's own stay."""
    monkeypatch.setattr(os, "environ", {**os.environ, "NO_PROXY": "example.test"})
    os.environ.pop("no_proxy", None)

    configure_client(home)

    assert os.environ["NO_PROXY"] == "example.test,127.0.0.1,localhost"
    assert os.environ["no_proxy"] == "127.0.0.1,localhost"


def test_a_secret_in_a_file_name_does_not_reach_the_label() -> None:
    """Labels are stored by Prefect and shown to people, so a secret in a name is masked there too."""
    secret = "ghp_" + "k7" * 18
    found = {
        "path": "x",
        "name": f"a/{secret}.jsonl",
        "size": 1,
        "sha256": "sha256:" + "0" * 64,
        "reader": "codex",
        "revision": 1,
        "label": "codex",
        "parts": [{"size": 1, "sha256": "sha256:" + "0" * 64}],
    }

    label = _label(FoundFile.model_validate_json(json.dumps(found)), 1, 1)

    assert secret not in label
    assert label.startswith("read _REDACTED_github-token_1_")
