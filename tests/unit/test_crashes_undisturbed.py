"""A kind that runs undisturbed, in this process: digests, labels, effects, and what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from autocode.jobs.errors import PayloadInvalid, Permanent, Transient, UsageError
from autocode.jobs.kinds import Call, JobContext, Kind, Produced, StepContext
from autocode.jobs.store import LocalStore
from autocode.jobs.testing import scenarios
from autocode.jobs.testing.crashes.kinds import ORDER
from autocode.jobs.testing.crashes.undisturbed import run_undisturbed
from autocode.jobs.testing.crashes.witness import Witness
from engine_world import SOURCES


class Words(BaseModel):
    """What the kinds of these tests work on."""

    text: str = ""


@pytest.fixture(scope="module")
def witness() -> Iterator[Witness]:
    """Give a running witness."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SOURCES))
        with Witness() as running:
            yield running


def test_an_order_leaves_the_same_wherever_its_witness_serves(witness: Witness, tmp_path: Path) -> None:
    """Result and checkpoints don't depend on the witness's URL, and each effect is applied once."""
    payloads = [{"witness": witness.url_of(case), "order": "o-1", "items": 2} for case in ("a", "b")]

    first, second = (run_undisturbed(ORDER, payload, tmp_path / "f") for payload in payloads)

    assert first == second
    assert list(first.checkpoints) == ["item 1", "item 2", "reserve", "charge", "ship", "confirm"]
    assert first.digest == first.checkpoints["confirm"]
    told = LocalStore(tmp_path / "f" / "store").open(first.digest).read_all(limit=1000).decode()
    assert first.checkpoints["charge"] in told
    assert first.checkpoints["ship"] in told
    for case in ("a", "b"):
        found = [(each.path, each.key, each.applied, each.deliveries) for each in witness.effects(case)]
        assert found == [("charge", "charge:o-1", 1, 1), ("ship", "ship:o-1", 1, 1)]


def test_ten_steps_have_their_labels(tmp_path: Path) -> None:
    """A step without a label is named by its own name."""
    payload = {"witness": str(tmp_path / "witness")}

    found = run_undisturbed(scenarios.TEN_STEPS, payload, tmp_path)

    assert list(found.checkpoints) == [*(f"part {n}" for n in range(1, 11)), "join"]
    assert found.digest == found.checkpoints["join"]


def test_a_witness_that_refuses_connections_is_a_transient_error(tmp_path: Path) -> None:
    """The job may try again later; a witness that refuses the request itself is no use to try again."""
    with Witness() as witness:
        url = witness.url
        with pytest.raises(Permanent, match="status 405"):
            run_undisturbed(ORDER, {"witness": f"{url}/_", "order": "o-1"}, tmp_path)

    with pytest.raises(Transient, match="can't be reached"):
        run_undisturbed(ORDER, {"witness": f"{url}/case", "order": "o-1"}, tmp_path)


def test_an_effect_is_performed_once(tmp_path: Path) -> None:
    """Its key is what the kind gave; the second time it returns what it returned before."""
    kind = Kind("t", payload=Words, flow="none.py:none")
    keys: list[str] = []

    def effect(key: str) -> dict[str, str]:
        keys.append(key)
        return {"receipt": key}

    @kind.step
    def act(context: StepContext, inputs: Words) -> Produced:
        receipts = [context.once("send:1", effect), context.once("send:1", effect)]
        assert receipts == [{"receipt": "send:1"}] * 2
        return context.put([b"done"], "text/plain")

    @kind.main
    async def _main(job: JobContext[Words]) -> Produced:
        return await job.step(act, job.payload)

    run_undisturbed(kind, {}, tmp_path)

    assert keys == ["send:1"]


def test_chains_follow_one_another(tmp_path: Path) -> None:
    """Each call has a checkpoint of its own, and gets what the one before it left."""
    kind = Kind("t", payload=Words, flow="none.py:none")

    def follow(given: Words, before: Produced) -> Words:
        return Words(text=f"{given.text} after {before.size}")

    @kind.step(follow=follow)
    def write(context: StepContext, inputs: Words) -> Produced:
        return context.put([inputs.text.encode()], "text/plain")

    @kind.step
    def join(context: StepContext, inputs: Words) -> Produced:
        return context.put([inputs.text.encode()], "text/plain")

    @kind.main
    async def _main(job: JobContext[Words]) -> Produced:
        chains = [[Call("a", Words(text="one")), Call("b", Words(text="two"))], [Call("c", Words(text="x"))]]
        ends = await job.steps(write, chains, label="{} writes", unit="words")
        text = b", ".join(job.read(end.digest) for end in ends).decode()
        return await job.step(join, Words(text=text), label="the end")

    found = run_undisturbed(kind, {}, tmp_path)

    assert list(found.checkpoints) == ["a", "b", "c", "the end"]
    assert LocalStore(tmp_path / "store").open(found.digest).read_all(limit=100) == b"two after 3, x"


def test_a_step_is_done_once_for_the_same_inputs(tmp_path: Path) -> None:
    """The second call under another label has a checkpoint, and the body doesn't run again."""
    kind = Kind("t", payload=Words, flow="none.py:none")
    ran: list[str] = []

    @kind.step
    def write(context: StepContext, inputs: Words) -> Produced:
        ran.append(inputs.text)
        return context.put([inputs.text.encode()], "text/plain")

    @kind.main
    async def _main(job: JobContext[Words]) -> Produced:
        await job.step(write, job.payload, label="first")
        return await job.step(write, job.payload, label="second")

    found = run_undisturbed(kind, {"text": "hi"}, tmp_path)

    assert ran == ["hi"]
    assert found.checkpoints == {"first": found.digest, "second": found.digest}


def test_only_roots_that_were_given_can_be_asked_for(tmp_path: Path) -> None:
    """A known root is its folder; an unknown one is refused with the names that are known."""
    kind = Kind("t", payload=Words, flow="none.py:none")

    @kind.step
    def look(context: StepContext, inputs: Words) -> Produced:
        return context.put([str(context.folder(inputs.text)).encode()], "text/plain")

    @kind.main
    async def _main(job: JobContext[Words]) -> Produced:
        return await job.step(look, job.payload)

    found = run_undisturbed(kind, {"text": "here"}, tmp_path, {"here": tmp_path})
    assert LocalStore(tmp_path / "store").open(found.digest).read_all(limit=1000) == str(tmp_path).encode()
    with pytest.raises(UsageError, match="'there'") as refused:
        run_undisturbed(kind, {"text": "there"}, tmp_path, {"here": tmp_path})
    assert "here" in refused.value.hint


@pytest.mark.parametrize(
    "payload", [{"order": "o-1"}, {"witness": "http://x", "order": "two words"}, {"witness": "http://x"}]
)
def test_a_payload_that_does_not_fit_is_refused(tmp_path: Path, payload: dict[str, str]) -> None:
    """The error is the one that a client gets from the service, and nothing ran."""
    with pytest.raises(PayloadInvalid):
        run_undisturbed(ORDER, payload, tmp_path)

    assert not (tmp_path / "store").exists()


def test_a_job_that_hangs_is_given_up(tmp_path: Path) -> None:
    """A step that never returns costs the time that was given, and no more."""
    kind = Kind("t", payload=Words, flow="none.py:none")
    release = threading.Event()

    @kind.step
    def hang(context: StepContext, inputs: Words) -> Produced:
        release.wait(60)
        return context.put([b"late"], "text/plain")

    @kind.main
    async def _main(job: JobContext[Words]) -> Produced:
        return await job.step(hang, job.payload)

    try:
        with pytest.raises(TimeoutError):
            run_undisturbed(kind, {}, tmp_path, within=0.1)
    finally:
        release.set()
