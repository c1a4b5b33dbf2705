"""Stored lessons keep the rules, and the rules find what breaks them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from notebooks.hygiene import FOLDER, HEADINGS, LESSONS, RULES, problems

Notebook = dict[str, Any]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_keeps_the_rules(lesson: Path) -> None:
    """No rule finds anything in a stored lesson."""
    found = problems(lesson)

    assert found == [], "\n".join(found)


def test_every_text_has_its_notebook_and_the_other_way_round() -> None:
    """For each lesson there are both files."""
    texts = [path.stem for path in sorted(FOLDER.glob("[0-9]*.py"))]

    assert texts == [path.stem for path in LESSONS]
    assert texts != []


def code(notebook: Notebook, number: int) -> Any:
    """Return the code cell with the execution count *number*."""
    return next(cell for cell in notebook["cells"] if cell.get("execution_count") == number)


def printing(text: str) -> list[Any]:
    """Return outputs that print *text*."""
    return [{"output_type": "stream", "name": "stdout", "text": text}]


def markdown(notebook: Notebook, text: str) -> None:
    """Add a paragraph at the end."""
    notebook["cells"].append({"cell_type": "markdown", "id": "more", "metadata": {}, "source": text})


def picture(**metadata: Any) -> list[Any]:
    """Return outputs that show a picture."""
    return [{"output_type": "display_data", "data": {"image/png": "AA=="}, "metadata": metadata}]


BREAKS: dict[str, tuple[str, Callable[[Notebook], Any]]] = {
    "cleared": ("aren't executed", lambda n: code(n, 2).update(execution_count=None, outputs=[])),
    "executed twice": ("aren't executed", lambda n: code(n, 2).update(execution_count=7)),
    "an output of an earlier execution": (
        "output of another execution",
        lambda n: code(n, 2).update(
            outputs=[{"output_type": "execute_result", "execution_count": 9, "data": {}, "metadata": {}}]
        ),
    ),
    "an error": (
        "ended with an error",
        lambda n: code(n, 2).update(
            outputs=[{"output_type": "error", "ename": "E", "evalue": "", "traceback": []}]
        ),
    ),
    "stderr": (
        "wrote on stderr",
        lambda n: code(n, 2).update(outputs=[{"output_type": "stream", "name": "stderr", "text": "x"}]),
    ),
    "a time": ("shows a time", lambda n: code(n, 2).update(outputs=printing("at 2026-01-02T03:04:05Z"))),
    "a time of day": ("shows a time", lambda n: code(n, 2).update(outputs=printing("due at 03:04:05"))),
    "a uuid": (
        "shows a UUID",
        lambda n: code(n, 2).update(outputs=printing("run 8c7c9a4e-1f0b-4a5e-9d2c-0123456789ab")),
    ),
    "a path": ("shows an absolute path", lambda n: code(n, 2).update(outputs=printing("in /tmp/lesson/x"))),
    "a port": ("shows a port", lambda n: code(n, 2).update(outputs=printing("http://127.0.0.1:4200"))),
    "a job id": (
        "shows a job's id",
        lambda n: code(n, 2).update(outputs=printing("export-20260102-030405-abcdef")),
    ),
    "a picture without words": ("without alt text", lambda n: code(n, 2).update(outputs=picture())),
    "a picture in the text without words": ("no alt text", lambda n: markdown(n, "![](a.png)")),
    "a second title": ("one title", lambda n: markdown(n, "# Again")),
    "a level left out": ("level 4 follows", lambda n: markdown(n, "#### Deep")),
    "a heading missing": (
        "in this order",
        lambda n: n["cells"][0].update(source=n["cells"][0]["source"].replace("## Predict", "## Guess")),
    ),
    "times of execution": ("metadata of a machine", lambda n: code(n, 2)["metadata"].update(execution={})),
    "a version of a machine": (
        "metadata of a machine",
        lambda n: n["metadata"].update(language_info={"name": "python", "version": "3.11.0"}),
    ),
    "another kernel": ("isn't python3", lambda n: n["metadata"]["kernelspec"].update(name="julia")),
    "an unknown tag": ("unknown tags", lambda n: code(n, 2)["metadata"].update(tags=["nbval-skip"])),
    "a skip": ("is skipped", lambda n: code(n, 2).update(source="# NBVAL_SKIP\n1")),
    "no solution": ("as the solution", lambda n: code(n, 2)["metadata"].update(tags=[])),
    "a semicolon": ("a semicolon", lambda n: code(n, 2).update(source="1;")),
    "no end": ("isn't lesson.stop()", lambda n: code(n, 3).update(source="1")),
    "a dead link": ("leads nowhere", lambda n: markdown(n, "[x](../docs/nowhere.md)")),
    "a dead anchor": ("leads to no heading", lambda n: markdown(n, "[x](../docs/engine.md#nowhere)")),
    "an old digest": ("no cell prints", lambda n: markdown(n, "It is `0123456789ab`.")),
    "another text": ("differs from", lambda n: code(n, 2).update(source="2")),
    "too many cells": (
        "code cells; at most",
        lambda n: n["cells"].extend(copy.deepcopy(code(n, 2)) | {"id": f"c{i}"} for i in range(30)),
    ),
    "too large": ("bytes; at most", lambda n: code(n, 2).update(outputs=printing("x" * 250_000))),
    "no valid notebook": ("no valid notebook", lambda n: code(n, 2).pop("outputs")),
}


@pytest.fixture
def small(tmp_path: Path) -> tuple[Notebook, Path]:
    """Give a small notebook that keeps every rule, and the text that belongs to it."""
    title = "\n\n".join(["# A title", *(f"## {heading}" for heading in HEADINGS)])
    sources = ["lesson = 1", "1 + 1", "lesson.stop()"]
    prose = {"cell_type": "markdown", "id": "top", "metadata": {}, "source": title}
    cells = [
        {
            "cell_type": "code",
            "id": f"cell-{number}",
            "metadata": {"tags": ["solution"]} if number == 2 else {},
            "source": source,
            "execution_count": number,
            "outputs": [],
        }
        for number, source in enumerate(sources, 1)
    ]
    notebook: Notebook = {
        "cells": [prose, *cells],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    text = tmp_path / "small.py"
    commented = "\n".join(f"# {line}".rstrip() for line in title.split("\n"))
    text.write_text(
        f"# %% [markdown]\n{commented}\n\n# %%\nlesson = 1\n\n"
        '# %% tags=["solution"]\n1 + 1\n\n# %%\nlesson.stop()\n'
    )
    return notebook, text


def found_in(notebook: Notebook, text: Path) -> list[str]:
    """Return the problems of *notebook*, stored beside *text*."""
    path = text.with_suffix(".ipynb")
    path.write_text(json.dumps(notebook))
    return problems(path, text=text)


def test_a_notebook_that_keeps_the_rules_is_left_in_peace(small: tuple[Notebook, Path]) -> None:
    """The rules find nothing in the notebook that the following test breaks."""
    found = found_in(*small)

    assert found == []


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_rule_is_found(small: tuple[Notebook, Path], name: str) -> None:
    """Each way to break a rule is told in words."""
    notebook, text = small
    told, breaking = BREAKS[name]
    breaking(notebook)

    found = found_in(notebook, text)

    assert any(told in problem for problem in found), found


def test_every_rule_is_broken_by_something(small: tuple[Notebook, Path]) -> None:
    """The list of breaks leaves out no rule."""
    notebook, text = small
    broken: set[str] = set()

    for name, (_, breaking) in BREAKS.items():
        if name == "no valid notebook":
            continue
        copied = copy.deepcopy(notebook)
        breaking(copied)
        opened = nbformat.from_dict(copied)  # type: ignore[no-untyped-call]
        broken |= {rule for rule, finds in RULES.items() if list(finds(opened, text))}

    assert broken == set(RULES)
