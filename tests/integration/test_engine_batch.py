"""Many calls of a step: side by side in processes and groups, with a checkpoint each, whatever happens."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from autocode.jobs import crash
from autocode.jobs.engine import batch as batches
from autocode.jobs.engine.batch import Batch
from autocode.jobs.engine.context import AttemptContext
from autocode.jobs.engine.lease import LeaseKeeper
from autocode.jobs.engine.system import System, open_system
from autocode.jobs.engine.workers import Worker, WorkerDied
from autocode.jobs.errors import AttemptEnded, SourceChanged
from autocode.jobs.kinds import Call
from autocode.jobs.ledger import attempts, jobs, queries, retries, statuses
from autocode.jobs.ledger.jobs import NewJob
from autocode.jobs.operations.export import EXPORT, read
from autocode.jobs.operations.export.kind import _parts_of
from autocode.jobs.operations.export.payload import ReadInputs, Source
from autocode.jobs.operations.export.scan import scan_files
from autocode.jobs.operations.export.seen_file import SeenFile
from autocode.jobs.projection import Lease, Outcome, RunState
from autocode.jobs.redaction import DEFAULT_POLICY
from autocode.jobs.settings import Home
from engine_world import until
from export_context import line

SESSIONS = 14


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with sessions of different lengths."""
    folder = tmp_path_factory.mktemp("sessions")
    for number in range(SESSIONS):
        text = line(f"word {number} and more " * 40, sessionId=f"s-{number}")
        (folder / f"{number:02}.jsonl").write_bytes(text * (8 * (number + 1)))
    return folder


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make everything worth a process, on every machine."""
    monkeypatch.setattr(batches, "_WORTH", 0)
    monkeypatch.setenv("AUTOCODE_PROCESSES", "2")


def chains_of(folder: Path) -> list[list[Call[ReadInputs]]]:
    """Return the calls that an export of *folder* makes."""
    found = scan_files(lambda _: folder, (Source(root="x"),), lambda _: None)
    return [list(_parts_of(file, DEFAULT_POLICY, None)) for file in found.files]


@contextmanager
def attempt_in(system: System, n: int = 1) -> Iterator[AttemptContext]:
    """Begin attempt *n* of the one job, and keep its lease."""
    if n == 1:
        new = NewJob("job-1", EXPORT.name, {}, EXPORT.max_attempts, EXPORT.backoff, EXPORT.time_limit)
        jobs.enqueue(system.db, new)
    attempt = attempts.begin(system.db, "job-1", n, flow_run_id=f"run-{n}", holder="test")
    with LeaseKeeper(system.db, attempt) as keeper:
        yield AttemptContext(system, attempt, keeper)


def performed(batch: Batch) -> list[str]:
    """Perform everything and return the digests, one for each chain."""
    try:
        batch.reuse(batch.look_up())
        for group in batch.groups():
            batch.perform(group)
    finally:
        batch.close()
    return [each.digest for each in batch.results]


def history(system: System) -> list[tuple[str, int]]:
    """Return step and attempt of each checkpoint."""
    with system.db.read() as tx:
        rows = queries.load(tx, "job-1").checkpoints
    return [(rows[seq].step, rows[seq].attempt) for seq in sorted(rows)]


def leftovers(system: System) -> list[str]:
    """Return what lies in the folder of temporary files."""
    return sorted(path.name for path in system.home.store.rglob("*.tmp"))


@pytest.fixture(scope="module")
def expected(sessions: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Give the digests that one thread makes of the sessions."""
    home = Home(tmp_path_factory.mktemp("alone") / "home")
    with open_system(home) as system, attempt_in(system) as context:
        return performed(Batch(context, read, "job-1", chains_of(sessions), "bytes"))


@pytest.mark.usefixtures("apart")
def test_processes_leave_what_one_thread_leaves(sessions: Path, expected: list[str], tmp_path: Path) -> None:
    """Digests don't depend on who worked; each call has a checkpoint of its own, and nothing is left over."""
    told: list[int] = []
    chains = chains_of(sessions)

    with open_system(Home(tmp_path / "home")) as system, attempt_in(system) as context:
        context.progress = lambda done, *_: told.append(done)  # type: ignore[method-assign]
        actual = performed(Batch(context, read, "job-1", chains, "bytes"))

        assert actual == expected
        assert sorted(history(system)) == sorted((chain[0].label, 1) for chain in chains)
        assert leftovers(system) == []
    assert told == sorted(told)
    assert told[-1] == sum(path.stat().st_size for path in sessions.iterdir())


@pytest.mark.usefixtures("apart")
def test_an_error_in_a_process_arrives_as_itself(sessions: Path, tmp_path: Path) -> None:
    """A file that changed stops the batch with the error of the call; what was done before is committed."""
    folder = tmp_path / "sessions"
    shutil.copytree(sessions, folder)
    chains = chains_of(folder)
    path = folder / "05.jsonl"
    path.write_bytes(path.read_bytes().replace(b"word", b"sword"))

    with open_system(Home(tmp_path / "home")) as system, attempt_in(system) as context:
        batch = Batch(context, read, "job-1", chains, "bytes")
        with pytest.raises(SourceChanged, match=r"05\.jsonl no longer holds"):
            performed(batch)

        assert batch.failed is not None
        assert batch.failed.startswith("read 05 ")
        assert batch.failed not in [step for step, _ in history(system)]
        assert leftovers(system) == []


@pytest.mark.parametrize("processes", ["1", "2"], ids=["here", "apart"])
@pytest.mark.usefixtures("apart")
def test_what_is_known_of_a_file_that_changed_is_dropped(
    processes: str, sessions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds that a file isn't what the cache says has the next scan read it, and no other."""
    monkeypatch.setattr("autocode.jobs.engine.lanes._SMALL", 0)
    monkeypatch.setenv("AUTOCODE_PROCESSES", processes)
    folder = tmp_path / "sessions"
    shutil.copytree(sessions, folder)
    chains = chains_of(folder)
    paths = {path.name: os.fsencode(path) for path in folder.iterdir()}
    (folder / "05.jsonl").write_bytes(b"")

    with open_system(Home(tmp_path / "home")) as system, attempt_in(system) as context:
        cache = context.cache_folder()
        assert cache == system.home.cache
        cache.mkdir()
        known = SeenFile(cache / "scan.db")
        known.put(dict.fromkeys(paths.values(), b"{}"))
        with pytest.raises(SourceChanged):
            performed(Batch(context, read, "job-1", chains, "bytes"))

    assert [name for name, path in paths.items() if known.get(path) is None] == ["05.jsonl"]
    known.close()


def test_a_job_that_starts_afresh_has_no_cache(tmp_path: Path) -> None:
    """What earlier jobs found isn't there for a retry from the start."""
    with open_system(Home(tmp_path / "home")) as system, attempt_in(system) as context:
        context.attempt = replace(context.attempt, fresh_fence=1)

        assert context.cache_folder() is None


@pytest.mark.usefixtures("apart")
def test_a_process_that_dies_is_replaced_at_the_next_try(
    sessions: Path, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL of a working process is a transient error; the next try does what is left, and no more."""
    receive = Worker.receive

    def killed(worker: Worker, timeout: float) -> tuple[object, ...] | None:
        message = receive(worker, timeout)
        if message is not None and message[0] == "done":
            worker._process.kill()
            worker._process.wait()
        return message

    with open_system(Home(tmp_path / "home")) as system, attempt_in(system) as context:
        batch = Batch(context, read, "job-1", chains_of(sessions), "bytes")
        [group] = batch.groups()
        monkeypatch.setattr(batches, "_LONGEST_PATIENCE", 0.0)
        # everything is left to the processes, so that one of them dies
        monkeypatch.setattr("autocode.jobs.engine.lanes._SMALL", 0)
        monkeypatch.setattr(Worker, "receive", killed)
        with pytest.raises(WorkerDied, match="-9"):
            batch.perform(group)
        monkeypatch.setattr(Worker, "receive", receive)
        actual = performed(batch)

        assert actual == expected
        assert len(history(system)) == SESSIONS
        assert leftovers(system) == []


@pytest.mark.usefixtures("apart")
def test_a_batch_that_must_stop_ends_its_processes(sessions: Path, tmp_path: Path) -> None:
    """When the attempt is handed back, perform raises at once, and neither process nor file stays."""
    with open_system(Home(tmp_path / "home")) as system, attempt_in(system) as context:
        batch = Batch(context, read, "job-1", chains_of(sessions), "bytes")
        [group] = batch.groups()
        context.keeper.stop()
        with pytest.raises(AttemptEnded):
            batch.perform(group)

        assert batch._workers == []
        assert leftovers(system) == []


@pytest.mark.parametrize(
    "point", ["step.before", "step.mid-write", "step.after-object", "step.after-checkpoint"]
)
@pytest.mark.usefixtures("apart")
def test_crash_points_raise_wherever_the_work_is_done(
    point: str, sessions: Path, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A point that is passed in a process is passed once in its parent; the next try finishes the work."""
    monkeypatch.setattr("autocode.jobs.engine.lanes._SMALL", 0)

    with open_system(Home(tmp_path / "home")) as system, attempt_in(system) as context:
        batch = Batch(context, read, "job-1", chains_of(sessions), "bytes")
        [group] = batch.groups()
        crash.arm(f"{point}:3=raise", tokens=tmp_path / "tokens")
        try:
            with pytest.raises(crash.CrashRaised):
                batch.perform(group)
            actual = performed(batch)
        finally:
            crash.disarm()

        assert actual == expected
        assert len(history(system)) == SESSIONS
        assert leftovers(system) == []


def test_only_what_is_damaged_is_done_again(sessions: Path, expected: list[str], tmp_path: Path) -> None:
    """Remembered calls are reused; one whose object lost a bit is performed anew."""
    chains = chains_of(sessions)
    with open_system(Home(tmp_path / "home")) as system:
        with attempt_in(system) as context:
            performed(Batch(context, read, "job-1", chains, "bytes"))
            attempts.end(system.db, "job-1", 1, Outcome.INTERRUPTED, token=context.attempt.token)
        damaged = system.home.store / "objects/sha256" / expected[3][7:9] / expected[3][7:]
        damaged.chmod(0o600)
        damaged.write_bytes(damaged.read_bytes()[:-40] + b"x" + damaged.read_bytes()[-39:])
        with attempt_in(system, 2) as context:
            batch = Batch(context, read, "job-1", chains, "bytes")
            found = batch.look_up()
            whole = batch.reuse(found)

            assert found == list(range(SESSIONS))
            assert not whole
            assert batch.groups() == [[3]]
            assert performed(batch) == expected


@pytest.mark.parametrize(
    ("sessions", "size", "expected"),
    [
        (12, 1, [1] * 12),
        (13, 1, [13]),
        (12, 1 << 20, [12]),
        (1001, 1, [500, 500, 1]),
        (3, 100 << 20, [2, 1]),
        (2, 300 << 20, [1, 1]),
    ],
)
def test_groups_are_small_enough_to_look_at(
    sessions: int, size: int, expected: list[int], tmp_path: Path
) -> None:
    """A few short sessions have a task run each; many share one, up to 500 of them or 256 MiB."""
    inputs = ReadInputs(
        size=0,
        sha256="sha256:",
        last=True,
        before=None,
        whole=None,
        reader=None,
        revision=0,
        policy=None,
        raw=True,
        path="",
        name="",
        offset=0,
    )
    chains = [[Call(f"read {number}", inputs, size)] for number in range(sessions)]

    with open_system(Home(tmp_path / "home")) as system, attempt_in(system) as context:
        groups = Batch(context, read, "job-1", chains, "bytes").groups()

    assert [len(group) for group in groups] == expected
    assert [chain for group in groups for chain in group] == list(range(sessions))


DRIVER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from autocode.jobs import crash
from autocode.jobs.engine import batch, lanes
from autocode.jobs.engine.batch import Batch
from autocode.jobs.engine.system import open_system
from autocode.jobs.operations.export import read
from autocode.jobs.settings import Home
from integration.test_engine_batch import attempt_in, chains_of, performed

batch._WORTH = lanes._SMALL = 0
crash.arm("step.mid-write:9", tokens=None)
with open_system(Home(Path(sys.argv[1]))) as system, attempt_in(system) as context:
    performed(Batch(context, read, "job-1", chains_of(Path(sys.argv[2])), "bytes"))
"""


def swept(system: System) -> bool:
    """Sweep the store, and say whether nothing is left."""
    system.store.sweep_temp()
    return leftovers(system) == []


def test_processes_die_with_a_parent_that_is_killed(
    sessions: Path, expected: list[str], tmp_path: Path, processes_of: Callable[[Path], list[int]]
) -> None:
    """SIGKILL of the parent amid a write of a process leaves no process, and no file after a sweep."""
    home = tmp_path / "home"
    tests = Path(__file__).resolve().parents[1]

    killed = subprocess.run(
        [sys.executable, "-c", DRIVER, str(home), str(sessions), str(tests), str(tests.parent / "src")],
        env={**os.environ, "AUTOCODE_PROCESSES": "2"},
        check=False,
    )

    assert killed.returncode == -signal.SIGKILL
    until(lambda: not processes_of(home), within=10)
    with open_system(Home(home)) as system:
        # a process that is ending loses its command line a moment before its files, and their locks
        until(lambda: swept(system), within=10, told=lambda: leftovers(system))
        attempts.end(system.db, "job-1", 1, Outcome.CRASHED)
        done = history(system)
        with attempt_in(system, 2) as context:
            actual = performed(Batch(context, read, "job-1", chains_of(sessions), "bytes"))

        assert actual == expected
        assert history(system)[: len(done)] == done
        assert len(history(system)) == SESSIONS


@pytest.fixture
def processes_of() -> Callable[[Path], list[int]]:
    """Give a function that lists the living processes which name a home on their command line."""

    def found(home: Path) -> list[int]:
        pids = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if os.fsencode(home) in words:
                    pids.append(int(entry.name))
        return pids

    return found


def test_the_working_process_imports_neither_prefect_nor_a_database() -> None:
    """What reads sessions starts fast and stays small: the heavy libraries belong to the parent."""
    modules = "autocode.jobs.engine.worker_process, autocode.jobs.operations.export.kind"
    code = f"import sys, {modules}; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert {"prefect", "sqlalchemy", "alembic", "httpx"}.isdisjoint(done.stdout.split())


def test_the_lease_is_renewed_while_everything_is_busy(sessions: Path, tmp_path: Path) -> None:
    """No thread of a batch keeps the interpreter from the one that renews for longer than a moment."""
    gaps: list[float] = []
    over = threading.Event()
    with open_system(Home(tmp_path / "home")) as system, attempt_in(system) as context:

        def tick() -> None:
            clock = system.db.clock
            last = clock.monotonic()
            while not over.wait(0.01):
                now = clock.monotonic()
                gaps.append(now - last)
                last = now

        ticker = threading.Thread(target=tick)
        ticker.start()
        performed(Batch(context, read, "job-1", chains_of(sessions), "bytes"))
        over.set()
        ticker.join()

    assert max(gaps, default=0.0) < 1.5


def test_a_fresh_start_does_everything_again_and_reuses_its_own(
    sessions: Path, expected: list[str], tmp_path: Path
) -> None:
    """After a retry from the start nothing earlier is reused; after a crash of that run, what it made is."""
    chains = chains_of(sessions)
    first = read.memo_key("job-1", chains[0][0].inputs)
    with open_system(Home(tmp_path / "home")) as system:
        with attempt_in(system) as context:
            performed(Batch(context, read, "job-1", chains, "bytes"))
        attempts.end(system.db, "job-1", 1, Outcome.PERMANENT)
        statuses.stamp(system.db, "job-1", RunState(), Lease.ALIVE)
        retries.request_retry(system.db, "job-1", actor="ann", reason="doubt", start="start")

        with attempt_in(system, 2) as context:
            recalled = context.recall(first)
            batch = Batch(context, read, "job-1", chains, "bytes")
            found = batch.look_up()
            again = performed(batch)
        attempts.end(system.db, "job-1", 2, Outcome.CRASHED)
        with attempt_in(system, 3) as context:
            kept = context.recall(first)
            rest = Batch(context, read, "job-1", chains, "bytes").look_up()
        done = history(system)

    assert (recalled, found) == (None, [])
    assert again == expected
    assert kept is not None
    assert kept.digest == expected[0]
    assert rest == list(range(SESSIONS))
    assert sorted(done) == sorted((chain[0].label, n) for chain in chains for n in (1, 2))
