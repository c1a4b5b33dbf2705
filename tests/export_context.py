"""An export without an engine: the contexts of :mod:`autocode.jobs.kinds` over a real store, nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from autocode.jobs.kinds import Chain, I, Output, Step
from autocode.jobs.ledger.checkpoints import MemoKey, Produced
from autocode.jobs.operations.export import EXPORT, ExportPayload
from autocode.jobs.store import LocalStore, Staging

AT = "2026-02-07T22:04:44.409Z"


class _Output:
    def __init__(self, staging: Staging, media_type: str) -> None:
        self._staging = staging
        self._media_type = media_type

    def write(self, data: bytes, /) -> None:
        self._staging.write(data)

    def finish(self, *, needs: Iterable[str] = ()) -> Produced:
        info = self._staging.publish()
        return Produced(info.digest, info.size, self._media_type, tuple(sorted(set(needs))))


@dataclass
class StoreContext:
    """A step's context; ``root`` is the folder of every root."""

    root: Path
    store: LocalStore
    told: list[tuple[int, int | None, str | None]] = field(default_factory=list)
    batch: tuple[int, int] | None = None
    cache: Path | None = None

    @contextmanager
    def output(self, media_type: str) -> Iterator[Output]:
        """Open a new object."""
        with self.store.stage() as staging:
            yield _Output(staging, media_type)

    def put(self, chunks: Iterable[bytes], media_type: str, *, needs: Iterable[str] = ()) -> Produced:
        """Write an object."""
        with self.output(media_type) as output:
            for chunk in chunks:
                output.write(chunk)
            return output.finish(needs=needs)

    def open(self, digest: str) -> AbstractContextManager[BinaryIO]:
        """Open an object."""
        return cast("AbstractContextManager[BinaryIO]", self.store.open(digest))

    def read(self, digest: str) -> bytes:
        """Return an object."""
        with self.store.open(digest) as reader:
            return reader.read_all(limit=1 << 28)

    def folder(self, root: str) -> Path:
        """Return the one folder."""
        return self.root

    def cache_folder(self) -> Path | None:
        """Return the cache that the test gave."""
        return self.cache

    def progress(self, done: int, total: int | None = None, unit: str | None = None) -> None:
        """Remember what was told; within a batch of calls, what that makes of the whole batch."""
        if self.batch is not None:
            done, total = self.batch[0] + done, self.batch[1]
        self.told.append((done, total, unit))

    def once(self, key: str, effect: Callable[[str], Any]) -> Any:
        """Perform the effect."""
        return effect(key)

    def check(self) -> None:
        """Nobody ends this attempt."""


@dataclass
class Job:
    """A job's context that remembers steps as the ledger does, and runs ``before`` ahead of each step."""

    context: StoreContext
    payload: ExportPayload
    memo: dict[MemoKey, Produced] = field(default_factory=dict)
    before: Callable[[str], None] = lambda _step: None
    ran: list[str] = field(default_factory=list)
    keys: list[MemoKey] = field(default_factory=list)
    job_id: str = "job-1"
    attempt: int = 1

    async def step(self, step: Step[I], inputs: I, *, label: str | None = None) -> Produced:
        """Run the step unless it is remembered."""
        self.before(step.name)
        key = step.memo_key(self.job_id, inputs)
        self.keys.append(key)
        if key not in self.memo:
            self.memo[key] = step.body(self.context, inputs)
            self.ran.append(step.name)
        return self.memo[key]

    async def steps(
        self, step: Step[I], chains: Sequence[Chain[I]], *, label: str, unit: str
    ) -> list[Produced]:
        """Run each call in turn."""
        last: list[Produced] = []
        done, total = 0, sum(call.size for chain in chains for call in chain)
        for chain in chains:
            before: Produced | None = None
            for call in chain:
                inputs = call.inputs
                if before is not None:
                    assert step.follow is not None
                    inputs = step.follow(inputs, before)
                self.context.batch = (done, total)
                before = await self.step(step, inputs, label=call.label)
                self.context.batch = None
                done += call.size
                self.progress(done, total, unit)
            assert before is not None
            last.append(before)
        return last

    def read(self, digest: str) -> bytes:
        """Return an object."""
        return self.context.read(digest)

    def progress(self, done: int, total: int | None = None, unit: str | None = None) -> None:
        """Remember what was told."""
        self.context.progress(done, total, unit)


def job_over(root: Path, home: Path, *, redact: bool = True, select: tuple[str, ...] = ()) -> Job:
    """Return a job that exports what lies in *root* into a store in *home*."""
    payload = ExportPayload.model_validate(
        {
            "sources": [{"root": "samples", "select": select}],
            "redact": redact,
        }
    )
    return Job(StoreContext(root, LocalStore(home / "store")), payload)


def run(job: Job) -> str:
    """Run the export and return its digest."""
    return asyncio.run(EXPORT.run(job)).digest


def export(
    root: Path, home: Path, *, redact: bool = True, select: tuple[str, ...] = ()
) -> tuple[LocalStore, str]:
    """Export *root*, and return the store and the digest."""
    job = job_over(root, home, redact=redact, select=select)
    return job.context.store, run(job)


def manifest_of(store: LocalStore, digest: str) -> dict[str, Any]:
    """Return the manifest as plain JSON."""
    manifest: dict[str, Any] = json.loads(store.open(digest).read_all(limit=1 << 28))
    return manifest


def paths_of(store: LocalStore, digest: str) -> list[str]:
    """Return the member paths of an export."""
    return [member["path"] for member in manifest_of(store, digest)["members"]]


def objects_of(store: LocalStore) -> dict[str, bytes]:
    """Return every object of the store, by digest."""
    return {digest: store.open(digest).read_all(limit=1 << 30) for digest in store.list()}


def leftovers_of(store: LocalStore) -> list[str]:
    """Return the temporary files that lie in the store."""
    return sorted(str(path) for path in store.root.rglob("*.tmp"))


def line(text: Any = "hello", **fields: Any) -> bytes:
    """Return a line of Claude Code in which the user says *text*."""
    value = {
        "parentUuid": None,
        "isSidechain": False,
        "sessionId": "s-1",
        "cwd": "/home/dev/project",
        "type": "user",
        "message": {"role": "user", "content": text},
        "timestamp": AT,
        **fields,
    }
    return json.dumps(value).encode() + b"\n"
