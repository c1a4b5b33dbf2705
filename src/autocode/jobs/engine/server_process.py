"""The private Prefect server as its own process: ``python -m autocode.jobs.engine.server_process HOME``.

It binds a port of the loopback interface itself, so that no other program can take the port between choosing
and binding, and says in ``run/server.json`` where it is once it answers. It ends when the last client has
gone: clients share ``run/clients.lock``, which the kernel drops however they die, and the server waits for
the lock to itself.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import secrets
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autocode.jobs import locks
from autocode.jobs.engine.databases import chosen
from autocode.jobs.engine.environment import leave_out_grammar, note_schema, on_postgresql
from autocode.jobs.settings import Home, write_durably

if TYPE_CHECKING:
    import uvicorn

__all__ = ["main"]

_SCHEMAS: Final = 500
"""How many schemas are known to be right at most."""

_LINGER_SECONDS: Final = 2.0
"""How long the server outlives its last client: task runs are recorded, and the next command may come."""

_SHUTDOWN_SECONDS: Final = 3.0
"""How long an orderly end may take before the process just exits; its database survives that."""


def main(home_path: str) -> int:
    """Serve until the last client has gone; return the exit status."""
    home = Home(Path(home_path))
    # a look at the lock takes it for a moment, hence the patience
    with locks.owned(home.run / "server.lock", within=2.0), contextlib.ExitStack() as stack:
        end = _End(home)
        listener, password = _listen(home)
        if on_postgresql(home):
            _use_postgresql(home, listener, stack)
        os.environ["PREFECT_SERVER_API_AUTH_STRING"] = f"autocode:{password}"
        end.server = server = _server()
        address = {
            "url": f"http://127.0.0.1:{listener.getsockname()[1]}/api",
            "auth": f"autocode:{password}",
            "pid": os.getpid(),
        }
        threading.Thread(target=_announce, args=(server, home, address), daemon=True).start()
        server.run(sockets=[listener])
    return 0


def _use_postgresql(home: Home, listener: socket.socket, stack: contextlib.ExitStack) -> None:
    """Need the home's PostgreSQL until *stack* is closed, or this process ends; tell Prefect where it is."""
    from autocode.jobs.engine import prefect_postgresql  # noqa: PLC0415 - a driver that SQLite doesn't need
    from autocode.jobs.postgres.client import running  # noqa: PLC0415 - see above

    if chosen(home).kind == "embedded":
        stack.enter_context(running(home))
    os.environ.update(prefect_postgresql.server_environment(home))
    os.environ["PREFECT_UI_API_URL"] = f"http://127.0.0.1:{listener.getsockname()[1]}/api"


def _note_schema(home: Home) -> None:
    if not on_postgresql(home):
        note_schema(home)
    if chosen(home).kind != "embedded":
        return
    from autocode.jobs.engine import prefect_postgresql  # noqa: PLC0415 - see _use_postgresql

    prefect_postgresql.note_schema(home)


def _listen(home: Home) -> tuple[socket.socket, str]:
    """Bind the port of the server that died here, if one did, so that its clients find this one; else any."""
    port, password = 0, secrets.token_urlsafe(24)
    try:
        before: dict[str, Any] = json.loads((home.run / "server.json").read_text("utf-8"))
        port = int(before["url"].removesuffix("/api").rpartition(":")[2])
        password = str(before["auth"]).partition(":")[2]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    for wanted in (port, 0):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", wanted))
        except OSError:
            listener.close()
            continue
        return listener, password
    raise OSError("no port of 127.0.0.1 is free")


def _server() -> uvicorn.Server:
    # half of the start is importing Prefect, and a tenth of that is looking for garbage that isn't there
    gc.disable()
    leave_out_grammar()
    import uvicorn  # noqa: PLC0415 - see above
    from prefect.server.api.server import create_app  # noqa: PLC0415 - reads its settings when imported

    _check_schemas_once()
    config = uvicorn.Config(
        create_app(), log_level="warning", ws="auto", lifespan="on", timeout_graceful_shutdown=1
    )
    gc.enable()
    return uvicorn.Server(config)


def _check_schemas_once() -> None:
    """Let the server check each JSON Schema once, not twice for every run that it makes, 40 ms each time.

    Prefect checks the variables of the work pool against JSON Schema's own schema before it checks values by
    them (``prefect/server/api/validation.py``). What passed once passes again.
    """
    from prefect.utilities.schema_tools import validation  # noqa: PLC0415 - see _server

    validator: Any = validation._VALIDATOR  # noqa: SLF001 - the class that both checks use
    check = validator.check_schema
    passed: set[str] = set()

    def once(schema: Any, *arguments: Any, **options: Any) -> None:
        key = json.dumps(schema, sort_keys=True, default=repr)
        if key not in passed:
            check(schema, *arguments, **options)
            if len(passed) < _SCHEMAS:
                passed.add(key)

    validator.check_schema = once


def _announce(server: uvicorn.Server, home: Home, address: dict[str, str | int]) -> None:
    waiting = threading.Event()
    while not server.started:
        waiting.wait(0.02)
    _note_schema(home)
    write_durably(home.run / "server.json", json.dumps(address).encode())


class _End:
    """Ends the process when no client is left, also while it is still starting."""

    def __init__(self, home: Home) -> None:
        self.server: uvicorn.Server | None = None
        self._home = home
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        clients = self._home.run / "clients.lock"
        while True:
            try:
                os.close(locks.wait_for_exclusive(clients))
                time.sleep(_LINGER_SECONDS)
                # held until the process is gone, so that no new client takes this server for a living one
                with locks.exclusive(clients, within=0.0):
                    self._end()
            except TimeoutError:
                continue
            except OSError:
                # the home was removed, and with it every way to reach this server
                self._end()

    def _end(self) -> None:
        (self._home.run / "server.json").unlink(missing_ok=True)
        if self.server is not None:
            self.server.should_exit = True
            time.sleep(_SHUTDOWN_SECONDS)
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
