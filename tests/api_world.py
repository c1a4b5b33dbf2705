"""The application over a real ledger, called in this process: no port, a loop of its own."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Coroutine, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Match

import autocode.jobs.testing.scenarios  # noqa: F401 - registers the kinds that the tests submit
from autocode.jobs.api.app import create_app
from autocode.jobs.api.service import Service
from autocode.jobs.api.settings import Settings
from autocode.jobs.client import Client
from autocode.jobs.engine.system import System
from autocode.jobs.ledger import access, attempts, checkpoints, results
from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.attempts import Attempt
from autocode.jobs.ledger.database import Database
from autocode.jobs.projection import Outcome
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore
from ledger_world import begin, commit, look, problem, produced

BASE = "http://127.0.0.1:4280"
NOOP = "scenario-noop"
PATIENCE = 30.0
"""Seconds after which a message that didn't come is missed."""

T = TypeVar("T")


def noop(job_id: str | None = "job", witness: str = "w", **members: Any) -> dict[str, Any]:
    """Return the body of a request for a job that does nothing."""
    body = {"kind": NOOP, "payload": {"witness": witness}, **members}
    return body if job_id is None else {**body, "job_id": job_id}


class Api:
    """One application and what its tests need.

    Args:
        database: a migrated ledger.
        folder: where the home goes.
        settings: what the application is told.
    """

    def __init__(self, database: Database, folder: Path, settings: Settings | None = None) -> None:
        self.db = database
        self.home = Home(folder / "home")
        self.home.prepare()
        self.system = System(self.home, database, LocalStore(self.home.store))
        self.app = create_app(self.system, settings)
        self.service: Service = self.app.state.service
        self.tokens = {role: access.create_token(database, name=role.value, role=role).text for role in Role}
        self.transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="api loop")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* on the application's loop; any thread may call."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def send(
        self, method: str, path: str, *, token: str | Role | None = Role.ADMIN, **options: Any
    ) -> httpx.Response:
        """Send a request, with the token of a role, a token given as text, or none."""
        return self.run(self.start(method, path, token=token, **options))

    async def start(
        self, method: str, path: str, *, token: str | Role | None = Role.ADMIN, **options: Any
    ) -> httpx.Response:
        """Send a request from within the loop."""
        headers = dict(options.pop("headers", {}))
        if token is not None:
            text = self.tokens[token] if isinstance(token, Role) else token
            headers.setdefault("Authorization", f"Bearer {text}")
        async with httpx.AsyncClient(transport=self.transport, base_url=BASE) as client:
            answer = await client.request(method, path, headers=headers, **options)
        undocumented(self.app, answer)
        return answer

    def knock(self, path: str, *, token: str | None) -> tuple[int, str]:
        """Open a socket, and go; return 101 and its first message, or with what it was closed, and why."""
        return self.run(self._knock(path, token))

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Send GET."""
        return self.send("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        """Send POST with a JSON body."""
        return self.send("POST", path, json=body, **options)

    def client(self, role: Role = Role.ADMIN, **options: Any) -> Client:
        """Return a client whose requests come here."""
        return Client(BASE, self.tokens[role], transport=Bridge(self), **options)

    async def _knock(self, path: str, token: str | None) -> tuple[int, str]:
        url = httpx.URL(BASE).join(path)
        headers = [(b"host", url.netloc)]
        if token is not None:
            headers.append((b"authorization", f"Bearer {token}".encode()))
        scope = {
            "type": "websocket",
            "scheme": "ws",
            "path": url.path,
            "query_string": url.query,
            "headers": headers,
            "client": ("127.0.0.1", 9),
            "server": ("127.0.0.1", url.port),
        }
        coming: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        going: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        coming.put_nowait({"type": "websocket.connect"})
        socket = asyncio.create_task(self.app(scope, coming.get, going.put))
        while (message := await asyncio.wait_for(going.get(), PATIENCE))["type"] == "websocket.accept":
            pass
        coming.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await asyncio.wait_for(socket, PATIENCE)
        if message["type"] == "websocket.close":
            return message["code"], message["reason"]
        return 101, message["text"]

    async def _end(self) -> None:
        self.service.close()
        self.service.threads.close()
        self.service.files.close()
        self.service.views.close()
        # what was started and not awaited ends within the loop
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*rest, return_exceptions=True)


def undocumented(app: FastAPI, answer: httpx.Response) -> None:
    """Fail where the OpenAPI document has the route and doesn't have this answer of it."""
    request = answer.request
    scope = {"type": "http", "method": request.method, "path": request.url.path, "headers": []}
    for route in app.routes:
        if isinstance(route, APIRoute) and route.matches(scope)[0] is Match.FULL:
            if not route.include_in_schema:
                return
            # FastAPI leaves the converters out of a path
            path = re.sub(r":[a-z]+}", "}", route.path)
            answers = _document(app)["paths"][path][request.method.lower()]["responses"]
            code = str(answer.status_code)
            assert code in answers, f"{request.method} {path} answers {code}, which isn't documented"
            media_type = answer.headers.get("content-type", "").partition(";")[0]
            named = answers[code].get("content", {media_type: {}})
            assert media_type in named or "*/*" in named, f"{request.method} {path}: {code} is {media_type}"
            return


_DOCUMENT: dict[str, Any] = {}


def _document(app: FastAPI) -> dict[str, Any]:
    # the same for every application, and made anew it would cost each test
    if not _DOCUMENT:
        _DOCUMENT.update(app.openapi())
    return _DOCUMENT


class Bridge(httpx.BaseTransport):
    """Carries the requests of a client to an application in this process.

    Args:
        api: the application.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self.sent: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the application's answer."""
        self.sent.append(request)
        return self._api.run(self._carry(request))

    async def _carry(self, request: httpx.Request) -> httpx.Response:
        outgoing = httpx.Request(request.method, request.url, headers=request.headers, content=request.read())
        answer = await self._api.transport.handle_async_request(outgoing)
        content = await answer.aread()
        # a stream: what is given whole can't be read piece by piece
        return httpx.Response(answer.status_code, headers=answer.headers, stream=httpx.ByteStream(content))


@contextmanager
def opened(database: Database, folder: Path, settings: Settings | None = None) -> Iterator[Api]:
    """Give an application over *database*."""
    with Api(database, folder, settings) as api:
        yield api


def kill(db: Database, job_id: str = "job", *, outcome: Outcome = Outcome.PERMANENT) -> None:
    """Let the job's first attempt begin, leave a checkpoint and fail for good; reconcile has told of it."""
    attempt = begin(db, job_id)
    commit(db, attempt, f"text of {job_id}")
    attempts.end(db, job_id, 1, outcome, error=problem())
    look(db, job_id)


def complete(db: Database, attempt: Attempt) -> None:
    """Let *attempt* commit a result that reconcile finds and tells of."""
    made = produced(f"result of {attempt.job_id}")
    checkpoints.reserve(db, attempt, made.digest, made.size)
    results.commit_result(db, attempt, made)
    results.mark_verified(db, attempt.job_id, made.digest)
    look(db, attempt.job_id)
