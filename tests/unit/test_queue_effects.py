"""Effects that must not repeat, and the crash between an effect and its checkpoint."""

from __future__ import annotations

import shelve
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autocode.jobs import JobQueue, JobStatus, crash
from autocode.jobs.canonical import canonical_json, digest_of
from autocode.jobs.errors import Transient, UsageError
from autocode.jobs.queue import Job
from autocode.jobs.queue_effects import EffectLog


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """Leave no crash point armed for the next test."""
    yield
    crash.disarm()


class Mailbox:
    """A receiver outside: it keeps every message, and may know idempotency keys."""

    def __init__(self, *, knows_keys: bool = False) -> None:
        self.messages: list[str] = []
        self._keys: set[str] | None = set() if knows_keys else None

    def send(self, message: str, key: str) -> str:
        """Deliver *message*, or drop it if *key* is known to have been delivered."""
        if self._keys is not None and key in self._keys:
            return "duplicate dropped"
        if self._keys is not None:
            self._keys.add(key)
        self.messages.append(message)
        return f"receipt {len(self.messages)}"


def test_an_effect_happens_once_and_its_result_is_kept() -> None:
    """The second call gets the first call's result, and nothing is sent."""
    log, mailbox = EffectLog(), Mailbox()

    first = log.once("mail:a", lambda: mailbox.send("done", "mail:a"))
    second = log.once("mail:a", lambda: mailbox.send("done", "mail:a"))

    assert (first, second, mailbox.messages, log.in_doubt()) == ("receipt 1", "receipt 1", ["done"], [])


def test_a_result_of_none_counts_as_done() -> None:
    """An effect that returns nothing isn't repeated either."""
    log, calls = EffectLog(), list[int]()

    for _ in range(2):
        log.once("a", lambda: calls.append(1))

    assert calls == [1]


def test_different_keys_are_different_effects() -> None:
    """One job's record doesn't keep another's effect from happening."""
    log, mailbox = EffectLog(), Mailbox()

    for key in ("mail:a", "mail:b"):
        log.once(key, lambda key=key: mailbox.send(key, key))  # type: ignore[misc]

    assert mailbox.messages == ["mail:a", "mail:b"]


def test_the_intent_is_on_record_while_the_effect_happens() -> None:
    """Whoever looks at the log in that moment, or after a crash, sees the key in doubt."""
    log = EffectLog()

    during = log.once("a", log.in_doubt)

    assert (during, log.in_doubt()) == (["a"], [])


def test_an_effect_that_raised_is_in_doubt_and_is_repeated() -> None:
    """An error doesn't tell whether the receiver acted, so the next call tries again."""
    log, calls = EffectLog(), list[int]()

    def effect() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise Transient("no answer")
        return len(calls)

    with pytest.raises(Transient):
        log.once("a", effect)
    in_doubt = log.in_doubt()

    assert (in_doubt, log.once("a", effect), log.in_doubt()) == (["a"], 2, [])


def test_of_many_threads_one_causes_the_effect_and_all_get_its_result() -> None:
    """The others wait for it instead of acting as well."""
    log, calls, results = EffectLog(), list[int](), list[int]()
    start = threading.Barrier(8)

    def effect() -> int:
        calls.append(1)
        return 42

    def work() -> None:
        start.wait(timeout=30)
        results.append(log.once("a", effect))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    assert (calls, results) == ([1], [42] * 8)


def test_a_thread_that_waited_for_a_failed_effect_tries_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thread's error is its own; the second's call still causes the effect."""
    log, inside, waits, results = EffectLog(), threading.Event(), threading.Event(), list[str]()
    wait = log._changed.wait

    def announce() -> bool:
        waits.set()
        return wait()

    monkeypatch.setattr(log._changed, "wait", announce)

    def fails() -> str:
        inside.set()
        assert waits.wait(timeout=30)
        raise Transient("no")

    def second() -> None:
        inside.wait(timeout=30)
        results.append(log.once("a", lambda: "second"))

    thread = threading.Thread(target=second, daemon=True)
    thread.start()
    with pytest.raises(Transient):
        log.once("a", fails)
    thread.join(timeout=30)

    assert results == ["second"]


def test_other_keys_do_not_wait() -> None:
    """An effect may cause another one under its own key."""
    log = EffectLog()

    assert log.once("outer", lambda: log.once("inner", lambda: 1) + 1) == 2


def test_an_effect_that_waits_for_itself_is_an_error_not_a_deadlock() -> None:
    """Asking for the same key from inside is refused at once."""
    log = EffectLog()

    with pytest.raises(UsageError, match="waits for itself"):
        log.once("a", lambda: log.once("a", lambda: 1))


def test_records_that_last_keep_an_effect_from_repeating_after_a_restart(tmp_path: Path) -> None:
    """A new log over the same file knows what the old one did."""
    mailbox = Mailbox()
    for _ in range(2):
        with shelve.open(str(tmp_path / "effects")) as records:  # noqa: S301 - our own file
            EffectLog(records).once("mail:a", lambda: mailbox.send("done", "mail:a"))

    assert mailbox.messages == ["done"]


# The exercise: a crash after the effect and before its checkpoint.


def run_with_one_crash(effect: Any, point: str = "step.after-object") -> Job:
    """Run a job whose first attempt dies after *effect*, before the checkpoint is recorded."""
    queue = JobQueue(max_attempts=2, sleep=lambda _: None)
    queue.enqueue("export:1", "export", {})
    crash.arm(f"{point}=raise", tokens=None)

    def worker(job: Job) -> Any:
        checkpoint = effect(job)
        crash.at(point)
        return checkpoint

    job = queue.run_until_done("export:1", worker)
    assert (job.status, job.attempts) == (JobStatus.COMPLETE, 2)
    return job


def test_without_a_record_the_effect_is_repeated() -> None:
    """A checkpoint that wasn't written can't keep the second attempt from sending again."""
    mailbox = Mailbox()

    run_with_one_crash(lambda job: mailbox.send("exported", job.job_id))

    assert mailbox.messages == ["exported", "exported"]


def test_with_a_record_the_effect_is_not_repeated() -> None:
    """The second attempt finds the record and takes the first one's receipt as its checkpoint."""
    mailbox, log = Mailbox(), EffectLog()

    job = run_with_one_crash(lambda job: log.once(job.job_id, lambda: mailbox.send("exported", job.job_id)))

    assert (mailbox.messages, job.checkpoint) == (["exported"], "receipt 1")


@pytest.mark.parametrize(("knows_keys", "messages"), [(False, ["exported"] * 2), (True, ["exported"])])
def test_the_window_that_remains_is_closed_by_the_receiver_alone(
    knows_keys: bool, messages: list[str]
) -> None:
    """A crash between effect and record repeats the effect, unless the receiver knows the key."""
    mailbox, log = Mailbox(knows_keys=knows_keys), EffectLog()
    crash.arm("step.after-object=raise", tokens=None)

    def effect() -> str:
        receipt = mailbox.send("exported", "export:1")
        crash.at("step.after-object")
        return receipt

    with pytest.raises(crash.CrashRaised):
        log.once("export:1", effect)
    in_doubt = log.in_doubt()
    log.once("export:1", effect)

    assert (in_doubt, mailbox.messages) == (["export:1"], messages)


def put(folder: Path, data: bytes) -> str:
    """Write *data* under its digest unless it is there; return the digest."""
    digest = digest_of(data)
    target = folder / digest.removeprefix("sha256:")
    if not target.exists():
        partial = target.with_suffix(".partial")
        partial.write_bytes(data)
        partial.replace(target)
    return digest


def test_a_content_addressed_write_needs_no_record(tmp_path: Path) -> None:
    """The repeated write finds its object, and the job ends with one object and its digest."""
    artifact = canonical_json({"session": "s-1", "turns": 3})

    job = run_with_one_crash(lambda _: put(tmp_path, artifact))

    assert [f"sha256:{path.name}" for path in tmp_path.iterdir()] == [digest_of(artifact)]
    assert (job.checkpoint, job.history) == (digest_of(artifact), [digest_of(artifact)])


BOUNDARIES = ("step.before", "step.after-object", "step.after-checkpoint")


def export(folder: Path, spec: str | None) -> tuple[list[str], Job]:
    """Export four members, a checkpoint each, with a crash at *spec*; return object ids and the job."""
    folder.mkdir()
    queue = JobQueue(max_attempts=2, sleep=lambda _: None)
    queue.enqueue("export:1", "export", {"members": ["a", "b", "c", "d"]})
    crash.arm(spec, tokens=None)

    def worker(job: Job) -> str:
        digests = list(job.checkpoint or [])
        for member in job.payload["members"][len(digests) :]:
            crash.at("step.before")
            digests = [*digests, put(folder, f"member {member}".encode())]
            crash.at("step.after-object")
            queue.save_checkpoint(job.job_id, digests)
            crash.at("step.after-checkpoint")
        return put(folder, canonical_json(digests))

    job = queue.run_until_done("export:1", worker)
    crash.disarm()
    return sorted(path.name for path in folder.iterdir()), job


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_crash_at_any_boundary_ends_in_the_same_artifact(tmp_path: Path, boundary: str, nth: int) -> None:
    """Objects, final checkpoint and history equal those of an undisturbed run, in two attempts."""
    expected_objects, undisturbed = export(tmp_path / "undisturbed", None)

    objects, job = export(tmp_path / "crashed", f"{boundary}:{nth}=raise")

    assert (undisturbed.attempts, job.attempts, job.status) == (1, 2, JobStatus.COMPLETE)
    assert (objects, job.checkpoint, job.history) == (
        expected_objects,
        undisturbed.checkpoint,
        undisturbed.history,
    )
