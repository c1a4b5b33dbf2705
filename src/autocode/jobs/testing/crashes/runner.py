"""One case after the other: a job is stopped at its point, the fault is done, and what is left is judged."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil

from autocode.jobs.errors import JobsError, UsageError
from autocode.jobs.testing.crashes.cases import Case, Fault
from autocode.jobs.testing.crashes.court import Court, Hearing
from autocode.jobs.testing.crashes.faults import strike
from autocode.jobs.testing.crashes.reference import check_steady, in_peace
from autocode.jobs.testing.crashes.rules import RAN
from autocode.jobs.testing.crashes.service import NotInTime, OwnService, until
from autocode.jobs.testing.crashes.services import Services
from autocode.jobs.testing.crashes.undisturbed import Undisturbed
from autocode.jobs.testing.crashes.violations import Violation
from autocode.jobs.testing.crashes.witness import Effect, Witness
from autocode.jobs.testing.crashes.workloads import Place, Prepared, Workload

__all__ = ["Matrix", "Times", "Verdict"]

_DONE_SECONDS: Final = 150.0
"""How long a job may take after its fault; far above what a busy machine needs."""

_DISK_ACTIONS: Final = {Fault.SLOW_DISK: "slow", Fault.FULL_DISK: "full"}


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds after the fault, from persisted time-stamps; ``None`` where it didn't happen or isn't known.

    Args:
        notice: the struck attempt was ended.
        next_attempt: another one began.
        complete: the job was complete.
    """

    notice: float | None = None
    next_attempt: float | None = None
    complete: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a case.

    Args:
        case: the case.
        violations: what is wrong; none: the job came through, if the case was judged.
        times: how long it took after the fault.
        reached: whether the job came to the crash point; otherwise nothing was done to it.
        attempts: how many attempts the job had.
        redelivered: how often an effect was asked for again under the key of the first time.
        seconds: how long the case took in all.
        unjudged: why the case came to no end in its time, and proves nothing either way; ``None``: it did.
    """

    case: Case
    violations: tuple[Violation, ...]
    times: Times
    reached: bool
    attempts: int
    redelivered: int
    seconds: float
    unjudged: str | None = None


@dataclass(frozen=True, slots=True)
class _Round:
    case: Case
    job_id: str
    service: OwnService
    prepared: Prepared
    undisturbed: Undisturbed
    effects: Sequence[Effect]
    workload: Workload


class Matrix:
    """A service for the cases, as a context manager; it is started once and survives what is done to it.

    Not to be used from a running event loop.

    Args:
        workloads: the kinds whose jobs are disturbed.
        keep: leave the home where it is, to be looked at.
    """

    def __init__(self, workloads: Sequence[Workload], *, keep: bool = False) -> None:
        self._workloads = {workload.name: workload for workload in workloads}
        self._stack = ExitStack()
        self._witness = Witness()
        modules = dict.fromkeys(name for workload in workloads for name in workload.modules)
        self._services = Services(tuple(modules), keep=keep)
        self._count = 0
        self._steady: set[str] = set()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._witness)
            stack.enter_context(self._services)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def homes(self) -> tuple[Path, ...]:
        """The data folders of the services that run now."""
        return self._services.homes

    def run(self, case: Case) -> Verdict:
        """Run one case.

        Where something goes wrong on the way, as with a job that isn't over in two and a half minutes, nobody
        knows whether the job is lost or the machine slow: the case isn't judged, and its home is kept.

        Raises:
            UsageError: the case's kind is none of the workloads', or its jobs take too long by themselves.
        """
        if case.kind not in self._workloads:
            raise UsageError(f"There is no workload for the kind {case.kind!r}.")
        began = time.monotonic()
        self._count += 1
        services = self._services
        service: OwnService | None = None
        try:
            service, court = services.proxied() if case.fault is Fault.CUT_OFF else services.plain()
            this = self._prepared(case, service, began)
            return self._disturb(this, court, began)
        except UsageError:
            raise
        except (JobsError, OSError, psutil.Error) as error:
            # the next case gets a service that nothing was done to
            if service is not None:
                services.discard(service)
            told = str(error) if isinstance(error, NotInTime) else f"{type(error).__name__}: {error}"
            return Verdict(case, (), Times(), True, 0, 0, time.monotonic() - began, told)

    def _prepared(self, case: Case, service: OwnService, began: float) -> _Round:
        workload = self._workloads[case.kind]
        # one service after another may see the same number
        job_id = f"case-{self._count}-{int(began)}"
        folder = service.folder / "cases" / job_id
        folder.mkdir(parents=True)
        place = Place(job_id, self._count, folder, self._witness.url_of(job_id), service.home.add_root)
        prepared = workload.prepare(place)
        if workload.name not in self._steady:
            check_steady(workload, prepared, folder, job_id)
            self._clear(job_id, folder)
            self._steady.add(workload.name)
        undisturbed = in_peace(workload, prepared, folder / "undisturbed", job_id)
        effects = [*self._witness.effects(job_id), *_ran(folder)]
        self._clear(job_id, folder)
        return _Round(case, job_id, service, prepared, undisturbed, effects, workload)

    def _clear(self, job_id: str, folder: Path) -> None:
        """Forget what was told of a job by those that nobody disturbed."""
        self._witness.forget(job_id)
        for left in folder.glob("witness*"):
            left.unlink()

    def _disturb(self, this: _Round, court: Court, began: float) -> Verdict:
        service, job_id = this.service, this.job_id
        court.open(job_id)
        _order(service, this.case)
        asking = _Asking(service, this.case.kind, this.prepared.payload, job_id)
        try:
            struck = _struck(service, asking, lambda: court.is_over(job_id))
            hearing = court.begin(job_id, this.undisturbed, this.effects)
            with ExitStack() as fault:
                if struck is not None:
                    _strike(this, struck, fault, court, hearing)
                until(
                    lambda: court.is_over(job_id),
                    within=_DONE_SECONDS,
                    what="the job was over",
                    told=service.told,
                )
        finally:
            service.order.unlink(missing_ok=True)
        asking.join()
        service.ready()
        folder = service.folder / "cases" / job_id
        found = court.verdict(this.case, hearing, lambda: [*self._witness.effects(job_id), *_ran(folder)])
        self._witness.forget(job_id)
        return Verdict(
            case=this.case,
            violations=found.violations,
            times=Times() if struck is None else Times(*found.times),
            reached=struck is not None,
            attempts=found.attempts,
            redelivered=found.redelivered,
            seconds=time.monotonic() - began,
        )


def _ran(folder: Path) -> list[Effect]:
    """Return what a job's steps told a file, each line a step that ran, as the witness tells of effects."""
    counted: Counter[str] = Counter()
    for path in folder.glob("witness*"):
        counted.update(path.read_text("utf-8").splitlines())
    return [Effect(f"{RAN}{line}", "", None, times, times) for line, times in counted.items()]


class _Asking:
    """Asks for the job in a thread: the API itself may be what is stopped, or killed."""

    def __init__(self, service: OwnService, kind: str, payload: Any, job_id: str) -> None:
        self._service = service
        self._asked = (kind, payload, job_id)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._ask, name="asking", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        kind, payload, job_id = self._asked
        try:
            with self._service.client(patience=_DONE_SECONDS) as client:
                client.enqueue(kind, payload, job_id=job_id)
        except (JobsError, OSError) as error:
            self.error = error

    def join(self) -> None:
        """Wait until the answer is there.

        Raises:
            NotInTime: it doesn't come, or the job was refused.
        """
        self._thread.join(_DONE_SECONDS)
        if self._thread.is_alive() or self.error is not None:
            raise NotInTime(f"The job was asked for, and the answer was: {self.error}")


def _order(service: OwnService, case: Case) -> None:
    """Arm the case's point in every process of the service."""
    action = _DISK_ACTIONS.get(case.fault, "pause")
    for fired in service.order.parent.glob(f"{service.order.name}.*"):
        fired.unlink()
    draft = service.order.with_suffix(".draft")
    draft.write_text(f"{case.point}:{case.nth}={action}", "utf-8")
    draft.replace(service.order)


def _struck(service: OwnService, asking: _Asking, is_over: Callable[[], bool]) -> int | None:
    """Wait until a process came to the point, and return it; ``None``: the job is over without that."""
    pattern = f"{service.order.name}.fired-*"

    def fired() -> list[Path]:
        return list(service.order.parent.glob(pattern))

    until(
        lambda: fired() != [] or asking.error is not None or is_over(),
        within=_DONE_SECONDS,
        what="the job came to its crash point",
        told=service.told,
    )
    found = fired()
    return int(found[0].name.rpartition("-")[2]) if found else None


def _strike(this: _Round, struck: int, fault: ExitStack, court: Court, hearing: Hearing) -> None:
    """Do the fault, once the process has really stopped."""
    if this.case.fault in _DISK_ACTIONS:
        # done by the process itself
        return
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(struck)
        until(lambda: process.status() == psutil.STATUS_STOPPED, within=30, what="the process had stopped")
    strike(
        this.service,
        this.case,
        struck,
        fault,
        given_up=lambda: court.gave_up(hearing),
        replaced=lambda: court.went_on(hearing),
        made=lambda: court.made(hearing, whole=this.case.point == "result.before"),
    )
