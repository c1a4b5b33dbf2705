"""A witness of effects: an HTTP server in a process of its own that counts what it is told to do.

It stands for the world outside: a payment, a mail, a deployment. The service knows nothing of it but the URL
in a payload, and no fault that strikes the service strikes the witness.
"""

from __future__ import annotations

import select
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from autocode.jobs.errors import UnexpectedError, UsageError

__all__ = ["Effect", "Witness"]

_START_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 10.0
_END_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Effect:
    """What was asked of the witness under one path and idempotency key.

    Args:
        path: the path below the case, with the query.
        body: the body of the first request.
        key: the idempotency key; requests without one are one effect where path and body are the same.
        applied: how many times it was applied: with a key once, without one each time.
        deliveries: how many requests there were.
    """

    path: str
    body: str
    key: str | None
    applied: int
    deliveries: int


class Witness:
    """The witness's process; use it as a context manager.

    ``POST {url}/{case}/{anything}`` applies an effect. With the header ``Idempotency-Key`` it is applied once
    for each path and key, and answered the second time as the first. Anything bad, as a body of more than
    1 MiB, is answered with a 4xx and isn't counted.

    The process leads a session of its own, so no signal to this one's group reaches it, and ends as soon as
    this process is gone, even by SIGKILL: the kernel closes the pipe that is its stdin. What it counted goes
    with it.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def start(self) -> None:
        """Start the process and wait until it serves. Idempotent.

        Raises:
            UnexpectedError: it didn't start.
        """
        if self._process is not None:
            return
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "autocode.jobs.testing.crashes.witness_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            told = stdout.readline() if select.select([stdout], [], [], _START_SECONDS)[0] else b""
        if not told:
            self.close()
            raise UnexpectedError("The witness's process didn't start.")
        self._port = int(told)

    def close(self) -> None:
        """End the process and wait for that. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._running().pid

    @property
    def url(self) -> str:
        """Where it serves, without a slash at the end."""
        self._running()
        return f"http://127.0.0.1:{self._port}"

    def url_of(self, case: str) -> str:
        """Return where effects of *case* go; the case may be any text but an empty one or ``_``."""
        return f"{self.url}/{quote(case, safe='')}"

    def effects(self, case: str) -> list[Effect]:
        """Return what was asked of the witness in *case*, in the order of the first requests.

        Raises:
            UnexpectedError: the witness is gone.
        """
        return [Effect(**each) for each in self._ask("GET", case)["effects"]]

    def forget(self, case: str) -> None:
        """Forget everything about *case*. Idempotent.

        Raises:
            UnexpectedError: the witness is gone.
        """
        self._ask("DELETE", case)

    def _ask(self, method: str, case: str) -> dict[str, Any]:
        url = f"{self.url}/_/effects/{quote(case, safe='')}"
        try:
            answer = httpx.request(method, url, timeout=_ANSWER_SECONDS, trust_env=False).raise_for_status()
        except httpx.HTTPError as error:
            raise UnexpectedError(f"The witness doesn't answer: {type(error).__name__}.") from error
        told: dict[str, Any] = answer.json()
        return told

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise UsageError("This witness isn't started.", hint="Use it as a context manager.")
        return self._process
