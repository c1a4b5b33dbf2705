"""Somebody who asks for the status of jobs again and again, and notes what the contract forbids."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

from autocode.jobs.store import LocalStore

__all__ = ["Look", "Watcher"]

_PAUSE_SECONDS = 0.05
_TERMINAL = {"complete", "dead"}


@dataclass(frozen=True)
class Look:
    """One answer: when it was asked for, and what it said."""

    asked_at: float
    job: dict[str, Any]

    @property
    def status(self) -> str:
        """The status."""
        return str(self.job["status"])


@dataclass
class _Watched:
    looks: list[Look] = field(default_factory=list)


class Watcher:
    """Asks every 50 ms for each job, in a thread, through outages too.

    Args:
        url: says where the service answers now.
        token: says what lets it in.
        store: where results have to be once they are shown.
    """

    def __init__(self, url: Callable[[], str], token: Callable[[], str], store: LocalStore) -> None:
        self.wrong: list[str] = []
        self.unanswered: list[str] = []
        self._url = url
        self._token = token
        self._store = store
        self._jobs: dict[str, _Watched] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status watcher")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def watch(self, *job_ids: str) -> None:
        """Ask for these jobs, too."""
        for job_id in job_ids:
            self._jobs[job_id] = _Watched()

    def looks(self, job_id: str) -> list[Look]:
        """Return every answer about a job, in order."""
        return list(self._jobs[job_id].looks)

    def shown_running(self, job_id: str, attempt: int, *, after: float) -> float:
        """Return for how many seconds after a moment an attempt was still shown as running."""
        late = [
            look.asked_at - after
            for look in self.looks(job_id)
            if look.status == "running" and look.job["attempts"] == attempt
        ]
        return max([0.0, *late])

    def _run(self) -> None:
        with httpx.Client(timeout=10.0, trust_env=False) as http:
            while not self._ending.wait(_PAUSE_SECONDS):
                for job_id, watched in list(self._jobs.items()):
                    self._look(http, job_id, watched)

    def _look(self, http: httpx.Client, job_id: str, watched: _Watched) -> None:
        asked_at = time.monotonic()
        try:
            answer = http.get(
                f"{self._url()}/v1/jobs/{job_id}", headers={"Authorization": f"Bearer {self._token()}"}
            )
        except (httpx.TransportError, OSError, ValueError) as error:
            self.unanswered.append(type(error).__name__)
            return
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            self.unanswered.append("503")
            if "retry-after" not in answer.headers:
                self.wrong.append(f"{job_id}: 503 without Retry-After")
            return
        if answer.status_code != httpx.codes.OK:
            self.wrong.append(f"{job_id}: {answer.status_code} {answer.text}")
            return
        self._judge(job_id, watched.looks, Look(asked_at, answer.json()))

    def _judge(self, job_id: str, before: list[Look], now: Look) -> None:
        if before:
            last = before[-1]
            if now.job["rev"] < last.job["rev"]:
                self.wrong.append(f"{job_id}: rev fell from {last.job['rev']} to {now.job['rev']}")
            if now.job["attempts"] < last.job["attempts"]:
                self.wrong.append(f"{job_id}: attempts fell")
            if last.status in _TERMINAL and now.status != last.status:
                self.wrong.append(f"{job_id}: {last.status} became {now.status}")
            if now.job["rev"] == last.job["rev"] and now.status != last.status:
                self.wrong.append(f"{job_id}: {last.status} became {now.status} under one revision")
        if now.status == "complete" and not (before and before[-1].status == "complete"):
            result = now.job["result"]
            if result is None or self._store.stat(result["digest"]) is None:
                self.wrong.append(f"{job_id}: complete, and its result isn't there: {result}")
        before.append(now)
