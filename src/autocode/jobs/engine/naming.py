"""How the runs of attempts are called in Prefect: names, tags, and the keys of their Prefect artifacts."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from prefect.client.schemas.objects import FlowRun

from autocode.jobs.engine.deployments import TAG

__all__ = ["Introduction", "adopted_name", "artifact_key", "introduction", "run_name", "run_tags"]

_ATTEMPT: Final = re.compile(r"(?P<whose>.*) · attempt [0-9]+\Z", re.DOTALL)
_ODD: Final = re.compile(r"[^a-z0-9]+")
_READABLE: Final = 60
"""Characters of a job's id that stand in the key of an artifact; what makes it unique stands behind them."""


def run_name(kind: str, job_id: str, n: int, session: str | None) -> str:
    """Return the name of the run of attempt *n*, for instance ``export s-1 · attempt 2``."""
    return f"{kind} {session or job_id} · attempt {n}"


def adopted_name(kind: str, given: str, n: int) -> str:
    """Return the name of attempt *n*'s run of an adopted job: what Prefect, or a person, called it stays.

    Idempotent: a name that this function made is taken for the given one again.

    Args:
        kind: the kind.
        given: the present name of the run that was adopted.
        n: which attempt.
    """
    known = _ATTEMPT.fullmatch(given)
    whose = given if known is None else known["whose"].removeprefix(f"{kind} ")
    return f"{kind} {whose} · attempt {n}"


def run_tags(kind: str, job_id: str, session: str | None) -> list[str]:
    """Return the tags of a run: by kind, job and session."""
    tags = [TAG, f"kind:{kind}", f"job:{job_id}"]
    return tags if session is None else [*tags, f"session:{session}"]


@dataclass(frozen=True, slots=True)
class Introduction:
    """A name and tags for a run that Prefect itself started."""

    name: str
    tags: list[str]


def introduction(kind: str, job_id: str, run: FlowRun) -> Introduction | None:
    """Return what *run* has to be called to be like other runs; ``None`` where it is.

    What it was called before stays in the name, and the tags that it has stay, too.
    """
    name = adopted_name(kind, run.name, 1)
    missing = [tag for tag in run_tags(kind, job_id, None) if tag not in run.tags]
    if name == run.name and not missing:
        return None
    return Introduction(name, [*run.tags, *missing])


def artifact_key(job_id: str, what: str) -> str:
    """Return the key of a Prefect artifact of the job, in lowercase letters, digits and dashes.

    Ids that differ in case or in other characters alone keep different keys: a piece of the id's digest
    stands in each. All attempts of a job share the key, so Prefect shows them as versions of one artifact.
    """
    readable = _ODD.sub("-", job_id.lower())[:_READABLE].strip("-")
    digest = hashlib.sha256(job_id.encode()).hexdigest()[:12]
    return "-".join(filter(None, ("job", readable, digest, what)))
