"""``autocode-jobs up``: everything gets ready, comes back when it is killed, and ends in order."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from autocode.jobs.testing.samples import write_samples
from notify_world import receiving, verified
from postgres_world import temporary_home
from service_command import PARTS, Service, until

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def shared() -> Iterator[Service]:
    """Give a service that the module's tests share, and leave nothing of it, running or lying about."""
    with temporary_home() as home:
        data = os.environ["AUTOCODE_POSTGRES_FOLDER"]
        environ = {"AUTOCODE_POSTGRES_FOLDER": data, "AUTOCODE_NOTIFY_ALLOW": "127.0.0.1"}
        service = Service(home.path, environ=environ)
        yield service
        service.close()


@pytest.fixture
def service(shared: Service) -> Service:
    """Give the shared service, with every part ready."""
    shared.ensure()
    return shared


def files(home: Path) -> dict[Path, int]:
    """Return what lies in the home and when each was last written, but for what living parts write."""
    living = ("postgres", "logs", "prefect", "holders")
    found = {}
    for path in home.rglob("*"):
        if not set(path.relative_to(home).parts) & set(living):
            found[path] = path.stat().st_mtime_ns
    return found


def test_an_empty_home_becomes_a_service(service: Service) -> None:
    """Every part is ready, says so with its process, and the API answers where it says."""
    health = {part: service.health(part) for part in PARTS}

    assert {part["state"] for part in health.values()} == {"ready"}
    assert all(isinstance(part["pid"], int) for part in health.values())
    assert httpx.get(f"{service.url()}/livez", timeout=10).status_code == 200
    assert httpx.get(f"{service.url()}/v1/jobs", timeout=10).status_code == 401


def test_whoever_subscribed_is_told(service: Service, tmp_path: Path) -> None:
    """A receiver gets the test that a person sends, and then the end of a job, once and signed."""
    sessions = tmp_path / "sessions"
    write_samples(sessions, seed=1, sessions=2, megabytes=0.01)
    with receiving() as receiver:
        added = service.run("notify", "add", "--webhook", receiver.url, "--json")
        made = json.loads(added.stdout)
        tested = service.run("notify", "test", made["subscription_id"])
        exported = service.run("export", str(sessions), "-o", str(tmp_path / "out"), "--json")
        until(lambda: len(receiver.got) == 2, within=30, told=service.told)
        service.run("notify", "remove", made["subscription_id"])

    assert tested.returncode == 0, tested.stderr
    assert exported.returncode == 0, exported.stderr
    test, end = (json.loads(got.body) for got in receiver.got)
    assert (test["type"], end["type"]) == ("job.test", "job.complete")
    assert end["data"]["result"]["digest"] == json.loads(exported.stdout)["result"]["digest"]
    for got in receiver.got:
        at = int(got.headers["webhook-timestamp"])
        assert verified(made["secret"], got.headers, got.body, now=at)
    explained = service.run("jobs", "explain", end["subject"]).stdout
    assert f"webhook to http://127.0.0.1:{receiver.port}: delivered" in explained


def test_a_second_up_is_refused_and_touches_nothing(service: Service) -> None:
    """It names the process and the address of the first, and ends with status 1."""
    before = files(service.home)

    second = service.run("up", "--port", "0")

    assert second.returncode == 1
    assert f"already runs at {service.url()}, as process {service.pid}." in second.stderr
    assert f"kill -TERM {service.pid}\n" in second.stderr
    assert files(service.home) == before


@pytest.mark.long
def test_a_login_link_opens_one_browser_session(service: Service) -> None:
    """The link that the command prints gets a browser in, once, and no log holds its code."""
    printed = service.run("login")
    link = printed.stdout.strip()
    code = re.fullmatch(re.escape(service.url()) + r"/login\?code=(\w+)", link)
    assert code is not None, printed

    statuses = [
        httpx.post(
            f"{service.url()}/login",
            content=f"code={code[1]}",
            headers={"Origin": service.url(), "Content-Type": "application/x-www-form-urlencoded"},
            timeout=10,
        ).status_code
        for _ in range(2)
    ]

    assert statuses == [303, 401]
    assert not [path for path in service.home.glob("logs/*") if code[1] in path.read_text("utf-8", "replace")]


# the others are killed, with jobs on their way, in test_service_kills
@pytest.mark.long
@pytest.mark.parametrize("part", ["postgres", "api"])
def test_a_part_that_is_killed_comes_back(service: Service, part: str) -> None:
    """After SIGKILL the part is ready again as another process, at its address, and the others stay."""
    before = {name: service.health(name) for name in PARTS}

    os.kill(before[part]["pid"], signal.SIGKILL)
    until(
        lambda: (
            service.health(part)["restarts"] > before[part]["restarts"]
            and service.health(part)["state"] == "ready"
        ),
        within=120,
        told=service.told,
    )

    after = {name: service.health(name) for name in PARTS}
    assert after[part]["pid"] != before[part]["pid"]
    assert after[part]["url"] == before[part]["url"]
    assert {name: after[name]["restarts"] - before[name]["restarts"] for name in PARTS} == {
        name: int(name == part) for name in PARTS
    }


@pytest.mark.long
def test_after_a_killed_supervisor_the_next_up_works(service: Service) -> None:
    """When the next one is ready, no earlier part lives; PostgreSQL and Prefect may have been taken over.

    A terminal shows how the parts are, and a link to log in, whose code is in no file.
    """
    before = {service.pid, *(service.health(part)["pid"] for part in ("api", "reconcile", "worker"))}

    service.signal(signal.SIGKILL)
    service.end()
    service.start_on_terminal()

    assert not before & set(service.processes())
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", service.shown)
    assert all(re.search(rf"{part} +ready in [0-9.]+ s", shown) for part in PARTS), shown
    code = re.search(r"/login\?code=(\w+)", shown)
    assert code is not None
    assert not [path for path in service.home.glob("logs/*") if code[1] in path.read_text("utf-8", "replace")]


def test_sigterm_stops_everything_in_order(service: Service) -> None:
    """The worker goes first and PostgreSQL last, the status is 0, and no process is left."""
    log = service.home / "logs" / "up.log"
    before = log.stat().st_size

    service.signal(signal.SIGTERM)
    status = service.end()

    said = log.read_text("utf-8")[before:]
    assert status == 0, said
    assert re.findall(r" (\w+) is stopped", said) == list(reversed(PARTS))
    until(lambda: not service.processes(), within=20, told=lambda: str(service.processes()))


def test_the_service_goes_on_when_nobody_reads_its_screen(service: Service) -> None:
    """As in ``up | head -1``: it gets ready, its log says that it is not seen, and it stops in order."""
    service.stop()

    service.start_unread()

    assert httpx.get(f"{service.recorded()['url']}/livez", timeout=10).status_code == 200
    service.signal(signal.SIGTERM)
    assert service.end() == 0
    assert "nobody can read what is shown" in (service.home / "logs" / "up.log").read_text("utf-8")
