"""The rules that a stored lesson keeps, each as a function that finds what breaks it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import jupytext
import nbformat

__all__ = ["FOLDER", "LESSONS", "RULES", "problems"]

FOLDER: Final = Path(__file__).resolve().parents[2] / "notebooks"
LESSONS: Final = sorted(FOLDER.glob("[0-9]*.ipynb"))

MOST_CODE_CELLS: Final = 25
MOST_BYTES: Final = 200_000
MOST_IGNORED: Final = 2
IGNORED: Final = "nbval-ignore-output"
TAGS: Final = frozenset({"hide-input", "hide-cell", "solution", "raises-exception", IGNORED})
HEADINGS: Final = (
    "What you will do",
    "What you will be able to do",
    "What you need",
    "Predict",
    "Break it",
    "Check",
    "Exercise",
    "What you saw",
    "In practice",
    "Next",
)
_VOLATILE: Final = {
    "a time": re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\b\d\d:\d\d:\d\d\b"),
    "a UUID": re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"),
    "an absolute path": re.compile(r"(?<![\w.~/:<])/(?:[\w.-]+/)+[\w.-]*|\b[A-Z]:\\"),
    "a port": re.compile(r"\b(?:127\.0\.0\.1|localhost):\d+"),
    "an address in memory": re.compile(r"\b0x[0-9a-f]{6,}\b"),
    "a job's id": re.compile(r"\bexport-\d{8}-\d{6}-[0-9a-f]{6}\b"),
}
_HEADING: Final = re.compile(r"^(#+) +(.*)$", re.MULTILINE)
_LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_DIGEST: Final = re.compile(r"\b(?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{12}\b")
_FENCE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

Rule = Callable[[Any, Path], Iterator[str]]
RULES: dict[str, Rule] = {}


def rule(function: Rule) -> Rule:
    """Make *function* one of the rules."""
    RULES[function.__name__.removeprefix("_")] = function
    return function


def problems(path: Path, *, text: Path | None = None) -> list[str]:
    """Return everything that is wrong with the stored lesson *path*, each as ``name: what``.

    Args:
        path: the notebook.
        text: its text; the file of the same name in ``notebooks/`` if not given.
    """
    content = path.read_text("utf-8")
    try:
        nbformat.validate(json.loads(content))
    except nbformat.ValidationError as error:
        return [f"{path.name}: no valid notebook: {error.message}"]
    # its own reader joins what is stored as lists of lines
    notebook = nbformat.reads(content, as_version=4)  # type: ignore[no-untyped-call]
    source = text if text is not None else FOLDER / f"{path.stem}.py"
    return [f"{path.name}: {what}" for each in RULES.values() for what in each(notebook, source)]


def _cells(notebook: Any, kind: str) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def _texts(cell: Any) -> Iterator[str]:
    """Yield everything of a cell's outputs that is text."""
    for output in cell.outputs:
        yield from [output.text] if "text" in output else []
        yield from output.get("traceback", [])
        data = output.get("data", {})
        yield from (text for kind, text in data.items() if kind.startswith("text/"))


def _prose(notebook: Any) -> str:
    return _FENCE.sub("", "\n\n".join(cell.source for cell in _cells(notebook, "markdown")))


@rule
def _every_cell_was_executed(notebook: Any, _text: Path) -> Iterator[str]:
    counts = [cell.execution_count for cell in _cells(notebook, "code")]
    if counts != list(range(1, len(counts) + 1)):
        yield f"cells aren't executed from 1 to {len(counts)} in order: {counts}"
    for cell in _cells(notebook, "code"):
        if any(
            output.get("execution_count", cell.execution_count) != cell.execution_count
            for output in cell.outputs
        ):
            yield f"cell {cell.execution_count} holds an output of another execution"


@rule
def _no_cell_failed(notebook: Any, _text: Path) -> Iterator[str]:
    for cell in _cells(notebook, "code"):
        failed = any(output.output_type == "error" for output in cell.outputs)
        if failed and "raises-exception" not in cell.metadata.get("tags", []):
            yield f"cell {cell.execution_count} ended with an error"


@rule
def _nothing_on_stderr(notebook: Any, _text: Path) -> Iterator[str]:
    for cell in _cells(notebook, "code"):
        if any(output.get("name") == "stderr" for output in cell.outputs):
            yield f"cell {cell.execution_count} wrote on stderr"


@rule
def _nothing_volatile(notebook: Any, _text: Path) -> Iterator[str]:
    for cell in _cells(notebook, "code"):
        for text in _texts(cell):
            for what, pattern in _VOLATILE.items():
                if found := pattern.search(text):
                    yield f"cell {cell.execution_count} shows {what}: {found[0]}"


@rule
def _images_have_words(notebook: Any, _text: Path) -> Iterator[str]:
    for cell in _cells(notebook, "code"):
        for output in cell.outputs:
            for kind in output.get("data", {}):
                if kind.startswith("image/") and not output.metadata.get(kind, {}).get("alt", "").strip():
                    yield f"cell {cell.execution_count} has an image without alt text"
    for image in re.findall(r"!\[\s*\]\(([^)]*)\)|<img(?![^>]*alt=)", _prose(notebook)):
        yield f"an image in the text has no alt text: {image}"


@rule
def _headings_in_order(notebook: Any, _text: Path) -> Iterator[str]:
    found = [(len(marks), title.strip()) for marks, title in _HEADING.findall(_prose(notebook))]
    levels = [level for level, _ in found]
    if levels.count(1) != 1 or levels[:1] != [1]:
        yield f"there has to be one title, at the top; found {levels.count(1)}"
    for before, after in pairwise(levels):
        if after > before + 1:
            yield f"a heading of level {after} follows one of level {before}"
    titles = [title for _, title in found]
    wanted = [title for title in titles if title in HEADINGS]
    if wanted != list(HEADINGS):
        yield f"the headings {', '.join(HEADINGS)} have to stand in this order; found {', '.join(wanted)}"


@rule
def _no_metadata_of_a_machine(notebook: Any, _text: Path) -> Iterator[str]:
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        yield "the kernel isn't python3"
    if extra := set(notebook.metadata) - {"jupytext", "kernelspec"}:
        yield f"the notebook has metadata of a machine: {sorted(extra)}"
    for cell in notebook.cells:
        if extra := set(cell.metadata) - {"jupyter", "tags"}:
            yield f"{cell.id} has metadata of a machine: {sorted(extra)}"


@rule
def _tags_are_known_and_few(notebook: Any, _text: Path) -> Iterator[str]:
    tags = [tag for cell in notebook.cells for tag in cell.metadata.get("tags", [])]
    if unknown := set(tags) - TAGS:
        yield f"unknown tags: {sorted(unknown)}"
    ignored = tags.count(IGNORED) + sum(
        "NBVAL_IGNORE_OUTPUT" in cell.source or "NBVAL_SKIP" in cell.source
        for cell in _cells(notebook, "code")
    )
    if ignored > MOST_IGNORED:
        yield f"{ignored} cells aren't compared; at most {MOST_IGNORED}"
    if "NBVAL_SKIP" in "".join(cell.source for cell in _cells(notebook, "code")):
        yield "a cell is skipped"
    if "solution" not in tags:
        yield "no cell is tagged as the solution"


@rule
def _small_enough(notebook: Any, _text: Path) -> Iterator[str]:
    if (count := len(_cells(notebook, "code"))) > MOST_CODE_CELLS:
        yield f"{count} code cells; at most {MOST_CODE_CELLS}"
    if (size := len(nbformat.writes(notebook))) > MOST_BYTES:  # type: ignore[no-untyped-call]
        yield f"{size} bytes; at most {MOST_BYTES}"


@rule
def _code_that_can_be_compared(notebook: Any, _text: Path) -> Iterator[str]:
    cells = _cells(notebook, "code")
    for cell in cells:
        # nbval 0.11 fails on what a semicolon suppresses
        if cell.source.rstrip().endswith(";"):
            yield f"cell {cell.execution_count} ends with a semicolon"
    if not cells or cells[-1].source.strip() != "lesson.stop()":
        yield "the last cell isn't lesson.stop()"


@rule
def _links_lead_somewhere(notebook: Any, _text: Path) -> Iterator[str]:
    for link in _LINK.findall(_prose(notebook)):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = FOLDER / name
        if not target.is_file():
            yield f"a link leads nowhere: {link}"
        elif anchor and anchor not in _anchors(target.read_text("utf-8")):
            yield f"a link leads to no heading: {link}"


@rule
def _digests_in_the_text_were_printed(notebook: Any, _text: Path) -> Iterator[str]:
    printed = "\n".join(text for cell in _cells(notebook, "code") for text in _texts(cell))
    for digest in _DIGEST.findall(_prose(notebook)):
        if digest not in printed:
            yield f"the text speaks of {digest}, which no cell prints"


@rule
def _text_and_notebook_are_equal(notebook: Any, text: Path) -> Iterator[str]:
    if not text.is_file():
        yield f"there is no {text.name}"
        return
    pair = [_shape(cell) for cell in jupytext.read(text).cells]
    own = [_shape(cell) for cell in notebook.cells]
    if len(pair) != len(own):
        yield f"{len(own)} cells, and {len(pair)} in {text.name}"
    for number, (one, other) in enumerate(zip(own, pair, strict=False), 1):
        if one != other:
            yield f"cell {number} differs from {text.name}: make lessons"


def _shape(cell: Any) -> tuple[str, str, Any]:
    kept = {name: cell.metadata[name] for name in ("jupyter", "tags") if name in cell.metadata}
    return cell.cell_type, cell.source, kept


def _anchors(markdown: str) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    titles = (title for _, title in _HEADING.findall(_FENCE.sub("", markdown)))
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}
