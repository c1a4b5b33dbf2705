"""Who runs a child, and what that account can reach."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from autocode.jobs.errors import UsageError
from autocode.jobs.postgres import accounts as _accounts
from autocode.jobs.postgres.accounts import Account, can_reach, unprivileged

_STRANGER = Account("stranger", uid=54_321, gid=54_321, drop=True)


@pytest.fixture
def public_folder(tmp_path: Path) -> Path:
    """Give a folder that everybody may enter, whatever the umask and the modes of pytest's own folders."""
    folder = tmp_path / "public"
    folder.mkdir()
    folder.chmod(0o755)
    for parent in tmp_path.parents:
        if parent == Path(tempfile.gettempdir()):
            break
        parent.chmod(0o755)
    tmp_path.chmod(0o755)
    return folder


def test_a_stranger_reaches_what_everybody_may_read() -> None:
    """A folder whose parents are all open is within reach of an account that owns none of them."""
    reach = can_reach(Path("/usr/bin"), _STRANGER)

    assert reach is True


def test_a_closed_parent_puts_everything_below_out_of_reach(public_folder: Path) -> None:
    """One folder of mode 0700 on the way is enough, however open the target is."""
    inner = public_folder / "closed" / "open"
    inner.mkdir(parents=True)
    inner.parent.chmod(0o700)

    reach = can_reach(inner, _STRANGER)

    assert reach is False


def test_the_owner_reaches_a_folder_of_mode_0700(public_folder: Path) -> None:
    """The owner's bits count for the owner."""
    public_folder.chmod(0o700)
    owner = Account("owner", uid=os.geteuid(), gid=os.getegid(), drop=False)

    reach = can_reach(public_folder, owner)

    assert reach is True


def test_a_path_that_does_not_exist_is_out_of_reach(public_folder: Path) -> None:
    """A missing path answers no and doesn't raise."""
    reach = can_reach(public_folder / "missing", _STRANGER)

    assert reach is False


def test_an_ordinary_user_needs_no_other_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody but root drops privileges, so no option asks for it."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    options = unprivileged().popen_options()

    assert options == {"cwd": "/", "start_new_session": True}


def test_root_without_a_substitute_is_told_what_to_create(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no candidate exists the error names them."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(_accounts, "_CANDIDATES", ("no-such-account",))

    with pytest.raises(UsageError) as caught:
        unprivileged()

    assert "no-such-account" in caught.value.hint
