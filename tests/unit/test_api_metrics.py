"""``/metrics``: what Prometheus reads is what the ledger has, and nothing where the ledger is away."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from api_world import NOOP, Api, complete, kill, noop, opened
from autocode.jobs import locks
from autocode.jobs.api.service import Service
from autocode.jobs.errors import LedgerUnavailable
from autocode.jobs.ledger import access
from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.figures import Figures, figures
from ledger_world import begin, look

pytest_plugins = ["fixtures_api"]

Figure = tuple[str, frozenset[tuple[str, str]]]


def read(answer: httpx.Response) -> dict[Figure, float]:
    """Return every sample of an answer by name and labels."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def figure(found: dict[Figure, float], name: str, **labels: str) -> float:
    """Return one sample."""
    return found[f"autocode_jobs_{name}", frozenset(labels.items())]


def names(found: dict[Figure, float]) -> set[str]:
    """Return the names of the samples, without their prefix."""
    return {name.removeprefix("autocode_jobs_") for name, _ in found}


def populate(api: Api) -> None:
    """Let there be a job in each state but retrying."""
    for job_id in ("dead", "complete", "running", "queued"):
        api.post("/v1/jobs", noop(job_id))
        look(api.db, job_id)
    kill(api.db, "dead")
    complete(api.db, begin(api.db, "complete"))
    begin(api.db, "running")
    look(api.db, "running")


def test_jobs_are_counted_as_the_counts_have_them(api: Api) -> None:
    """Each state of the contract has the number that ``/v1/counts`` has, and each reason of the dead."""
    populate(api)
    counts = api.get("/v1/counts").json()
    found = read(api.get("/metrics"))
    reasons = counts.pop("dead_by_reason")
    states = {name: count for name, count in counts.items() if isinstance(count, int)}
    assert states == {"queued": 1, "running": 1, "retrying": 0, "complete": 1, "dead": 1}
    assert {state: figure(found, "jobs", kind=NOOP, status=state) for state in states} == states
    assert {each: figure(found, "dead_jobs", kind=NOOP, reason=each) for each in reasons} == reasons


def test_attempts_and_events_are_counted(api: Api) -> None:
    """What began, how it ended, who is busy and what was told are figures of their own."""
    populate(api)
    found = read(api.get("/metrics"))
    assert figure(found, "attempts_begun_total", kind=NOOP) == 3
    assert figure(found, "attempts_ended_total", kind=NOOP, outcome="permanent") == 1
    assert figure(found, "attempts_ended_total", kind=NOOP, outcome="completed") == 1
    assert figure(found, "rescues_total", kind=NOOP) == 0
    assert [value for (name, _), value in found.items() if name.endswith("worker_slots_busy")] == [1]
    page = api.get("/v1/jobs").json()
    assert figure(found, "events_told_total") == int(page["event_cursor"].rpartition(":")[2])
    assert figure(found, "event_lag_seconds") == 0
    assert figure(found, "notifications", state="dead") == 0
    assert figure(found, "ledger_up") == 1


def test_a_fact_that_nobody_told_of_is_lag(api: Api) -> None:
    """A job that was accepted while no reconciler runs counts as untold."""
    api.post("/v1/jobs", noop("job"))
    found = read(api.get("/metrics"))
    assert figure(found, "events_untold") == 1
    assert figure(found, "event_lag_seconds") >= 0
    assert figure(found, "jobs", kind=NOOP, status="queued") == 1


def test_figures_are_left_out_while_the_ledger_is_away(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is shown as zero, and nothing of a moment ago, where it isn't known."""
    populate(api)
    read(api.get("/metrics"))
    assert api.service.figures is not None
    api.service.figures = None

    def away(_db: Database) -> None:
        raise LedgerUnavailable("The database is away.")

    monkeypatch.setattr("autocode.jobs.api.metrics.figures", away)
    found = read(api.get("/metrics"))
    assert figure(found, "ledger_up") == 0
    assert {"jobs", "dead_jobs", "events_told_total", "queue_age_seconds"}.isdisjoint(names(found))
    assert {"http_requests_total", "event_followers"} <= names(found)


def test_who_was_let_in_before_is_told_that_the_ledger_is_away(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that worked before learns it, though nobody can be known then; another one doesn't."""
    populate(api)
    read(api.get("/metrics", token=Role.VIEWER))

    def away(*_: object) -> None:
        raise LedgerUnavailable("The database is away.")

    monkeypatch.setattr(access, "verify", away)
    monkeypatch.setattr("autocode.jobs.api.metrics._KEPT_SECONDS", 0.0)
    found = read(api.get("/metrics", token=Role.VIEWER))

    assert figure(found, "ledger_up") == 0
    assert "jobs" not in names(found)
    assert api.get("/metrics", token=Role.ADMIN).status_code == 503
    assert api.get("/metrics", token=None).status_code == 401
    assert api.get("/v1/counts", token=Role.VIEWER).status_code == 503


def test_that_the_ledger_is_away_is_found_out_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who ask within the same second aren't kept waiting for it one after the other."""
    asked: list[Database] = []

    def away(db: Database) -> None:
        asked.append(db)
        raise LedgerUnavailable("The database is away.")

    monkeypatch.setattr("autocode.jobs.api.metrics.figures", away)
    monkeypatch.setattr("autocode.jobs.api.metrics._KEPT_SECONDS", 3600.0)
    for _ in range(3):
        assert figure(read(api.get("/metrics")), "ledger_up") == 0
    assert len(asked) == 1


def test_a_storm_of_scrapes_is_one_read(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks again within a second is told what was counted a moment ago."""
    reads: list[Database] = []

    def counted(db: Database) -> Figures:
        reads.append(db)
        return figures(db)

    monkeypatch.setattr("autocode.jobs.api.metrics.figures", counted)
    monkeypatch.setattr("autocode.jobs.api.metrics._KEPT_SECONDS", 3600.0)
    for _ in range(5):
        read(api.get("/metrics"))
    assert len(reads) == 1


def test_answers_are_counted_by_route_and_never_by_path(api: Api) -> None:
    """Paths that nobody declared are one series, however many of them are asked for."""
    for number in range(20):
        api.get(f"/nowhere/{number}")
        api.get(f"/v1/jobs/unheard-of-{number}")
    found = read(api.get("/metrics"))
    labels = {"method": "GET", "status": "404"}
    assert figure(found, "http_requests_total", route="/v1/jobs/{job_id}", **labels) == 20
    assert figure(found, "http_requests_total", route="none", **labels) == 20
    assert figure(found, "http_request_seconds_count", route="none", method="GET") == 20
    assert "unheard-of" not in api.get("/metrics").text


def test_refusals_without_a_known_caller_are_counted(api: Api) -> None:
    """A request and a socket without a token that works are one each."""
    api.get("/v1/jobs", token=None)
    api.knock("/v1/events", token=None)
    assert figure(read(api.get("/metrics")), "requests_denied_total", type="token-invalid") == 2


def test_slots_are_those_of_living_workers(api: Api) -> None:
    """A record without the lock of a living worker says nothing."""
    (api.home.run / "worker.json").write_text(json.dumps({"pid": 1, "slots": 3}), "utf-8")
    (api.home.run / "worker-gone.json").write_text(json.dumps({"pid": 1, "slots": 8}), "utf-8")
    (api.home.run / "worker-gone.lock").touch()
    with locks.owned(api.home.run / "worker.lock", within=1.0):
        found = read(api.get("/metrics"))
    workers = {labels: value for (name, labels), value in found.items() if name.endswith("worker_slots")}
    assert workers == {frozenset({("worker", "worker")}): 3}


def test_a_token_for_some_sessions_reads_no_figures(api: Api) -> None:
    """The figures are about all sessions, so who may see some only is refused."""
    made = access.create_token(api.db, name="bound", role=Role.VIEWER, sessions=["mine"])
    assert api.get("/metrics", token=made.text).status_code == 403
    assert api.get("/metrics", token=Role.VIEWER).status_code == 200


def test_two_applications_count_apart(sqlite_ledger: Database, tmp_path: Path, api: Api) -> None:
    """Nothing is counted for the process as a whole."""
    api.get("/livez")
    with opened(sqlite_ledger, tmp_path / "other") as other:
        service: Service = other.service
        found = read(other.get("/metrics"))
    assert service.traffic is not api.service.traffic
    assert "http_requests_total" not in names(found)


def test_the_page_names_every_figure_and_no_other(api: Api) -> None:
    """What ``docs/howto-monitor.md`` explains is what is there."""
    populate(api)
    (api.home.run / "worker.json").write_text(json.dumps({"pid": 1, "slots": 3}), "utf-8")
    api.get("/v1/jobs", token=None)
    with locks.owned(api.home.run / "worker.lock", within=1.0):
        text = api.get("/metrics").text
    shown = {family.name for family in text_string_to_metric_families(text)}
    page = Path(__file__).parents[2] / "docs" / "howto-monitor.md"
    rows = [line for line in page.read_text("utf-8").splitlines() if line.startswith("| `")]
    told = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
    assert {f"autocode_jobs_{name.removesuffix('_total')}" for name in told} == {
        name.removesuffix("_created") for name in shown
    }
