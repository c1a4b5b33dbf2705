"""Somebody who asks for the status of jobs again and again, and notes what the contract forbids."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self

import httpx

from autocode.jobs.errors import JobsError
from autocode.jobs.model import TERMINAL, TRANSITIONS, JobStatus
from autocode.jobs.resource import Job
from autocode.jobs.store import LocalStore

__all__ = ["Look", "Poller"]

_PAUSE_SECONDS: Final = 0.05

_UNREVISED: Final = frozenset({"links"})
"""What may change under one revision: where things are, and not how the job is."""


@dataclass(frozen=True, slots=True)
class Look:
    """One answer: when it was asked for, and what it said.

    Args:
        asked_at: on this process's monotonic clock.
        job: the resource.
        asked: when it was asked for, in seconds since the epoch; for people.
        answered: when the answer was there.
    """

    asked_at: float
    job: dict[str, Any]
    asked: float = 0.0
    answered: float = 0.0

    @property
    def status(self) -> str:
        """The status."""
        return str(self.job["status"])


@dataclass(slots=True)
class _Watched:
    looks: list[Look] = field(default_factory=list)


class Poller:
    """Asks every 50 ms for each job, in a thread, through outages too.

    What it finds wrong is in ``wrong``, each with the job's id in front; why it got no answer in
    ``unanswered``. Nobody may retry a watched job by hand: what is over has to stay over.

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
        self._thread = threading.Thread(target=self._run, name="status poller")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def watch(self, *job_ids: str) -> None:
        """Ask for these jobs, too; what was seen of them before is forgotten."""
        for job_id in job_ids:
            self._jobs[job_id] = _Watched()

    def forget(self, *job_ids: str) -> None:
        """Ask for these jobs no more, and drop the answers; what was wrong stays. Idempotent."""
        for job_id in job_ids:
            self._jobs.pop(job_id, None)

    def looks(self, job_id: str) -> list[Look]:
        """Return every answer about a job, in order.

        Raises:
            KeyError: the job isn't watched.
        """
        return list(self._jobs[job_id].looks)

    def wrong_about(self, job_id: str) -> list[str]:
        """Return what was found wrong about a job, also once it is forgotten."""
        return [each for each in list(self.wrong) if each.startswith(f"{job_id}: ")]

    def shown_running(self, job_id: str, attempt: int, *, after: float) -> float:
        """Return for how many seconds after a moment an attempt was still shown as running.

        Args:
            job_id: the job.
            attempt: which attempt of it.
            after: the moment, on the monotonic clock.

        Raises:
            KeyError: the job isn't watched.
        """
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
        asked_at, asked = time.monotonic(), time.time()
        try:
            answer = http.get(
                f"{self._url()}/v1/jobs/{job_id}", headers={"Authorization": f"Bearer {self._token()}"}
            )
        except (httpx.TransportError, OSError, ValueError) as error:
            self.unanswered.append(type(error).__name__)
            return
        answered = time.time()
        # it may have been forgotten meanwhile, and its service ended
        if self._jobs.get(job_id) is not watched:
            return
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            self.unanswered.append("503")
        if answer.status_code == httpx.codes.NOT_FOUND and not watched.looks:
            # nobody has asked for the job yet; once it was shown, that it isn't there is a lie
            return
        last = watched.looks[-1] if watched.looks else None
        faults = _refused(answer)
        if not faults and answer.status_code == httpx.codes.OK:
            now = Look(asked_at, answer.json(), asked, answered)
            faults = [*_faults(last, now), *self._unkept(last, now)]
            watched.looks.append(now)
        self.wrong += [f"{job_id}: {fault}" for fault in faults]

    def _unkept(self, last: Look | None, now: Look) -> Iterator[str]:
        """Yield what is wrong with a result that is shown for the first time."""
        if now.status != "complete" or (last is not None and last.status == "complete"):
            return
        result = now.job["result"]
        try:
            if result is None or self._store.stat(result["digest"]) is None:
                yield f"complete, and its result isn't there: {result}"
        except JobsError as error:
            yield f"complete, and its result can't be read: {error}"


def _refused(answer: httpx.Response) -> list[str]:
    """Return what is wrong with an answer before anything is known of the job."""
    if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        return [] if "retry-after" in answer.headers else ["503 without Retry-After"]
    if answer.status_code != httpx.codes.OK:
        return [f"{answer.status_code} {answer.text}"]
    try:
        Job.model_validate_json(answer.content)
    except ValueError as error:
        return [f"the answer is no job: {error}"]
    return []


def _faults(last: Look | None, now: Look) -> Iterator[str]:
    """Yield what the contract forbids in an answer that came after another one."""
    if last is None or last.job["progress"] != now.job["progress"]:
        yield from _overdone(now.job["progress"])
    if last is None:
        return
    if now.job["attempts"] < last.job["attempts"]:
        yield f"attempts fell from {last.job['attempts']} to {now.job['attempts']}"
    revisions = now.job["rev"] - last.job["rev"]
    if revisions < 0:
        yield f"rev fell from {last.job['rev']} to {now.job['rev']}"
    if now.status != last.status:
        yield from _moved(JobStatus(last.status), JobStatus(now.status), revisions)
    elif revisions == 0 and (changed := _changed(last.job, now.job)):
        yield f"{', '.join(changed)} changed under one revision"


def _moved(last: JobStatus, now: JobStatus, revisions: int) -> Iterator[str]:
    if last in TERMINAL:
        yield f"{last} became {now}"
    elif revisions == 0:
        yield f"{last} became {now} under one revision"
    elif (moves := _FEWEST.get((last, now))) is None:
        yield f"{last} became {now}, and no legal moves lead there"
    elif 0 < revisions < moves:
        # each move is a revision of its own, so none can have been missed
        yield f"{last} became {now} in {revisions} revisions, and the legal way there takes {moves} moves"


def _overdone(progress: dict[str, Any] | None) -> Iterator[str]:
    done, total = (progress or {}).get("done"), (progress or {}).get("total")
    if done is not None and (done < 0 or (total is not None and done > total)):
        yield f"progress is {done} of {total}"


def _changed(last: dict[str, Any], now: dict[str, Any]) -> list[str]:
    # attempts that fell are told already
    told = _UNREVISED | ({"attempts"} if now["attempts"] < last["attempts"] else frozenset())
    return [name for name in now if name not in told and now[name] != last.get(name)]


def _fewest_moves() -> dict[tuple[JobStatus, JobStatus], int]:
    """Return how many legal moves lead from one status to another at least, through none that is final."""
    fewest: dict[tuple[JobStatus, JobStatus], int] = {}
    for start in JobStatus:
        reached, moves = {start}, 0
        while reached:
            moves += 1
            reached = {to for status in reached for to in TRANSITIONS[status] if (start, to) not in fewest}
            fewest |= {(start, to): moves for to in reached}
            reached -= TERMINAL
    return fewest


_FEWEST: Final = _fewest_moves()
