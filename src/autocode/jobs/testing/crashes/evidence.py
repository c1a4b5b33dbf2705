"""What is left of a job once it is over: all that is persisted about it, and what shouldn't be there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import httpx

from autocode.jobs import locks
from autocode.jobs.engine.worker import registry
from autocode.jobs.engine.worker.registry import Registered
from autocode.jobs.errors import JobsError
from autocode.jobs.ledger.database import Database
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore
from autocode.jobs.testing.crashes.facts import Facts, read_facts
from autocode.jobs.testing.crashes.poller import Poller

__all__ = ["AppliedEffect", "Evidence", "Prefect", "Struck", "gather"]

_ANSWER_SECONDS: Final = 10.0


class AppliedEffect(Protocol):
    """An effect as its receiver counted it; what ``Witness.effects`` gives."""

    @property
    def path(self) -> str:
        """Which effect it is, below the case."""
        ...

    @property
    def body(self) -> str:
        """What was sent."""
        ...

    @property
    def key(self) -> str | None:
        """The idempotency key that came with it."""
        ...

    @property
    def applied(self) -> int:
        """How often it happened."""
        ...

    @property
    def deliveries(self) -> int:
        """How often it was asked for, the first time included."""
        ...


@dataclass(frozen=True, slots=True)
class Prefect:
    """Where Prefect's API answers (its URL ends with ``/api``), and ``user:password`` if it asks for one."""

    url: str
    auth: str = ""


@dataclass(frozen=True, slots=True)
class Struck:
    """The attempt whose process was struck, and when, on the monotonic clock."""

    attempt: int
    at: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that one job is judged by; the defaults are those of a job that left nothing behind.

    Args:
        job_id: the job.
        ledger: what the ledger has.
        effects: its effects, as their receiver counted them.
        damaged: what is wrong with the result's or a checkpoint's object, by digest.
        temp_files: files in the store that nobody finished, of whatever job.
        holder_files: files in ``run/holders`` of its attempts, or of nobody who lives.
        child_files: files in ``run/children`` of its attempts, or of nobody who lives.
        living: processes that run its attempts.
        run_states: the type of Prefect's state by flow run; ``None`` where Prefect wasn't asked.
        wrong: what the poller found wrong.
        shown_running: for how many seconds after it was struck an attempt was shown as running; ``None``
            where none was struck.
    """

    job_id: str
    ledger: Facts
    effects: Sequence[AppliedEffect] = ()
    damaged: Mapping[str, str] = field(default_factory=dict)
    temp_files: Sequence[str] = ()
    holder_files: Sequence[str] = ()
    child_files: Sequence[str] = ()
    living: Sequence[int] = ()
    run_states: Mapping[str, str] | None = None
    wrong: Sequence[str] = ()
    shown_running: float | None = None


def gather(
    job_id: str,
    *,
    db: Database | str,
    home: Home,
    effects: Sequence[AppliedEffect] = (),
    poller: Poller | None = None,
    struck: Struck | None = None,
    prefect: Prefect | None = None,
    events_after: int = 0,
    seen: Iterable[Registered] = (),
) -> Evidence:
    """Read what is persisted about a job that is over, and look for what it left.

    It changes nothing but that a damaged object goes into quarantine. What killed processes left is removed
    some seconds later: whoever judges by it looks again for a while.

    Args:
        job_id: the job.
        db: the ledger, or its SQLAlchemy URL.
        home: the service's data folder.
        effects: what the witness counted.
        poller: who watched the job, and hasn't forgotten it yet.
        struck: which attempt was struck, where one was.
        prefect: whom to ask for the runs.
        events_after: begin with the events behind this cursor.
        seen: children that ran the job, as they were registered then; they must be gone by now.

    Raises:
        LedgerUnavailable: the database can't be reached.
    """
    with closing(Database(db)) if isinstance(db, str) else nullcontext(db) as database:
        facts = read_facts(database, job_id, events_after=events_after)
    runs = [each.flow_run_id for each in facts.attempts if each.flow_run_id is not None]
    children = registry.children(home)
    mine = [each for each in children if each.flow_run_id in runs]
    shown = None
    if poller is not None and struck is not None:
        shown = poller.shown_running(job_id, struck.attempt, after=struck.at)
    return Evidence(
        job_id=job_id,
        ledger=facts,
        effects=tuple(effects),
        damaged=_damaged(LocalStore(home.store), facts),
        temp_files=sorted(path.name for path in home.store.rglob("*.tmp")),
        holder_files=_holder_files(home.run / "holders", facts),
        child_files=sorted(str(each.pid) for each in children if each in mine or not registry.lives(each)),
        living=sorted({each.pid for each in [*mine, *seen] if registry.lives(each)}),
        run_states=None if prefect is None else _run_states(prefect, runs),
        wrong=[] if poller is None else poller.wrong_about(job_id),
        shown_running=shown,
    )


def _damaged(store: LocalStore, facts: Facts) -> dict[str, str]:
    named = {each.digest for each in facts.checkpoints}
    found = {}
    for digest in sorted(named if facts.result is None else {*named, facts.result}):
        try:
            store.verify(digest)
        except JobsError as error:
            found[digest] = str(error)
    return found


def _holder_files(folder: Path, facts: Facts) -> list[str]:
    held = {(each.holder or "").rpartition(":")[2] for each in facts.attempts}
    return sorted(
        path.name
        for path in folder.glob("*")
        # one that is neither its attempts' nor locked may be that of a process that died before it claimed
        if (path.name in held or not locks.is_held(path)) and path.exists()
    )


def _run_states(prefect: Prefect, runs: Iterable[str]) -> dict[str, str]:
    user, _, password = prefect.auth.partition(":")
    auth = (user, password) if prefect.auth else None
    # environment proxies are for other hosts than this one
    with httpx.Client(auth=auth, trust_env=False, timeout=_ANSWER_SECONDS) as http:
        return {run: _run_state(http, f"{prefect.url}/flow_runs/{run}") for run in runs}


def _run_state(http: httpx.Client, url: str) -> str:
    """Return the type of the run's state; else why it isn't known, which is no type of Prefect's."""
    try:
        answer = http.get(url)
    except httpx.HTTPError as error:
        return f"no answer ({type(error).__name__})"
    if answer.status_code == httpx.codes.NOT_FOUND:
        return "GONE"
    if answer.status_code != httpx.codes.OK:
        return f"no answer ({answer.status_code})"
    return str(answer.json()["state_type"])
