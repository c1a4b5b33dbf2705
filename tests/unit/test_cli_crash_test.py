"""``autocode-jobs crash-test``: which cases it runs, what it tells of them, and how it ends."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest

from autocode.jobs.cli import main as command
from autocode.jobs.testing.crashes.cases import JOB_POINTS, Case
from autocode.jobs.testing.crashes.space import committed
from autocode.jobs.testing.crashes.violations import Violation

CRASHES = "autocode.jobs.testing.crashes"
CASE = "export step.before:2 kill worker"
OTHER = "scenario-order effect.after-call:1 kill child"
TWICE = Violation("job-1", "effects", "the effect /charge (5) once", "2 times")
DEAD = Violation("job-1", "status", "complete", "dead, exhausted")
PAGE = "by hand\n<!-- crash-test: begin -->\nold\n<!-- crash-test: end -->\n"


@dataclass(frozen=True)
class Workload:
    """A kind whose jobs pass every point."""

    name: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    nths: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(JOB_POINTS, 2))


@dataclass(frozen=True)
class Times:
    """How long a recovery took."""

    notice: float | None = 0.5
    next_attempt: float | None = 1.5
    complete: float | None = 4.0


@dataclass(frozen=True)
class Verdict:
    """A verdict, made up."""

    case: Case
    violations: tuple[Violation, ...]
    reached: bool
    times: Times = Times()
    attempts: int = 2
    redelivered: int = 0
    seconds: float = 10.0
    unjudged: str | None = None


class World:
    """Stands in for the service: says what was run, and judges as the test wants it."""

    def __init__(self) -> None:
        self.run: list[str] = []
        self.workloads: list[Workload] = []
        self.kept: list[bool] = []
        self.open = 0
        self.bad: dict[str, tuple[Violation, ...]] = {}
        self.late: dict[str, str] = {}
        self.unreached = False
        self.stop_after: int | None = None
        self.error: BaseException = KeyboardInterrupt()

    def matrix(self, workloads: Sequence[Workload], *, keep: bool = False) -> Matrix:
        """Open a matrix."""
        self.workloads = list(workloads)
        self.kept.append(keep)
        return Matrix(self)


class Matrix:
    """Runs nothing."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> Self:
        self._world.open += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._world.open -= 1

    @property
    def homes(self) -> tuple[Path, ...]:
        """Where it would have worked."""
        return (Path("a home"),)

    def run(self, case: Case) -> Verdict:
        """Judge a case as the test wants it."""
        if len(self._world.run) == self._world.stop_after:
            raise self._world.error
        self._world.run.append(str(case))
        bad, late = self._world.bad.get(str(case), ()), self._world.late.get(str(case))
        return Verdict(case, bad, not self._world.unreached, unjudged=late)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Put the stand-in where the command looks for the service and the kinds."""
    world = World()
    runner, workloads = ModuleType("runner"), ModuleType("workloads")
    names = ("export", "scenario-ten-steps", "scenario-order")
    vars(runner)["Matrix"] = world.matrix
    vars(workloads)["own"] = lambda: [Workload(name) for name in names]
    vars(workloads)["of_user"] = lambda spec, payload: Workload(spec.partition(":")[2], payload)
    monkeypatch.setitem(sys.modules, f"{CRASHES}.runner", runner)
    monkeypatch.setitem(sys.modules, f"{CRASHES}.workloads", workloads)
    monkeypatch.setenv("NO_COLOR", "1")
    return world


def test_without_words_the_committed_list_is_run(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Every case of the list is run in order on one service, and told, and all is well."""
    status = command.run(["crash-test"])

    shown = capsys.readouterr().out
    assert status == command.DONE
    assert world.run == [str(case) for case in committed()]
    assert (world.kept, world.open) == ([False], 0)
    assert f"ok    {committed()[0]}  noticed after 0.5 s, next attempt after 1.5 s" in shown
    assert shown.splitlines()[-1] == f"{len(committed())} cases in {len(committed())}0 s: no violation."


def test_cases_can_be_named(world: World) -> None:
    """--case, given twice, runs these two and no other."""
    status = command.run(["crash-test", "--case", CASE, "--case", OTHER, "--keep"])

    assert status == command.DONE
    assert world.run == [CASE, OTHER]
    assert world.kept == [True]


def test_a_violation_is_told_with_the_command_that_repeats_it(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1, the violation under its case, and at the end a command that runs that case again."""
    world.bad[OTHER] = (TWICE,)

    status = command.run(["crash-test", "--case", CASE, "--case", OTHER])

    lines = capsys.readouterr().out.splitlines()
    failed = next(number for number, line in enumerate(lines) if line.startswith("FAIL"))
    again = next(line for line in lines if line.startswith("again: "))
    assert status == command.FAILED
    assert lines[failed + 1] == f"      {TWICE}"
    assert lines[-1] == "2 cases in 20 s: 1 case with violations."
    assert again == f'again: autocode-jobs crash-test --case "{OTHER}"'
    world.run.clear()
    command.run(shlex.split(again)[2:])
    assert world.run == [OTHER]


def test_a_case_that_came_to_no_end_is_told_apart_from_a_violation(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1, why it wasn't judged under its case, and the command that repeats it."""
    world.late[OTHER] = "the job was over: not within 150 s"

    status = command.run(["crash-test", "--case", CASE, "--case", OTHER])

    lines = capsys.readouterr().out.splitlines()
    late = next(number for number, line in enumerate(lines) if line.startswith("????"))
    assert status == command.FAILED
    assert lines[late + 1] == f"      not judged: {world.late[OTHER]}"
    assert f'again: autocode-jobs crash-test --case "{OTHER}"' in lines
    assert lines[-1] == "2 cases in 20 s: 1 case not judged."


def test_a_temporary_folder_without_room_is_told_before_anything_starts(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1, with the folder and what to do; no service was started."""
    usage = shutil.disk_usage(Path.cwd())
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=1_000_000))

    status = command.run(["crash-test", "--case", CASE])

    told = capsys.readouterr().err
    assert (status, world.kept) == (command.FAILED, [])
    assert tempfile.gettempdir() in told
    assert "TMPDIR" in told


def test_rounds_are_repeated_by_their_seed(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A run without a seed says with which one it can be repeated."""
    command.run(["crash-test", "--rounds", "12"])
    told = capsys.readouterr().err.partition("again: ")[2].splitlines()[0]
    first = list(world.run)
    world.run.clear()

    status = command.run(shlex.split(told)[1:])

    assert status == command.DONE
    assert len(first) == 12
    assert world.run == first


def test_a_kind_of_ones_own_is_disturbed_everywhere(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """MODULE:KIND gets its payload and a list of its own, and failures repeat with both."""
    words = ["crash-test", "shop.jobs:notify", "--payload", '{"url": "{witness}/mail"}']
    case = "notify effect.after-call:1 kill everything"
    world.bad[case] = (TWICE,)

    whole, one = command.run(words), command.run([*words, "--case", case])

    again = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("again: "))
    assert [each.payload for each in world.workloads] == [{"url": "{witness}/mail"}]
    assert {Case.parse(text).point for text in world.run} == set(JOB_POINTS)
    assert {Case.parse(text).kind for text in world.run} == {"notify"}
    assert len(world.run) == 25
    assert (whole, one) == (command.FAILED if case in world.run[:-1] else command.DONE, command.FAILED)
    assert shlex.split(again)[1:-1] == ["autocode-jobs", *words, "--case"]


def test_json_has_a_line_a_case_and_the_summary_last(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stdout is for programs alone; people's text is on stderr."""
    world.bad[CASE] = (DEAD,)

    status = command.run(["crash-test", "--case", CASE, "--case", OTHER, "--json"])

    shown = capsys.readouterr()
    first, second, last = map(json.loads, shown.out.splitlines())
    assert status == command.FAILED
    assert (first["event"], first["case"], first["ok"]) == ("case", CASE, False)
    assert (second["case"], second["ok"], second["complete"]) == (OTHER, True, 4.0)
    assert (last["event"], last["ok"], last["wanted"], last["all"]["losses"]) == ("summary", False, 2, 1)
    assert str(DEAD) in shown.err


def test_a_list_starts_nothing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """--list prints the cases in the form that --case takes, and how to draw the same ones again."""
    status = command.run(["crash-test", "--rounds", "5", "--seed", "3", "--list"])

    shown = capsys.readouterr()
    cases = shown.out.splitlines()
    assert "--rounds 5 --seed 3" in shown.err
    assert status == command.DONE
    assert [str(Case.parse(line)) for line in cases] == cases
    assert len(cases) == 5
    assert (world.run, world.kept) == ([], [])


def test_a_list_is_json_if_asked_for(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Each case is a line of JSON."""
    command.run(["crash-test", "--case", CASE, "--list", "--json"])

    assert json.loads(capsys.readouterr().out) == {"case": CASE}


def test_a_page_gets_what_was_measured(world: World, tmp_path: Path) -> None:
    """--write replaces the table between the page's marks."""
    page = tmp_path / "recovery.md"
    page.write_text(PAGE)

    status = command.run(["crash-test", "--case", CASE, "--write", str(page)])

    assert status == command.DONE
    assert (
        "| kill worker | 1 | 0 | 0 | 0 | 0 | 0 | 0.5 s (0.5) | 1.5 s (1.5) | 4.0 s (4.0) |"
        in page.read_text()
    )
    assert page.read_text().startswith("by hand\n")


def test_ctrl_c_takes_the_service_down_and_tells_what_was_found(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 130, the summary so far, the service closed, and the page as it was."""
    page = tmp_path / "recovery.md"
    page.write_text(PAGE)
    world.bad[str(committed()[1])] = (Violation("job-1", "event log", "revision 4", "revision 5"),)
    world.stop_after = 3

    status = command.run(["crash-test", "--write", str(page)])

    shown = capsys.readouterr().out
    assert status == command.INTERRUPTED
    assert world.open == 0
    assert f'again: autocode-jobs crash-test --case "{committed()[1]}"' in shown
    assert f"Stopped after 3 of {len(committed())} cases: 1 case with violations." in shown
    assert page.read_text() == PAGE


def test_a_service_that_does_not_start_is_told_without_a_summary(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error before the first verdict is the whole answer."""
    world.stop_after, world.error = 0, OSError(28, "No space left on device")

    status = command.run(["crash-test"])

    shown = capsys.readouterr()
    assert status == command.FAILED
    assert "No space left on device" in shown.err
    assert shown.out == ""


def test_cases_that_are_never_reached_prove_nothing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """If no job came to its crash point the status is 1, and the last line says so."""
    world.unreached = True

    status = command.run(["crash-test", "--case", CASE])

    lines = capsys.readouterr().out.splitlines()
    assert status == command.FAILED
    assert lines[0].startswith(f"miss  {CASE}  it never came to that point")
    assert lines[-1] == "1 case in 10 s: no job came to its crash point, so nothing is proven."


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--case", "nonsense"], "'nonsense' names no case"),
        (["--case", "other step.before:1 kill worker"], "There is no kind 'other'"),
        (["--case", "export enqueue.after-commit:1 kill child"], "No child passes enqueue.after-commit"),
        (["--case", CASE, "--rounds", "3"], "one of the two"),
        (["--seed", "3"], "--seed says which cases --rounds draws"),
        (["--rounds", "0"], "Must be >= 1"),
        (["--payload", "{}"], "--payload is for a kind of your own"),
        (["shop.jobs:notify", "--payload", "{"], "--payload is no JSON"),
        (["shop.jobs:notify", "--payload", "[]"], "--payload is no JSON object"),
        (["--write", "missing.md"], "missing.md has no place"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(
    world: World, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    """Status 2, a sentence, and no service was started."""
    status = command.run(["crash-test", *words])

    shown = capsys.readouterr()
    assert status == command.USAGE
    assert told in shown.err
    assert (world.kept, shown.out) == ([], "")
