"""What a lesson prints: tables, claims, what is said of a prediction, and the words of a figure."""

from __future__ import annotations

import pytest

from autocode.jobs.errors import UsageError
from autocode.jobs.testing.lessons.checks import check, judge
from autocode.jobs.testing.lessons.evidence import short
from autocode.jobs.testing.lessons.figures import Figure, Lane, Mark, timeline
from autocode.jobs.testing.lessons.runs import Run
from autocode.jobs.testing.lessons.tables import Table, Text

OPTIONS = {"a": "It forgot.", "b": "It remembered."}


def test_a_table_is_text_with_numbers_to_the_right() -> None:
    """Columns are as wide as their widest cell; no line ends with a space."""
    table = Table.of(("step", "bytes", "by"), [("scan", 7, "-"), ("read", 1234, "x")])

    assert repr(table).split("\n") == [
        "step  bytes  by",
        "----  -----  --",
        "scan      7  -",
        "read   1234  x",
    ]


def test_a_column_in_which_something_isn_t_a_number_stays_to_the_right() -> None:
    """A word among numbers is set like them."""
    table = Table.of(("bytes",), [(12345,), ("no",)])

    assert repr(table).split("\n")[2:] == ["12345", "   no"]


def test_a_table_without_rows_says_what_there_isn_t() -> None:
    """It names its columns."""
    table = Table.of(("event", "attempt"), [])

    assert (repr(table), len(table)) == ("(nothing under event, attempt)", 0)


def test_a_column_is_found_by_its_name() -> None:
    """Cells come from top to bottom; a name that isn't there is an error."""
    table = Table.of(("a", "b"), [(1, 2), (3, 4)])

    assert table.column("b") == [2, 4]
    with pytest.raises(ValueError, match="not in tuple"):
        table.column("c")


def test_a_row_that_doesn_t_fit_is_refused() -> None:
    """As many cells as columns, no more and no fewer."""
    with pytest.raises(ValueError, match="2 columns, and a row of 1 cells"):
        Table.of(("a", "b"), [(1,)])


def test_text_is_shown_without_quotes() -> None:
    """The representation is the text itself."""
    assert repr(Text("it's over")) == "it's over"


def test_claims_are_shown_with_their_reasons_and_counted() -> None:
    """A claim that doesn't hold is shown as loudly as one that does."""
    shown = check(("one", True, "of this"), ("two", False, "of that"))

    assert shown.split("\n") == [
        "ok  one",
        "    because of this",
        "NO  two",
        "    because of that",
        "1 of 2 hold",
    ]


@pytest.mark.parametrize(
    ("prediction", "told"),
    [
        ("b", "You said b, and so it is. It remembered."),
        (" B ", "You said b, and so it is. It remembered."),
        ("a", "You said a. It forgot.\nWhat happened is b. It remembered."),
        ("?", "You predicted nothing. What happened is b. It remembered."),
        ("", "You predicted nothing. What happened is b. It remembered."),
    ],
)
def test_every_prediction_gets_an_answer(prediction: str, told: str) -> None:
    """Right, wrong, and none at all."""
    assert judge(prediction, right="b", options=OPTIONS) == told


def test_an_answer_that_is_no_option_is_the_author_s_mistake() -> None:
    """The lesson is wrong then, and not its reader."""
    with pytest.raises(UsageError, match="'c' is none of the options a, b"):
        judge("a", right="c", options=OPTIONS)


def test_long_answers_are_wrapped() -> None:
    """No line is longer than what fits into a cell."""
    shown = judge("b", right="b", options={"b": "word " * 60})

    assert max(len(line) for line in shown.split("\n")) <= 90


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (Run("export", 0, None, "", ""), "autocode-jobs export: ended with status 0"),
        (Run("export", -9, "step.before", "", ""), "autocode-jobs export: killed by SIGKILL at step.before"),
        (Run("export", -15, None, "", ""), "autocode-jobs export: killed by SIGTERM"),
        (
            Run("export", 0, "step.before:9", "", ""),
            "autocode-jobs export: ended with status 0; it never came to step.before:9",
        ),
        (Run("verify", 1, None, "", "damaged\n"), "autocode-jobs verify: ended with status 1\ndamaged"),
    ],
)
def test_a_run_says_how_it_ended(run: Run, told: str) -> None:
    """Its parent's word, and what it complained of if it failed."""
    assert repr(run) == told


@pytest.mark.parametrize("digest", ["sha256:0123456789abcdef", "0123456789abcdef"])
def test_digests_are_shown_by_their_first_twelve_digits(digest: str) -> None:
    """With or without the name of the algorithm."""
    assert short(digest) == "0123456789ab"


@pytest.fixture(scope="module")
def figure() -> Figure:
    """Draw a job that was killed inside its second step."""
    first, second = (Mark.DONE, Mark.LOST, Mark.NOTHING), (Mark.REUSED, Mark.DONE, Mark.DONE)
    return timeline(["scan", "read", "bundle"], [Lane("gap", (first, second), {0: 1.5})], title="In the gap")


def test_a_figure_says_in_words_what_it_shows(figure: Figure) -> None:
    """The alt text holds the title, the steps, and what each attempt did."""
    assert figure.alt == (
        "In the gap. Steps from left to right: scan, read, bundle. "
        "gap: attempt 1: 1 done, 1 lost, then killed; attempt 2: 2 done, 1 reused."
    )


def test_a_figure_stores_its_words_with_the_picture(figure: Figure) -> None:
    """The alt text is in the metadata of the image, and in the text that stands for it."""
    data, metadata = figure._repr_mimebundle_()

    assert data["image/png"].startswith(b"\x89PNG")
    assert metadata == {"image/png": {"alt": figure.alt}}
    assert data["text/plain"] == f"figure: {figure.alt}"


def test_the_same_facts_draw_the_same_picture() -> None:
    """Drawn twice, a figure has the same bytes."""
    lanes = [Lane("one", ((Mark.DONE,),), {})]

    assert timeline(["scan"], lanes, title="x").png == timeline(["scan"], lanes, title="x").png
