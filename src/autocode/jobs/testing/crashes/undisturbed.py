"""A job that nobody disturbs: a kind runs in this process, without engine, ledger and Prefect.

What it leaves is what a job on a service has to leave, too, whatever was done to that.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final, cast

from autocode.jobs.engine.apart import given
from autocode.jobs.errors import UsageError
from autocode.jobs.kinds import Chain, I, Kind, Output, Produced, Step
from autocode.jobs.ledger.memo import MemoKey
from autocode.jobs.store import LocalStore, Staging

__all__ = ["Undisturbed", "run_undisturbed"]

_SMALL: Final = 256 << 20
_NO_ROOTS: Final[Mapping[str, Path]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """What a job left.

    Args:
        digest: the digest of the result.
        checkpoints: the digest that each step left, by the step's label as the ledger has it, in the order
            in which they were done. Calls that don't wait for one another may come in another order from a
            service.
    """

    digest: str
    checkpoints: Mapping[str, str]


def run_undisturbed(
    kind: Kind[Any],
    payload: Mapping[str, Any],
    folder: Path,
    roots: Mapping[str, Path] = _NO_ROOTS,
    job_id: str = "undisturbed",
    *,
    within: float | None = None,
) -> Undisturbed:
    """Run *kind* once, and return what it left.

    Effects happen really, so give the payload a receiver that may see them. Nothing is tried again, and
    nothing is remembered from an earlier run. Not to be called from a running event loop.

    Args:
        kind: the kind.
        payload: what a client would send.
        folder: where the objects go, in ``store``.
        roots: the folders that the payload may name.
        job_id: the job's id.
        within: seconds that it may take; ``None``: any. A step that hangs goes on in its thread.

    Raises:
        TimeoutError: it took longer.
        PayloadInvalid: the payload doesn't fit the kind.
        UsageError: the payload names a root that isn't in *roots*.
        Exception: whatever a step raises.
    """
    context = _Context(LocalStore(folder / "store"), roots)
    job = _Job(context, kind.parse(payload), job_id)
    produced = asyncio.run(_limited(kind.run(job), within))
    return Undisturbed(produced.digest, MappingProxyType(job.checkpoints))


async def _limited(running: Awaitable[Produced], within: float | None) -> Produced:
    async with asyncio.timeout(within):
        return await running


async def _apart(function: Callable[[], Produced]) -> Produced:
    """Call *function* in a thread: it may block, start an event loop of its own, or never return."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Produced] = loop.create_future()

    def tell(result: Produced | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        elif result is not None:
            done.set_result(result)

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:  # noqa: BLE001 - carried over to the caller
            error = raised
        # whoever waited may have given up, and its loop be closed
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, result, error)

    # not one of an executor's: those are waited for at the process's end
    threading.Thread(target=run, name="undisturbed step", daemon=True).start()
    return await done


class _Output:
    def __init__(self, staging: Staging, media_type: str) -> None:
        self._staging = staging
        self._media_type = media_type

    def write(self, data: bytes, /) -> None:
        self._staging.write(data)

    def finish(self, *, needs: Iterable[str] = ()) -> Produced:
        info = self._staging.publish()
        return Produced(info.digest, info.size, self._media_type, tuple(sorted(set(needs))))


class _Context:
    """Implements :class:`autocode.jobs.kinds.StepContext` over a store."""

    def __init__(self, store: LocalStore, roots: Mapping[str, Path]) -> None:
        self._store = store
        self._roots = roots
        self._results: dict[str, str] = {}

    @contextmanager
    def output(self, media_type: str) -> Iterator[Output]:
        with self._store.stage() as staging:
            yield _Output(staging, media_type)

    def put(self, chunks: Iterable[bytes], media_type: str, *, needs: Iterable[str] = ()) -> Produced:
        with self.output(media_type) as output:
            for chunk in chunks:
                output.write(chunk)
            return output.finish(needs=needs)

    def open(self, digest: str) -> AbstractContextManager[BinaryIO]:
        return cast("AbstractContextManager[BinaryIO]", self._store.open(digest))

    def read(self, digest: str) -> bytes:
        with self._store.open(digest) as reader:
            return reader.read_all(limit=_SMALL)

    def folder(self, root: str) -> Path:
        if root not in self._roots:
            raise UsageError(
                f"No root is called {root!r}.",
                hint="Known roots: " + (", ".join(sorted(self._roots)) or "none") + ".",
            )
        return self._roots[root]

    def cache_folder(self) -> Path | None:
        """Give none: nothing is taken from an earlier run."""
        return None

    def progress(self, done: int, total: int | None = None, unit: str | None = None) -> None:
        """Nobody looks."""

    def once(self, key: str, effect: Callable[[str], Any]) -> Any:
        """Perform *effect* under the key itself, as the ledger does, or return what it returned before."""
        if key in self._results:
            return json.loads(self._results[key])
        result = effect(key)
        self._results[key] = json.dumps(result)
        return result

    def check(self) -> None:
        """Nobody ends this attempt."""


class _Job:
    """Implements :class:`autocode.jobs.kinds.JobContext`: one call after the other."""

    attempt = 1

    def __init__(self, context: _Context, payload: Any, job_id: str) -> None:
        self._context = context
        self._memo: dict[MemoKey, Produced] = {}
        self.payload = payload
        self.job_id = job_id
        self.checkpoints: dict[str, str] = {}

    async def step(self, step: Step[I], inputs: I, *, label: str | None = None) -> Produced:
        key = step.memo_key(self.job_id, inputs)
        if key not in self._memo:
            self._memo[key] = await _apart(lambda: step.body(self._context, inputs))
        produced = self._memo[key]
        self.checkpoints[label or step.name] = produced.digest
        return produced

    async def steps(
        self,
        step: Step[I],
        chains: Sequence[Chain[I]],
        *,
        label: str,  # noqa: ARG002 - many calls in one are Prefect's; each has a checkpoint of its own
        unit: str,  # noqa: ARG002 - nobody looks at progress
    ) -> list[Produced]:
        last: list[Produced] = []
        for chain in chains:
            before: Produced | None = None
            for call in chain:
                before = await self.step(step, given(step, call, before), label=call.label)
            if before is None:
                raise UsageError(f"A chain of step {step.name!r} has no calls.")
            last.append(before)
        return last

    def read(self, digest: str) -> bytes:
        return self._context.read(digest)

    def progress(self, done: int, total: int | None = None, unit: str | None = None) -> None:
        """Nobody looks."""
