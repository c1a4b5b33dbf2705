"""Every command of ours that a message or a page tells people to give is one that can be given."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from autocode.jobs.cli.commands import app

ROOT = Path(__file__).parents[2]
# the aids for tests tell what was run, and not what to run
SOURCES = sorted(path for path in (ROOT / "src").rglob("*.py") if "testing" not in path.parts)
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])

# a command is told behind a colon, in backticks, on a line of its own, or alone in its text
TOLD = re.compile(r"(?:^\s*(?:\$ )?|: |`|at once: )autocode-jobs (?P<rest>[^`\n]+)", re.MULTILINE)
END = re.compile(r"\s(?:#|\||with `|what the|what would|the whole)|, | — |\s{2,}|; |\? |$")
FENCE = re.compile(r"```(?:sh|console)\n(.*?)```", re.DOTALL)


def texts(path: Path) -> Iterator[str]:
    """Yield each text of a module as it may be printed, with an X for what is filled in; no docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    skipped = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


def commands(text: str) -> Iterator[str]:
    """Yield what stands behind the program's name, to the end of the command."""
    for told in TOLD.finditer(text):
        end = END.search(told["rest"])
        assert end is not None
        command = told["rest"][: end.start()].strip()
        # "autocode-jobs 1.2.3" is the program's name
        if command != "X":
            yield command


def refusal(command: str) -> str | None:
    """Return why the command line refuses *command*, by its words alone; nothing is done."""
    words = shlex.split(command)
    if words[-1].endswith("."):
        return "a full stop would be copied with it"
    if "--help" in words:
        words.remove("--help")
    try:
        app.parse_args(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_is_told_is_taken(path: Path) -> None:
    """Whoever copies a command from a message or a page isn't told that something is missing or unknown."""
    told = texts(path) if path.suffix == ".py" else FENCE.findall(path.read_text("utf-8"))

    refused = {each: why for text in told for each in commands(text) if (why := refusal(each)) is not None}

    assert refused == {}


def test_the_walk_finds_the_commands() -> None:
    """The search sees the commands of messages, in whatever way they are told."""
    found = {each for path in SOURCES for text in texts(path) for each in commands(text)}

    assert {"jobs retry X --reason TEXT", "artifacts get X", "export PATH", "up", "doctor"} <= found
    assert len(found) > 40
