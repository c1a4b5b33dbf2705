"""Every Python block of README.md and docs/*.md runs, and prints what the page says.

The blocks of one page share a namespace and a temporary folder. A block that holds the comment
``# not run`` is only compiled. An ``output`` block right after a block is what that block prints.
"""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w-]*)[^`]*")


@dataclass
class Block:
    """One fenced block of a page."""

    language: str
    code: str
    line: int
    adjoining: bool  # nothing but blank lines stands between this block and the one before

    @property
    def is_run(self) -> bool:
        """Whether the page wants this block executed."""
        return not re.search(r"^\s*# not run\b", self.code, re.MULTILINE)


def blocks_of(markdown: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    blocks: list[Block] = []
    opened: re.Match[str] | None = None
    lines: list[str] = []
    adjoining, start = False, 0
    for number, line in enumerate(markdown.splitlines(), 1):
        fence = FENCE.fullmatch(line)
        if opened is None and fence is not None:
            opened, lines, start = fence, [], number
        elif opened is None:
            adjoining = adjoining and not line.strip()
        elif line.strip() == opened["ticks"]:
            blocks.append(Block(opened["language"], "\n".join(lines) + "\n", start, adjoining))
            opened, adjoining = None, True
        else:
            lines.append(line.removeprefix(opened["indent"]))
    assert opened is None, f"the block that begins in line {start} has no end"
    return blocks


def run(block: Block, page: str, namespace: dict[str, Any]) -> str:
    """Run one block, or only compile it, and return what it printed; errors name the page's own line."""
    code = compile("\n" * block.line + block.code, page, "exec")
    printed = io.StringIO()
    if block.is_run:
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)  # noqa: S102 - the page's own code is what is tested
    return printed.getvalue()


def check(markdown: str, page: str = "<page>") -> dict[str, Any]:
    """Run a page from top to bottom and compare each output with the block that shows it."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = None
    for block in blocks_of(markdown):
        if block.language == "python":
            output = run(block, page, namespace)
            printed = output if block.is_run else None
        elif block.language == "output" and block.adjoining and printed is not None:
            assert (page, block.line, printed) == (page, block.line, block.code)
            printed = None
        else:
            printed = None
    return namespace


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who types the page's blocks in order sees what it shows."""
    monkeypatch.chdir(tmp_path)

    check(page.read_text(encoding="utf-8"), str(page))


def test_blocks_share_a_namespace_and_outputs_are_compared() -> None:
    """The second block uses the first one's name, and its output is the one shown."""
    namespace = check("```python\nx = 1\n```\ntext\n```python\nprint(x + 1)\n```\n\n```output\n2\n```\n")

    assert namespace["x"] == 1


def test_an_output_that_differs_fails() -> None:
    """A page can't show what its code doesn't print."""
    with pytest.raises(AssertionError, match="'1"):
        check("```python\nprint(1)\n```\n```output\n2\n```\n")


def test_a_block_that_is_not_run_must_still_compile() -> None:
    """The mark spares a block its execution, not its syntax."""
    namespace = check("```python\n# not run\nx = 1\n```\n```output\nwhatever\n```\n")

    assert "x" not in namespace
    with pytest.raises(SyntaxError):
        check("```python\n# not run\nx =\n```\n")


def test_other_languages_are_left_alone_and_indented_blocks_are_run() -> None:
    """A shell block isn't Python; a block inside a list is."""
    namespace = check("```sh\nfalse\n```\n- item\n\n  ```python\n  if True:\n      y = 2\n  ```\n")

    assert namespace["y"] == 2


def test_a_longer_fence_may_hold_a_shorter_one() -> None:
    """A page about pages shows a block without opening one."""
    (block,) = blocks_of("````markdown\n```python\nraise\n```\n````\n")

    assert block.language == "markdown"


def test_a_block_without_an_end_is_reported_by_its_line() -> None:
    """A forgotten fence doesn't swallow the rest of the page in silence."""
    with pytest.raises(AssertionError, match="line 2"):
        blocks_of("text\n```python\nx = 1\n")
