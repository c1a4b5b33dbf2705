"""``GET /metrics``: figures for Prometheus. What isn't known is left out, never shown as zero."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Depends
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response

from autocode.jobs import __version__
from autocode.jobs.api.access import authenticate, require, require_all, token_of
from autocode.jobs.api.service import Calls, Service, Shared
from autocode.jobs.api.threads import RequestCalls
from autocode.jobs.canonical import digest_of
from autocode.jobs.engine.announce import slots
from autocode.jobs.errors import JobsError, LedgerUnavailable
from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.figures import Figures, figures

__all__ = ["router"]

router: Final = APIRouter(tags=["health"])

_KEPT_SECONDS: Final = 1.0
"""How old figures may be that are shown once more: who asks too often isn't the ledger's to serve."""

_SCRAPERS: Final = 16
"""How many callers are remembered who were let in."""

_PREFIX: Final = "autocode_jobs"


async def _scraper(connection: HTTPConnection, service: Shared, calls: Calls) -> bool:
    """Let a caller in who may read the figures; return whether the ledger, which says who may, answers.

    While it doesn't, who was let in before is let in again: there is nothing to see then but what this
    process counts, and that the ledger is away is the very thing to be told.
    """
    try:
        caller = await authenticate(connection, service, calls)
    except LedgerUnavailable:
        if _digest(connection, service) not in service.scrapers:
            raise
        return False
    require(caller, Role.VIEWER)
    require_all(caller)
    service.scrapers[_digest(connection, service)] = None
    while len(service.scrapers) > _SCRAPERS:
        del service.scrapers[next(iter(service.scrapers))]
    return True


def _digest(connection: HTTPConnection, service: Service) -> str:
    return digest_of((token_of(connection, service) or "").encode("utf-8", "surrogatepass"))


Scraper = Annotated[bool, Depends(_scraper)]


@router.get(
    "/metrics",
    response_model=None,
    response_class=PlainTextResponse,
    responses={200: {"description": "the text format of Prometheus"}},
)
async def metrics(service: Shared, calls: Calls, answers: Scraper) -> Response:
    """Read the figures of the whole service, in the text format of Prometheus; see the page on monitoring.

    The figures about jobs are counted from the ledger, all of them at one moment at most a second ago. While
    the ledger doesn't answer they are left out, and `autocode_jobs_ledger_up` is 0.
    """
    found = await _figures(service, calls) if answers else None
    here = await service.files(slots, service.system.home)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Scrape(service, found, here))
    told = generate_latest(registry) + generate_latest(service.traffic.registry)
    return Response(told, media_type=CONTENT_TYPE_LATEST)


async def _figures(service: Service, calls: RequestCalls) -> Figures | None:
    """Return what the ledger says now, or said within the last second; ``None``: it doesn't answer."""
    async with service.scraping:
        now = asyncio.get_running_loop().time()
        if service.figures is not None and now - service.figures[0] < _KEPT_SECONDS:
            return service.figures[1]
        found = None
        with suppress(JobsError):
            found = await calls(figures, service.db)
        # that it doesn't answer is kept as well: those who wait for the lock needn't all find out
        service.figures = (asyncio.get_running_loop().time(), found)
        return found


@dataclass(eq=False, slots=True)
class _Scrape(Collector):
    """One answer.

    Args:
        service: what this process counts by itself.
        found: the ledger's figures; ``None``: it doesn't answer.
        here: how many runs at once each worker takes that lives on this machine.
    """

    service: Service
    found: Figures | None
    here: Mapping[str, int]

    def collect(self) -> Iterator[Metric]:
        """Give every metric of which something is known."""
        yield _gauge("info", "The version that answers; always 1.", [((__version__,), 1)], "version")
        yield _gauge("ledger_up", "Whether the ledger's database answered this scrape.", _one(self.found))
        if self.found is not None:
            yield from _jobs(self.found)
            yield from _attempts(self.found)
            yield from _events(self.found)
        yield _gauge(
            "worker_slots",
            "Runs at once that a living worker takes; of this machine's workers of this data folder alone.",
            [((worker,), count) for worker, count in sorted(self.here.items())],
            "worker",
        )
        yield _gauge(
            "event_followers",
            "Sockets that follow events through this process.",
            [((), self.service.hub.following)],
        )
        yield _counter(
            "requests_denied",
            "Requests and sockets that this process refused whose caller isn't known, or that were too many.",
            [((type_,), count) for type_, count in sorted(self.service.denied.items())],
            "type",
        )


Samples = Sequence[tuple[tuple[str, ...], float]]


def _jobs(found: Figures) -> Iterator[Metric]:
    yield _gauge(
        "jobs",
        "Jobs in each state of the contract.",
        [((kind, status.value), count) for (kind, status), count in found.jobs.items()],
        "kind",
        "status",
    )
    yield _gauge(
        "dead_jobs",
        "Dead jobs by reason; those that weren't cancelled are the dead letters.",
        [((kind, reason.value), count) for (kind, reason), count in found.dead.items()],
        "kind",
        "reason",
    )
    kinds = sorted({kind for kind, _ in found.jobs})
    yield _gauge(
        "queue_age_seconds",
        "How long the oldest queued job has waited for its first attempt; 0 where none is queued.",
        [((kind,), _age(found.at, found.queued_since.get(kind))) for kind in kinds],
        "kind",
    )
    yield _gauge(
        "retry_overdue_seconds",
        "How long the next attempt of a retrying job has been due at most; 0 where none is overdue.",
        [((kind,), _age(found.at, found.due_since.get(kind))) for kind in kinds],
        "kind",
    )


def _attempts(found: Figures) -> Iterator[Metric]:
    yield _counter(
        "attempts_begun",
        "Attempts that have begun, of the jobs that are kept.",
        [((kind,), count) for kind, count in sorted(found.begun.items())],
        "kind",
    )
    yield _counter(
        "attempts_ended",
        "Attempts that have ended, by how, of the jobs that are kept.",
        [((kind, outcome.value), count) for (kind, outcome), count in sorted(found.ended.items())],
        "kind",
        "outcome",
    )
    rescued: dict[str, int] = dict.fromkeys(sorted(found.begun), 0)
    for (kind, outcome), count in found.ended.items():
        if outcome.killed:
            rescued[kind] = rescued.get(kind, 0) + count
    yield _counter(
        "rescues",
        "Attempts whose process died or fell silent, and that were ended for it.",
        [((kind,), count) for kind, count in rescued.items()],
        "kind",
    )
    yield _gauge(
        "worker_slots_busy",
        "Attempts that have begun and not ended, by the machine of their process.",
        [((host,), count) for host, count in sorted(found.busy.items())],
        "host",
    )


def _events(found: Figures) -> Iterator[Metric]:
    yield _counter("events_told", "Events that were told: the newest cursor.", [((), found.cursor)])
    yield _gauge(
        "events_untold", "Facts that are committed and that no event tells of yet.", [((), found.untold)]
    )
    yield _gauge(
        "event_lag_seconds",
        "How long the oldest of these has waited; 0 where there is none.",
        [((), _age(found.at, found.untold_since))],
    )
    yield _gauge(
        "notifications",
        "Webhooks and e-mails in each state; `dead` ones can be replayed.",
        [((state.value,), count) for state, count in found.deliveries.items()],
        "state",
    )
    yield _counter(
        "leader_renewals",
        "How often who leads has shown that it lives; a counter that stands still is one that doesn't.",
        [((role,), renewals) for role, (_, renewals) in sorted(found.leaders.items())],
        "role",
    )
    yield _gauge(
        "leader_term",
        "How often the lead has passed on.",
        [((role,), term) for role, (term, _) in sorted(found.leaders.items())],
        "role",
    )


def _age(now: datetime, since: datetime | None) -> float:
    # a clock that was set back makes no negative age
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())


def _one(found: Figures | None) -> Samples:
    return [((), 0 if found is None else 1)]


def _gauge(name: str, told: str, samples: Samples, *labels: str) -> GaugeMetricFamily:
    made = GaugeMetricFamily(f"{_PREFIX}_{name}", told, labels=labels)
    for values, number in samples:
        made.add_metric(values, number)
    return made


def _counter(name: str, told: str, samples: Samples, *labels: str) -> CounterMetricFamily:
    made = CounterMetricFamily(f"{_PREFIX}_{name}", told, labels=labels)
    for values, number in samples:
        made.add_metric(values, number)
    return made
