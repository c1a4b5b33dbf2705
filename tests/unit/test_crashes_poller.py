"""The poller: it looks through outages, and each lie of a service is noted as what it is."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from autocode.jobs.resource import Job
from autocode.jobs.store import LocalStore, put_bytes
from autocode.jobs.testing.crashes.poller import Look, Poller

JOB = "job-1"
AT = "2025-03-01T12:00:00.000Z"

Answer = tuple[int, dict[str, str], bytes]


def resource(status: str = "running", rev: int = 2, attempts: int = 1, **changes: Any) -> dict[str, Any]:
    """Return a job as the service shows it."""
    return {
        "job_id": JOB,
        "kind": "noop",
        "session_id": None,
        "status": status,
        "reason": None,
        "note": None,
        "attempts": attempts,
        "max_attempts": 3,
        "next_attempt_at": None,
        "checkpoint": None,
        "history": [],
        "progress": None,
        "result": None,
        "error": None,
        "times": dict.fromkeys(["file_saved_at", "started_at", "checkpoint_at", "completed_at"])
        | {"enqueued_at": AT},
        "oldest_unsearchable_at": None,
        "possible_double_run": False,
        "rev": rev,
        "as_of": AT,
        "links": {"self": f"/v1/jobs/{JOB}"},
    } | changes


def job(status: str = "running", rev: int = 2, attempts: int = 1, **changes: Any) -> Answer:
    """Return the answer that shows a job."""
    return 200, {}, json.dumps(resource(status, rev, attempts, **changes)).encode()


def result(digest: str) -> dict[str, Any]:
    """Return a result as the service shows it."""
    return {"digest": digest, "size": 2, "media_type": "text/plain", "href": "/r", "expired_at": None}


def progress(done: int | None, total: int | None) -> dict[str, Any]:
    """Return a report as the service shows it."""
    return {"done": done, "total": total, "unit": "parts", "at": AT, "retry_at": None}


class Liar:
    """A service that gives the answers of a script one after the other, the last one from then on."""

    def __init__(self) -> None:
        self.script: list[Answer] = [job()]
        self.asked: list[tuple[str, str | None]] = []
        liar = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                liar.asked.append((self.path, self.headers.get("Authorization")))
                status, headers, body = liar.script.pop(0) if len(liar.script) > 1 else liar.script[0]
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve within the block."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


@pytest.fixture
def liar() -> Iterator[Liar]:
    """Give a service that tells what it is told to."""
    liar = Liar()
    with liar.serving():
        yield liar


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """Give an empty store."""
    return LocalStore(tmp_path / "store")


@pytest.fixture
def poller(liar: Liar, store: LocalStore) -> Poller:
    """Give a poller that hasn't begun."""
    return Poller(lambda: liar.url, lambda: "secret", store)


def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + 20
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end
        pause.wait(0.01)


def told(liar: Liar, poller: Poller, *answers: Answer) -> list[str]:
    """Let the service give these answers; return what was wrong by the time when the last came again."""
    liar.script = list(answers)
    with poller:
        poller.watch(JOB)
        until(lambda: len(liar.asked) > len(answers))
    return [fault.removeprefix(f"{JOB}: ") for fault in poller.wrong]


def test_an_honest_service_is_found_honest(liar: Liar, poller: Poller, store: LocalStore) -> None:
    """States that come in order, or were missed between two looks, aren't wrong."""
    digest = put_bytes(store, b"{}").digest

    faults = told(
        liar,
        poller,
        (404, {}, b"nobody has asked for it yet"),
        job("queued", 1, 0),
        job("running", 2, progress=progress(1, None)),
        job("running", 2, progress=progress(1, None), links={"self": None, "prefect": "/runs/1"}),
        job("running", 3, progress=progress(1, None)),
        job("running", 7, 2, progress=progress(10, 10)),
        job("complete", 9, 2, progress=progress(10, 10), result=result(digest)),
    )

    assert faults == []
    assert [look.status for look in poller.looks(JOB)][:6] == ["queued", *["running"] * 4, "complete"]
    assert set(liar.asked) == {(f"/v1/jobs/{JOB}", "Bearer secret")}


LIES: dict[str, tuple[list[Answer], str]] = {
    "a revision falls": ([job(rev=3), job(rev=2)], "rev fell from 3 to 2"),
    "attempts fall": ([job(rev=3, attempts=2), job(rev=4, attempts=1)], "attempts fell from 2 to 1"),
    "dead is left": ([job("dead", 3), job("retrying", 4)], "dead became retrying"),
    "a status under one revision": (
        [job("running", 2), job("retrying", 2)],
        "running became retrying under one revision",
    ),
    "a note under one revision": ([job(), job(note="lost")], "note changed under one revision"),
    "a move that is never legal": (
        [job("running", 2), job("queued", 9)],
        "running became queued, and no legal moves lead there",
    ),
    "a move for which revisions are too few": (
        [job("queued", 1, 0), job("retrying", 2), job("running", 3), job("retrying", 4), job("queued", 5)],
        "retrying became queued, and no legal moves lead there",
    ),
    "a result that isn't shown": (
        [job(), job("complete", 3)],
        "complete, and its result isn't there: None",
    ),
    "a result that isn't there": (
        [job(), job("complete", 3, result=result(f"sha256:{7:064x}"))],
        f"complete, and its result isn't there: {result(f'sha256:{7:064x}')}",
    ),
    "503 without Retry-After": ([(503, {}, b""), job()], "503 without Retry-After"),
    "a job that vanishes": ([job(), (404, {}, b"gone"), job()], "404 gone"),
    "another status code": ([(500, {}, b"oops"), job()], "500 oops"),
    "more than all": ([job(progress=progress(3, 2)), job(progress=progress(3, 2))], "progress is 3 of 2"),
    "less than nothing": ([job(progress=progress(-1, 2))], "progress is -1 of 2"),
}


@pytest.mark.parametrize(("answers", "fault"), LIES.values(), ids=LIES)
def test_a_lie_is_noted_once(liar: Liar, poller: Poller, answers: list[Answer], fault: str) -> None:
    """Each thing that the contract forbids is told in words of its own, and nothing else is."""
    assert told(liar, poller, *answers) == [fault]


def test_a_move_needs_as_many_revisions_as_it_takes(liar: Liar, poller: Poller, store: LocalStore) -> None:
    """Between two revisions that follow each other no state can have been missed."""
    shown = result(put_bytes(store, b"{}").digest)

    faults = told(liar, poller, job("queued", 1, 0), job("complete", 2, result=shown))

    assert faults == ["queued became complete in 1 revisions, and the legal way there takes 2 moves"]


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"status": "lost"}'], ids=["no JSON", "a list", "no job"]
)
def test_what_is_no_job_is_told_and_looked_past(liar: Liar, poller: Poller, body: bytes) -> None:
    """An answer that can't be read is wrong, and the poller goes on."""
    faults = told(liar, poller, (200, {}, body), job())

    assert [fault.partition(":")[0] for fault in faults] == ["the answer is no job"]
    assert poller.looks(JOB) != []


def test_a_damaged_result_is_told(liar: Liar, poller: Poller, store: LocalStore) -> None:
    """Complete means that the bytes can be read, and a store that finds them damaged stops no poller."""
    digest = put_bytes(store, b"{}").digest
    path = store.path_of(digest)
    path.unlink()
    path.write_bytes(b"")

    faults = told(liar, poller, job(), job("complete", 3, result=result(digest)))

    assert [fault.partition(":")[0] for fault in faults] == ["complete, and its result can't be read"]


def test_an_outage_is_looked_through(liar: Liar, store: LocalStore) -> None:
    """No answer, an unreadable address and a 503 that says when to come again are no lies."""
    closed = Liar()
    with closed.serving():
        pass
    urls = [closed.url]

    def url() -> str:
        if not urls:
            raise ValueError("half written")
        return urls[-1]

    liar.script = [(503, {"Retry-After": "1"}, b""), job()]
    with Poller(url, lambda: "secret", store) as poller:
        poller.watch(JOB)
        until(lambda: "ConnectError" in poller.unanswered)
        urls.clear()
        until(lambda: "ValueError" in poller.unanswered)
        urls.append(liar.url)
        until(lambda: poller.looks(JOB) != [])

    assert poller.wrong == []
    assert "503" in poller.unanswered


def test_how_long_a_dead_attempt_is_shown_as_running(poller: Poller) -> None:
    """The last look that shows that very attempt as running counts, and nothing before the moment does."""
    shown = [(10.0, "running", 1), (13.5, "running", 1), (14.0, "retrying", 1), (15.0, "running", 2)]
    poller.watch(JOB)
    poller._jobs[JOB].looks += [Look(at, resource(status, 2, n)) for at, status, n in shown]

    assert poller.shown_running(JOB, 1, after=11.0) == 2.5
    assert poller.shown_running(JOB, 2, after=11.0) == 4.0
    assert poller.shown_running(JOB, 1, after=14.0) == 0.0


def test_a_look_says_when_it_was(liar: Liar, poller: Poller) -> None:
    """Looks can be laid beside logs: they have the time of day of the question and of the answer."""
    began, began_at = time.time(), time.monotonic()

    told(liar, poller, job())

    look = poller.looks(JOB)[0]
    assert began <= look.asked <= look.answered <= time.time()
    assert began_at <= look.asked_at <= time.monotonic()


def test_a_forgotten_job_is_asked_for_no_more(liar: Liar, poller: Poller) -> None:
    """Its answers are dropped and what was wrong stays, under its own name alone."""
    other = "job-10"
    liar.script = [(500, {}, b"oops"), job()]
    with poller:
        poller.watch(JOB)
        until(lambda: len(liar.asked) > 2)
        poller.forget(JOB, "never watched")
        poller.watch(other)
        # a question that was under way may still come
        until(lambda: len([path for path, _ in liar.asked if path.endswith(other)]) == 1)
        before = len([path for path, _ in liar.asked if path.endswith(JOB)])
        until(lambda: len([path for path, _ in liar.asked if path.endswith(other)]) == 4)

    assert len([path for path, _ in liar.asked if path.endswith(JOB)]) == before
    assert (poller.wrong_about(JOB), poller.wrong_about(other)) == ([f"{JOB}: 500 oops"], [])
    with pytest.raises(KeyError):
        poller.looks(JOB)


def test_the_shown_job_is_one_of_the_contract() -> None:
    """What these tests let the service say is what the real one could."""
    assert Job.model_validate(resource()).rev == 2
