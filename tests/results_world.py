"""Jobs with results that were really made, for what hands results out."""

from __future__ import annotations

from pathlib import Path

from autocode.jobs.engine.system import System
from autocode.jobs.ledger import checkpoints, jobs, results
from autocode.jobs.ledger.checkpoints import Produced
from autocode.jobs.operations.export.payload import MANIFEST_TYPE
from autocode.jobs.store import put_bytes
from export_context import export, line
from ledger_world import begin, look, new_job

HOSTILE = "<script>alert(1)</script> </style><img src=x onerror=alert(2)> [x](javascript:alert(3))"


def completed(system: System, produced: Produced, job_id: str = "job", session_id: str | None = None) -> str:
    """Let a job commit *produced* as its result, and return its digest."""
    jobs.enqueue(system.db, new_job(job_id, session_id=session_id, reads=frozenset()))
    return finish(system, produced, job_id)


def finish(system: System, produced: Produced, job_id: str) -> str:
    """Let a job that was accepted commit *produced* as its result, and return its digest."""
    attempt = begin(system.db, job_id)
    checkpoints.reserve(system.db, attempt, produced.digest, produced.size)
    results.commit_result(system.db, attempt, produced)
    results.mark_verified(system.db, job_id, produced.digest)
    look(system.db, job_id)
    return produced.digest


def with_bytes(system: System, data: bytes, media_type: str = "text/plain", job_id: str = "job") -> str:
    """Let a job have *data* as its result, and return the digest."""
    info = put_bytes(system.store, data)
    return completed(system, Produced(info.digest, info.size, media_type), job_id)


def exported(
    system: System, folder: Path, *, sessions: int = 1, job_id: str = "job", session_id: str | None = None
) -> str:
    """Let a job have exported some sessions that hold hostile text; return the digest."""
    samples = folder / f"samples-{job_id}"
    samples.mkdir()
    for number in range(sessions):
        text = line(f"{HOSTILE} in {number}", sessionId=f"s-{number}")
        (samples / f"{number}.jsonl").write_bytes(text)
    # the store of export_context lies where the home's does
    store, digest = export(samples, system.home.path)
    info = store.stat(digest)
    assert info is not None
    return completed(system, Produced(digest, info.size, MANIFEST_TYPE), job_id, session_id)
