"""Write the dump that homes with a PostgreSQL start with: what the installed Prefect's migrations make."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from autocode.jobs.engine.prefect_postgresql import FILE, dump
from autocode.jobs.postgres.binaries import installed
from autocode.jobs.testing.postgres import running_postgres

TARGET: Final = Path(__file__).resolve().parents[1] / "src" / "autocode" / "jobs" / "engine" / FILE


def main() -> int:
    """Migrate an empty database, and store its dump."""
    version = importlib.metadata.version("prefect")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    with tempfile.TemporaryDirectory(prefix="autocode-prefect-") as folder, running_postgres() as server:
        name = server.create_database("prefect")
        subprocess.run(
            [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"],
            cwd=folder,
            env={
                **inherited,
                "PREFECT_HOME": folder,
                "PREFECT_API_DATABASE_CONNECTION_URL": server.url(name, driver="asyncpg"),
                "DO_NOT_TRACK": "1",
            },
            stdout=subprocess.DEVNULL,
            check=True,
        )
        script = dump(installed() / "bin" / "pg_dump", server.url(name).replace("+psycopg", ""), version)
        TARGET.write_text(script, "utf-8")
    print(f"{TARGET.name}: Prefect {version}, {TARGET.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
