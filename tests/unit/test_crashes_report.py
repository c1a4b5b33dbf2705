"""What many verdicts come to, as text, as a page and as JSON."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from rich.console import Console

from autocode.jobs.errors import UsageError
from autocode.jobs.testing.crashes import report, report_forms
from autocode.jobs.testing.crashes.cases import Case
from autocode.jobs.testing.crashes.report import Spread, Summary
from autocode.jobs.testing.crashes.rules import RULES
from autocode.jobs.testing.crashes.violations import Violation

PAGE = "# Recovery\n\nby hand\n\n<!-- crash-test: begin -->\nold\n<!-- crash-test: end -->\n\nalso by hand\n"


@dataclass(frozen=True)
class Times:
    """How long a recovery took."""

    notice: float | None = None
    next_attempt: float | None = None
    complete: float | None = None


@dataclass(frozen=True)
class Verdict:
    """A verdict, made up."""

    case: Case
    violations: tuple[Violation, ...] = ()
    times: Times = Times()
    reached: bool = True
    attempts: int = 2
    redelivered: int = 0
    seconds: float = 10.0
    unjudged: str | None = None


def verdict(
    text: str, *violations: Violation, complete: float | None = None, reached: bool = True
) -> Verdict:
    """Return a verdict on the case of this text."""
    return Verdict(Case.parse(text), violations, Times(complete=complete), reached)


GOOD = (
    verdict("export step.before:2 kill worker", complete=4.0),
    verdict("export claim.after:1 kill worker", complete=6.0),
    verdict("export result.after:1 kill worker", complete=20.0),
    verdict("export step.before:1 clock-back", complete=1.0),
)
TWICE = Violation("job-1", "effects", "the effect /charge (5) once", "2 times")
REPEATED = verdict("scenario-order effect.after-call:1 kill child", TWICE)


def test_verdicts_are_counted_by_strike() -> None:
    """Each fault with its victim has a row, in the order of the matrix, and all together have one."""
    summary = Summary.of([*GOOD, REPEATED])

    rows = [(row.what, row.cases, row.repeats) for row in summary.rows]
    assert rows == [("kill child", 1, 1), ("kill worker", 3, 0), ("clock-back", 1, 0)]
    assert (summary.total.what, summary.total.cases, summary.total.repeats) == ("all", 5, 1)
    assert summary.seconds == 50.0


def test_times_are_a_median_and_the_worst() -> None:
    """What has no such moment doesn't count, and nothing at all is a hyphen."""
    (row,) = Summary.of(GOOD[:3]).rows

    assert row.complete == Spread(6.0, 20.0)
    assert row.cells[-3:] == ("-", "-", "6.0 s (20.0)")


def test_a_case_that_was_not_reached_proves_nothing() -> None:
    """It is counted apart, its times don't count, and a run of such cases isn't fine."""
    missed = verdict("export step.before:9 kill worker", complete=99.0, reached=False)

    some, none = Summary.of([*GOOD, missed]), Summary.of([missed])

    assert (some.ok, some.total.not_reached, some.total.complete) == (True, 1, Spread(5.0, 20.0))
    assert (none.ok, none.total.complete) == (False, None)


@pytest.mark.parametrize(
    ("rule", "found", "sort"),
    [
        ("effects", "2 times", "repeat"),
        ("effects", "once", "repeat"),
        ("deliveries", "2 times under key k", "repeat"),
        ("checkpoints", "2 times", "repeat"),
        ("checkpoints", "never", "loss"),
        ("status", "dead, exhausted", "loss"),
        ("result", "None", "loss"),
        ("objects", "its bytes have another digest", "loss"),
        ("poller", "rev fell from 5 to 4", "other"),
    ],
)
def test_a_violation_is_sorted_by_its_rule(rule: str, found: str, sort: str) -> None:
    """Repeats, losses and all else have columns of their own, and each violation is in one."""
    violation = Violation("a: b", rule, "something else", found)

    row = report.Row.of("all", [verdict("export step.before:1 none", violation)])

    assert rule in RULES
    assert violation.sort == sort
    assert row.repeats + row.losses + row.other == 1


def test_a_case_that_came_to_no_end_is_counted_apart() -> None:
    """It is neither fine nor a violation, it is to be run again, and its times don't count."""
    late = replace(verdict("export step.before:1 none", complete=99.0), unjudged="nothing came")

    summary = Summary.of([*GOOD, late])

    total = summary.total
    assert (total.cases, total.not_judged, total.losses + total.repeats + total.other) == (5, 1, 0)
    assert (summary.ok, [each.case for each in summary.failed]) == (False, [late.case])
    assert total.complete == Spread(5.0, 20.0)


def test_text_is_aligned() -> None:
    """All lines of the plain summary have the same columns."""
    lines = report_forms.as_text(Summary.of(GOOD)).splitlines()

    assert lines[0].startswith("fault")
    assert lines[1].startswith("kill worker      3")
    assert lines[-1].startswith("all              4")
    assert len({len(line) for line in lines}) == 1


def test_a_terminal_gets_the_same_cells() -> None:
    """The table for a terminal has what the plain text has."""
    summary = Summary.of([*GOOD, REPEATED])
    console = Console(width=120, no_color=True)

    with console.capture() as capture:
        console.print(report_forms.as_table(summary))

    words = capture.get().split()
    assert words == report_forms.as_text(summary).split()


def test_a_page_keeps_what_was_written_by_hand(tmp_path: Path) -> None:
    """Only what stands between the marks is replaced, as often as one likes."""
    page = tmp_path / "recovery.md"
    page.write_text(PAGE)

    for _ in range(2):
        report_forms.into_page(page, report_forms.as_markdown(Summary.of(GOOD), "On a machine."))

    before, _, rest = page.read_text().partition("<!-- crash-test: begin -->\n")
    told, _, after = rest.partition("<!-- crash-test: end -->\n")
    assert (before, after) == ("# Recovery\n\nby hand\n\n", "\nalso by hand\n")
    assert "On a machine. 4 cases in 1 minutes" in told
    assert "| kill worker | 3 | 0 | 0 | 0 | 0 | 0 | - | - | 6.0 s (20.0) |\n" in told
    assert "old" not in told


@pytest.mark.parametrize("text", [None, "no marks", "<!-- crash-test: begin -->\nno end\n"])
def test_a_page_without_marks_is_refused(tmp_path: Path, text: str | None) -> None:
    """A page that has no place for the table, or isn't there, is left as it is."""
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text)

    with pytest.raises(UsageError, match="no place"):
        report_forms.check_page(page)
    with pytest.raises(UsageError, match="no place"):
        report_forms.into_page(page, "new")

    assert (page.read_text() if page.exists() else None) == text


def test_the_conditions_name_versions_and_no_host() -> None:
    """Times can be judged: date, cores, system, versions."""
    told = report_forms.conditions()

    assert "cores; " in told
    assert "prefect 3." in told
    assert told.endswith(".")


def test_a_case_is_repeated_by_one_command() -> None:
    """The command's words are the case's text, and a kind of one's own with its payload."""
    options = ("shop.jobs:notify", "--payload", '{"url": "{witness}/a b"}')

    plain = report.repeat_command(GOOD[0].case)
    own = report.repeat_command(GOOD[0].case, *options)

    assert plain == 'autocode-jobs crash-test --case "export step.before:2 kill worker"'
    assert shlex.split(own) == ["autocode-jobs", "crash-test", *options, "--case", str(GOOD[0].case)]


def test_a_summary_is_json() -> None:
    """A program reads counts and times by name, and which cases failed."""
    value = json.loads(json.dumps(Summary.of([*GOOD, REPEATED]).to_json()))

    assert value["ok"] is False
    assert value["failed"] == ["scenario-order effect.after-call:1 kill child"]
    assert value["all"]["repeats"] == 1
    assert value["rows"][1]["fault"] == "kill worker"
    assert value["rows"][1]["complete"] == {"median": 6.0, "worst": 20.0}
    assert value["rows"][1]["notice"] is None


def test_a_verdict_is_json() -> None:
    """A verdict has its case as text and its times by name."""
    value = report.verdict_json(GOOD[0])

    assert (value["case"], value["ok"], value["complete"]) == (str(GOOD[0].case), True, 4.0)
