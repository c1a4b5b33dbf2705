"""The protocol by which a job kind declares itself: payload, steps, revision, budget, time limit.

A kind takes about fifteen lines::

    class Greeting(BaseModel):
        name: str

    greet = Kind("greet", payload=Greeting, flow="greet.py:greet")

    @greet.step
    def compose(context: StepContext, inputs: Greeting) -> Produced:
        return context.put([f"Hello, {inputs.name}!".encode()], "text/plain")

    @greet.main
    async def run(job: JobContext[Greeting]) -> Produced:
        return await job.step(compose, job.payload)

``main`` runs from its first line in every attempt; what is done once belongs in a step. A step's output is an
object in the store, remembered under (kind, step, revision, digest of the inputs): the same inputs again
cost a look-up and a check of the object, in this job or another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Generic, Protocol, TypeVar, overload

from pydantic import BaseModel, ValidationError

from autocode.jobs.canonical import canonical_json, digest_of, unstorable
from autocode.jobs.errors import KindUnknown, PayloadInvalid
from autocode.jobs.ledger.memo import MemoKey, Produced
from autocode.jobs.retry import Backoff

__all__ = [
    "Call",
    "Chain",
    "JobContext",
    "Kind",
    "Output",
    "Produced",
    "Step",
    "StepContext",
    "StepRetries",
    "get",
    "register",
    "registered",
]

P = TypeVar("P", bound=BaseModel)
I = TypeVar("I", bound=BaseModel)  # noqa: E741 - I for inputs, beside P for payload
P_co = TypeVar("P_co", bound=BaseModel, covariant=True)


class Output(Protocol):
    """An object being written: bytes go to a temporary file, and become visible when it is finished."""

    def write(self, data: bytes, /) -> None:
        """Append *data*."""
        ...

    def finish(self, *, needs: Iterable[str] = ()) -> Produced:
        """Publish the object, and return it with the digests of the objects that it *needs*. Atomic."""
        ...


class StepContext(Protocol):
    """What a step may touch. In a process that lost its attempt every call raises, and does nothing."""

    def output(self, media_type: str) -> AbstractContextManager[Output]:
        """Open a new object for writing; leaving the block without ``finish`` discards it."""
        ...

    def put(self, chunks: Iterable[bytes], media_type: str, *, needs: Iterable[str] = ()) -> Produced:
        """Write *chunks* as one object and return it. Idempotent, atomic."""
        ...

    def open(self, digest: str) -> AbstractContextManager[BinaryIO]:
        """Open an object for reading; its digest is checked when the last byte was read.

        Raises:
            ObjectMissing: the store doesn't have it.
            ObjectCorrupt: its bytes don't match; it was moved to quarantine.
        """
        ...

    def read(self, digest: str) -> bytes:
        """Return a small object whole, checked."""
        ...

    def folder(self, root: str) -> Any:
        """Return the path of a folder that sessions may be read from, by its name."""
        ...

    def cache_folder(self) -> Path | None:
        """Return a folder, which may be missing, for what saves work and may be gone at any time.

        ``None`` where nothing is to be taken from earlier jobs. It must not show in
        what a step produces.
        """
        ...

    def progress(self, done: int, total: int | None = None, unit: str | None = None) -> None:
        """Say how far the job is; persisted twice a second at most."""
        ...

    def once(self, key: str, effect: Callable[[str], Any]) -> Any:
        """Perform *effect* unless it was done before, and return its (JSON) result.

        *effect* gets an idempotency key to hand to the receiver. The intent is recorded before the call and
        the result after it; a crash between the two calls the receiver again with the same key.
        """
        ...

    def check(self) -> None:
        """Raise AttemptEnded if this attempt must stop; call it in long loops."""
        ...


class JobContext(Protocol[P_co]):
    """What a kind's ``main`` gets."""

    @property
    def job_id(self) -> str:
        """The job's id."""
        ...

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        ...

    @property
    def payload(self) -> P_co:
        """The payload."""
        ...

    async def step(self, step: Step[I], inputs: I, *, label: str | None = None) -> Produced:
        """Run *step*, or take what it produced for these inputs before.

        Args:
            step: the step, one of this kind's.
            inputs: everything that its output depends on.
            label: the step as people see it, unique within the job; the step's name where none is given.
        """
        ...

    async def steps(
        self, step: Step[I], chains: Sequence[Chain[I]], *, label: str, unit: str
    ) -> list[Produced]:
        """Run *step* many times, several at once, or take what it produced before; return each chain's last.

        Each call is a step of its own, with a memo and a checkpoint, as if it had been made by :meth:`step`;
        only Prefect sees many of them as one task run. In which order and process they run shows nowhere.
        Progress of the job is counted in the calls' sizes.

        Args:
            step: the step, one of this kind's.
            chains: calls that don't wait for one another.
            label: what many chains are called, ``{}`` standing for their number.
            unit: what the sizes of the calls count.
        """
        ...

    def read(self, digest: str) -> bytes:
        """Return a small object whole, checked."""
        ...

    def progress(self, done: int, total: int | None = None, unit: str | None = None) -> None:
        """Say how far the job is."""
        ...


@dataclass(frozen=True, slots=True)
class StepRetries:
    """How a step tries again within an attempt: short pauses, transient errors only.

    The defaults add up to less than five seconds; longer waits are the job's business, between attempts,
    where they hold no worker slot.
    """

    count: int = 3
    backoff: Backoff = field(default_factory=lambda: Backoff(first=0.3, factor=2.5, ceiling=2.0))


StepBody = Callable[[StepContext, I], Produced]


@dataclass(frozen=True, slots=True)
class Step(Generic[I]):
    """One step of a kind.

    Args:
        kind: the kind's name.
        name: unique within the kind.
        body: the function; it runs in a thread and may block.
        revision: part of the memo's key; raise it when the same inputs shall give another output.
        retries: how it tries again.
        per_job: its output is good for this job only, since it depends on the world and not just its inputs.
        apart: its calls may run in other processes, which import its module anew: of its context it uses
            ``output``, ``put``, ``open``, ``read``, ``cache_folder``, ``progress`` and ``check`` alone; its
            progress and the sizes of its calls are bytes that it reads.
        follow: makes the inputs of a call from what was given for it and what the call before produced; for
            the further calls of a chain.
    """

    kind: str
    name: str
    body: StepBody[I]
    revision: int = 1
    retries: StepRetries = field(default_factory=StepRetries)
    per_job: bool = False
    apart: bool = False
    follow: Callable[[I, Produced], I] | None = None

    def memo_key(self, job_id: str, inputs: I) -> MemoKey:
        """Return the key under which the output for *inputs* is remembered."""
        value: dict[str, Any] = {"inputs": inputs.model_dump(mode="json")}
        if self.per_job:
            value["job"] = job_id
        return MemoKey(self.kind, self.name, self.revision, digest_of(canonical_json(value)))


@dataclass(frozen=True, slots=True)
class Call(Generic[I]):
    """One call of a step among many.

    Args:
        label: the step as people see it, unique within the job.
        inputs: everything that its output depends on; in a chain, but for what the call before produced.
        size: its share of the job's progress.
    """

    label: str
    inputs: I
    size: int = 1


Chain = Sequence[Call[I]]
"""Calls of a step of which each needs what the one before produced."""

Main = Callable[[JobContext[P]], Awaitable[Produced]]

Summary = Callable[[Callable[[str], bytes], Produced], Mapping[str, int]]


class Kind(Generic[P]):
    """A kind of job.

    Args:
        name: unique; also the name of its Prefect flow.
        payload: a pydantic model; its fields are the parameters of the flow.
        flow: where the Prefect flow is, ``file.py:function``, in ``flows/`` or from the current folder.
        revision: part of every step's memo key, beside the step's own.
        max_attempts: how many attempts may fail before the job is dead.
        backoff: pauses between attempts.
        time_limit: seconds that one attempt may run.
        roots: gives pointer and name of each root in a payload; a request with an unknown one is refused.
        sessions: gives the ids of all sessions that a payload reads, or ``None`` where that can't be known.
            Where it isn't given nothing is known, and tokens for some sessions see no job of the kind.
        snapshots: gives pointer and digest of each snapshot in a payload; a request with one that its caller
            may not use is refused, and the job holds the others.
    """

    def __init__(
        self,
        name: str,
        *,
        payload: type[P],
        flow: str,
        revision: int = 1,
        max_attempts: int = 5,
        backoff: Backoff | None = None,
        time_limit: float = 3600.0,
        roots: Callable[[P], Iterable[tuple[str, str]]] = lambda _: (),
        sessions: Callable[[P], frozenset[str] | None] = lambda _: None,
        snapshots: Callable[[P], Iterable[tuple[str, str]]] = lambda _: (),
    ) -> None:
        self.name = name
        self.payload = payload
        self.flow = flow
        self.revision = revision
        self.max_attempts = max_attempts
        self.backoff = backoff if backoff is not None else Backoff(first=1.0, factor=3.0, ceiling=300.0)
        self.time_limit = time_limit
        self.steps: dict[str, Step[Any]] = {}
        self._main: Main[P] | None = None
        self._summary: Summary | None = None
        self.roots: Callable[[P], Iterable[tuple[str, str]]] = roots
        self.sessions: Callable[[P], frozenset[str] | None] = sessions
        self.snapshots: Callable[[P], Iterable[tuple[str, str]]] = snapshots

    @overload
    def step(self, body: StepBody[I]) -> Step[I]: ...

    @overload
    def step(
        self,
        *,
        revision: int = ...,
        retries: StepRetries | None = ...,
        per_job: bool = ...,
        apart: bool = ...,
        follow: Callable[[I, Produced], I] | None = ...,
    ) -> Callable[[StepBody[I]], Step[I]]: ...

    def step(
        self,
        body: StepBody[I] | None = None,
        *,
        revision: int = 1,
        retries: StepRetries | None = None,
        per_job: bool = False,
        apart: bool = False,
        follow: Callable[[I, Produced], I] | None = None,
    ) -> Step[I] | Callable[[StepBody[I]], Step[I]]:
        """Declare a step; use it as ``@kind.step`` or ``@kind.step(per_job=True)``."""

        def declare(function: StepBody[I]) -> Step[I]:
            name = getattr(function, "__name__", "step").strip("_").replace("_", "-")
            step = Step(
                kind=self.name,
                name=name,
                body=function,
                revision=self.revision * 1000 + revision,
                retries=retries if retries is not None else StepRetries(),
                per_job=per_job,
                apart=apart,
                follow=follow,
            )
            self.steps[name] = step
            return step

        return declare if body is None else declare(body)

    def main(self, function: Main[P]) -> Main[P]:
        """Declare the function that calls the steps."""
        self._main = function
        return function

    def summarize(self, function: Summary) -> Summary:
        """Declare how a result is told in numbers to people who look at its run in Prefect; optional.

        The function gets what reads a small object by its digest, and the result; it returns numbers by what
        they count, in the order in which they are shown. Numbers alone, under the kind's own names: what a
        session says has no place in Prefect. It is called after the result was committed, in any process or
        never, and has a second; what it raises is logged. Don't parse results that are large.
        """
        self._summary = function
        return function

    def summary_of(self, read: Callable[[str], bytes], produced: Produced) -> dict[str, int]:
        """Return the result *produced* in numbers; empty where the kind has no summary."""
        return {} if self._summary is None else dict(self._summary(read, produced))

    async def run(self, job: JobContext[P]) -> Produced:
        """Run the kind's ``main``."""
        if self._main is None:
            raise TypeError(f"kind {self.name!r} declares no main")
        return await self._main(job)

    def parse(self, payload: Mapping[str, Any]) -> P:
        """Return *payload* as its model.

        Raises:
            PayloadInvalid: it doesn't fit, or holds what can't be stored; ``data['fields']`` has a pointer
                and a message for each field.
        """
        faults = list(unstorable(dict(payload)))
        try:
            if not faults:
                return self.payload.model_validate(dict(payload))
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            faults = [(item["loc"], item["msg"]) for item in found]
        fields = [{"pointer": _pointer(place), "message": fault} for place, fault in faults]
        told = "; ".join(f"{item['pointer']}: {item['message']}" for item in fields)
        raise PayloadInvalid(f"The payload of kind {self.name!r} is off: {told}.", fields=fields)


def _pointer(path: tuple[int | str, ...]) -> str:
    """Return *path* as a JSON pointer (RFC 6901)."""
    return "/" + "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in path)


_REGISTRY: Final[dict[str, Kind[Any]]] = {}


def register(kind: Kind[P]) -> Kind[P]:
    """Make *kind* known by its name and return it. Registering the same object again changes nothing.

    Raises:
        ValueError: another kind has this name.
    """
    if _REGISTRY.setdefault(kind.name, kind) is not kind:
        raise ValueError(f"there is a job kind {kind.name!r} already")
    return kind


def get(name: str) -> Kind[Any]:
    """Return the kind of this name.

    Raises:
        KindUnknown: no such kind is registered.
    """
    if name not in _REGISTRY:
        raise KindUnknown(
            f"There is no job kind {name!r}.",
            hint="Registered kinds: " + (", ".join(sorted(_REGISTRY)) or "none") + ".",
        )
    return _REGISTRY[name]


def registered() -> list[Kind[Any]]:
    """Return every kind that is registered, by name."""
    return [_REGISTRY[name] for name in sorted(_REGISTRY)]
