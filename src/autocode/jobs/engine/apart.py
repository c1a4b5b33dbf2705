"""A step's context whose objects are published by somebody else; it needs neither ledger nor Prefect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast

from autocode.jobs import crash
from autocode.jobs.errors import UsageError
from autocode.jobs.kinds import Call, Output, Produced, Step
from autocode.jobs.store import LocalStore
from autocode.jobs.store.staging import LocalStaging

__all__ = ["ApartContext", "Done", "perform"]

_KEPT: Final = 32 << 20
_SMALL: Final = 256 << 20


class Done(NamedTuple):
    """A call that was performed, and what is to be published before it counts.

    Args:
        inputs: the inputs of the call, complete.
        produced: what it left.
        objects: its finished objects, in order.
    """

    inputs: Any
    produced: Produced
    objects: list[LocalStaging]


class _Finished:
    def __init__(self, context: ApartContext, staging: LocalStaging, media_type: str) -> None:
        self._context = context
        self._staging = staging
        self._media_type = media_type
        self.is_finished = False

    def write(self, data: bytes, /) -> None:
        self._context.check()
        self._staging.write(data)

    def finish(self, *, needs: Iterable[str] = ()) -> Produced:
        info = self._staging.end()
        if not self.is_finished:
            self.is_finished = True
            self._context.objects.append(self._staging)
        return Produced(info.digest, info.size, self._media_type, tuple(sorted(set(needs))))


class ApartContext:
    """Implements :class:`autocode.jobs.kinds.StepContext` for steps that may run apart.

    Objects are written, but neither durable, visible nor referred to: that is the business of whoever takes
    them, reference first.

    Args:
        store: where the objects are written.
        check: raises when the work must stop.
        tell: told how far the call is.
        cache: the folder for what may be gone.
    """

    def __init__(
        self,
        store: LocalStore,
        check: Callable[[], None],
        tell: Callable[[int], None],
        cache: Path | None = None,
    ) -> None:
        self._cache = cache
        self._store = store
        self._check = check
        self._tell = tell
        self._last: tuple[str, bytes] | None = None
        self.objects: list[LocalStaging] = []

    def check(self) -> None:
        """Raise if the work must stop."""
        self._check()

    @contextmanager
    def output(self, media_type: str) -> Iterator[Output]:
        """Open a new object for writing."""
        self.check()
        staging = self._store.stage()
        output = _Finished(self, staging, media_type)
        try:
            yield output
        finally:
            if not output.is_finished:
                staging.discard()

    def put(self, chunks: Iterable[bytes], media_type: str, *, needs: Iterable[str] = ()) -> Produced:
        """Write *chunks* as one object; a short one can be read again before it is visible."""
        kept: list[bytes] = []
        size = 0
        with self.output(media_type) as output:
            for chunk in chunks:
                output.write(chunk)
                size += len(chunk)
                kept.append(chunk)
                if size > _KEPT:
                    kept.clear()
            produced = output.finish(needs=needs)
        self._last = (produced.digest, b"".join(kept)) if size <= _KEPT else None
        return produced

    def open(self, digest: str) -> AbstractContextManager[BinaryIO]:
        """Open a visible object for reading."""
        self.check()
        return cast("AbstractContextManager[BinaryIO]", self._store.open(digest))

    def read(self, digest: str) -> bytes:
        """Return a small object whole, also the one that was put last."""
        if self._last is not None and self._last[0] == digest:
            return self._last[1]
        with self._store.open(digest) as reader:
            return reader.read_all(limit=_SMALL)

    def folder(self, root: str) -> Any:
        """Refuse: roots belong to the home."""
        raise UsageError(f"A step that runs apart can't ask for the root {root!r}.", hint="Use its path.")

    def cache_folder(self) -> Path | None:
        """Return the folder for what may be gone."""
        return self._cache

    def progress(self, done: int, total: int | None = None, unit: str | None = None) -> None:  # noqa: ARG002 - the protocol's
        """Tell how far this call is."""
        self.check()
        self._tell(done)

    def once(self, key: str, effect: Callable[[str], Any]) -> Any:  # noqa: ARG002 - the protocol's
        """Refuse: effects belong to the ledger."""
        raise UsageError(
            f"A step that runs apart can't do {key!r} once.", hint="Declare the step without `apart`."
        )

    def taken(self) -> list[LocalStaging]:
        """Return the objects that were finished since the last call, which are the caller's from now on."""
        objects, self.objects = self.objects, []
        return objects

    def discard(self) -> None:
        """Drop the objects that nobody took."""
        for staging in self.taken():
            staging.discard()


def perform(
    context: ApartContext, step: Step[Any], calls: Sequence[Call[Any]], before: Produced | None
) -> Iterator[Done]:
    """Perform a chain of calls one after the other.

    Args:
        context: what the step's body gets.
        step: the step.
        calls: the chain, or the rest of it.
        before: what the call before the first of *calls* produced.
    """
    try:
        for call in calls:
            crash.at("step.before")
            inputs = given(step, call, before)
            before = step.body(context, inputs)
            yield Done(inputs, before, context.taken())
    finally:
        context.discard()


def given(step: Step[Any], call: Call[Any], before: Produced | None) -> Any:
    """Return the complete inputs of *call*."""
    if before is None:
        return call.inputs
    if step.follow is None:
        raise UsageError(f"Step {step.name!r} has no `follow`.", hint="Declare one, or call it step by step.")
    return step.follow(call.inputs, before)
