"""Write the dump that new homes start with, from what the installed Prefect's migrations make of nothing.

The same version of Prefect gives the same bytes. The diff of the file is the review of an upgrade: rows that
migrations insert with an id or a time of their own would differ from run to run, and a test says so.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from autocode.jobs.engine.prefect_schema import DATABASE, FILE, dump

TARGET: Final = Path(__file__).resolve().parents[1] / "src" / "autocode" / "jobs" / "engine" / FILE


def main() -> int:
    """Migrate an empty database, and store its dump."""
    version = importlib.metadata.version("prefect")
    with tempfile.TemporaryDirectory(prefix="autocode-prefect-") as folder:
        migrate(Path(folder))
        TARGET.write_text(dump(Path(folder) / DATABASE, version), "utf-8")
    print(f"{TARGET.name}: Prefect {version}, {TARGET.stat().st_size} bytes")
    return 0


def migrate(folder: Path) -> None:
    """Let the installed Prefect make its database in *folder*."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    subprocess.run(
        [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"],
        cwd=folder,
        env={
            **inherited,
            "PREFECT_HOME": str(folder),
            "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{DATABASE}",
            "DO_NOT_TRACK": "1",
        },
        stdout=subprocess.DEVNULL,
        check=True,
    )


if __name__ == "__main__":
    sys.exit(main())
