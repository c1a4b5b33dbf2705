"""The private Prefect server as its own process: ``python -m autocode.jobs.engine.server_process HOME``.

It binds a free port of the loopback interface itself, so that no other program can take the port between
choosing and binding. It says where it is in ``run/server.json`` once it answers, and ends when the last
client has gone: clients hold a shared lock on ``run/clients.lock``, which the kernel drops however they
die, and the server waits for the exclusive one.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import sys
import threading
from pathlib import Path

import uvicorn
from prefect.server.api.server import create_app

from autocode.jobs.settings import Home, write_durably

__all__ = ["main"]


def main(home_path: str) -> int:
    """Serve until the last client has gone; return the exit status."""
    home = Home(Path(home_path))
    password = secrets.token_urlsafe(24)
    os.environ["PREFECT_SERVER_API_AUTH_STRING"] = f"autocode:{password}"
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(create_app(), log_level="warning", ws="auto", lifespan="on"))
    address = {
        "url": f"http://127.0.0.1:{port}/api",
        "auth": f"autocode:{password}",
        "pid": os.getpid(),
    }
    threading.Thread(target=_announce, args=(server, home, address), daemon=True).start()
    threading.Thread(target=_stop_when_alone, args=(server, home), daemon=True).start()
    server.run(sockets=[listener])
    return 0


def _announce(server: uvicorn.Server, home: Home, address: dict[str, str | int]) -> None:
    waiting = threading.Event()
    while not server.started:
        waiting.wait(0.02)
    write_durably(home.run / "server.json", json.dumps(address).encode())


def _stop_when_alone(server: uvicorn.Server, home: Home) -> None:
    # held until the process is gone, so that a new client can't take this server for a living one
    lock = os.open(home.run / "clients.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (home.run / "server.json").unlink(missing_ok=True)
    server.should_exit = True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
