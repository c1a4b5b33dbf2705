"""The two lessons that the project grew from still run, the second one on this package, word for word.

The lessons themselves aren't part of this repository: AUTOCODE_SEEDS names the folder that holds them.
How code is told from prose, and the lessons' experiments on own classes, are tested always.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autocode.jobs import JobQueue, JobStatus
from autocode.jobs.model import DeadReason
from autocode.jobs.queue import Job
from autocode.jobs.queue_effects import EffectLog
from autocode.jobs.queue_status import job_status


@dataclass
class Block:
    """A run of code in a text without fences, and the paragraph of prose or output that follows."""

    code: str
    following: str


def is_code(paragraph: str) -> bool:
    """Say whether a paragraph that starts at the margin is Python and not prose that happens to parse."""
    try:
        statements = ast.parse(paragraph).body
    except SyntaxError:
        return False
    # "Ends and means" parses as an expression of names, and "sum: 3" as an annotation
    return any(
        isinstance(s.value, ast.Call)
        if isinstance(s, ast.Expr)
        else not isinstance(s, ast.AnnAssign) or s.value is not None
        for s in statements
    )


def blocks_of(text: str) -> list[Block]:
    """Split a text without fences into its runs of code, in order."""
    blocks: list[Block] = []
    inside = False
    for paragraph in text.split("\n\n"):
        body = paragraph.strip("\n")
        if not body.strip():
            continue
        if inside and body.startswith((" ", "\t")):
            blocks[-1].code += f"\n\n{body}"
        elif is_code(body):
            if inside:
                blocks[-1].code += f"\n\n{body}"
            else:
                blocks.append(Block(body, ""))
            inside = True
        else:
            if inside:
                blocks[-1].following = body
            inside = False
    return blocks


def run(code: str, namespace: dict[str, Any]) -> str:
    """Execute *code* in *namespace* and return what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "<lesson>", "exec"), namespace)  # noqa: S102 - the lesson is what is tested
    return printed.getvalue()


def seed(marker: str) -> str:
    """Return the lesson that holds *marker*."""
    texts = [p.read_text(encoding="utf-8") for p in sorted(Path(os.environ["AUTOCODE_SEEDS"]).glob("*.txt"))]
    (text,) = [text for text in texts if marker in text]
    return text


SAMPLE = textwrap.dedent(
    """\
    Counting and printing

    Here a counter is made. It counts, one at a time.

    from collections import Counter

    class Tally:
        \"\"\"A box.\"\"\"

        def add(self, name):
            return name

    print("sum:", sum([1, 2]))

    sum: 3

    Ends and means

    1. A list of points.

    tally = Tally()
    tally.add("x")
    """
)


def test_code_is_told_from_prose_that_parses() -> None:
    """Headings made of names, lists and output aren't code; indented paragraphs belong to it."""
    blocks = blocks_of(SAMPLE)

    assert [block.following for block in blocks] == ["sum: 3", ""]
    assert blocks[0].code.startswith("from collections")
    assert blocks[0].code.endswith('print("sum:", sum([1, 2]))')
    assert blocks[1].code == 'tally = Tally()\ntally.add("x")'


def test_blocks_of_a_lesson_share_a_namespace() -> None:
    """What one block defines, the next one uses."""
    namespace: dict[str, Any] = {}

    outputs = [run(block.code, namespace) for block in blocks_of(SAMPLE)]

    assert outputs == ["sum: 3\n", ""]


@pytest.mark.needs_seeds
def test_the_second_lesson_runs_unchanged_and_prints_what_it_says() -> None:
    """Each of its blocks runs on this package, and its output is the paragraph that follows it."""
    blocks = blocks_of(seed("from autocode.jobs import"))
    namespace: dict[str, Any] = {"__name__": "__main__"}

    printed = [run(block.code, namespace).rstrip("\n") for block in blocks]

    assert printed == [block.following for block in blocks]
    assert [block.code.count("print(") for block in blocks] == [1, 1, 1]
    assert namespace["JobQueue"] is JobQueue


@pytest.fixture
def first_lesson(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], str]:
    """Run the first lesson's own code without its pauses; return its names and what it printed."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = "".join(run(block.code, namespace) for block in blocks_of(seed("class JobQueue")))
    namespace["pauses"] = pauses
    return namespace, printed


@pytest.mark.needs_seeds
def test_the_first_lesson_still_runs(first_lesson: tuple[dict[str, Any], str]) -> None:
    """Its two experiments pass with its own classes, after the pauses that it promises."""
    namespace, printed = first_lesson

    assert [line.split(":")[0] for line in printed.splitlines()] == ["PASS", "PASS"]
    assert namespace["pauses"] == [2, 4, 2, 4]


@pytest.mark.needs_seeds
@pytest.mark.parametrize(
    ("failures", "status", "reason"),
    [(2, JobStatus.COMPLETE, None), (10, JobStatus.DEAD, DeadReason.EXHAUSTED)],
)
def test_the_first_lesson_s_experiments_hold_for_this_queue(
    first_lesson: tuple[dict[str, Any], str], failures: int, status: JobStatus, reason: DeadReason | None
) -> None:
    """With the lesson's own client: it recovers within the limit, and is dead once retries are spent."""
    client = first_lesson[0]["FakeClient"](fail_times=failures)
    queue = JobQueue(max_attempts=first_lesson[0]["MAX_ATTEMPTS"], sleep=lambda _: None)
    queue.enqueue("job", "summarize", {"prompt": "Condense this"})

    job = queue.run_until_done(
        "job", lambda job: client.responses.create(model="m", input=job.payload["prompt"]).output_text
    )

    assert (job.status, job.attempts, job.reason) == (status, 3, reason)
    body, http_status = job_status(queue, "job")
    assert (http_status, body["status"], body.get("result")) == (
        200,
        status,
        "done: Condense t" if status is JobStatus.COMPLETE else None,
    )


@pytest.mark.needs_seeds
def test_the_first_lesson_s_mail_is_sent_once_by_an_effect_log(
    first_lesson: tuple[dict[str, Any], str],
) -> None:
    """Its idempotency record and this package's do the same."""
    sent: list[dict[str, Any]] = []

    class Client:
        def send(self, **message: Any) -> None:
            sent.append(message)

    theirs, ours = first_lesson[0]["Job"](id="a", prompt="x", result="text"), EffectLog()
    records: set[str] = set()
    for _ in range(2):
        first_lesson[0]["send_result_email_once"](Client(), theirs, records)
        ours.once("a", lambda: Client().send(to="somebody", body="text"))

    assert [message["body"] for message in sent] == ["text", "text"]


def test_the_producer_answers_at_once_and_the_worker_works_later() -> None:
    """The shape of the first lesson on this queue: enqueue, dequeue, process, ask for the status."""
    queue = JobQueue(sleep=lambda _: None)
    queue.enqueue("a", "summarize", {"prompt": "x"})
    before = job_status(queue, "a")[0]["status"]

    taken = queue.dequeue(timeout=0)
    assert isinstance(taken, Job)
    queue.run_until_done(taken.job_id, lambda job: job.payload["prompt"] * 2)

    assert (before, job_status(queue, "a")[0]["result"], queue.dequeue(timeout=0)) == ("queued", "xx", None)
    assert job_status(queue, "b") == ({"error": "job not found"}, 404)
