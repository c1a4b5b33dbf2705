"""The Markdown files: readable anywhere, harmless where HTML is obeyed, the same every time."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from autocode.jobs.operations.views.markdown import write_markdown
from autocode.jobs.operations.views.markdown.text import fenced, inline, prose
from export_context import export
from view_attacks import ATTACKS, Page
from view_bundles import at, bundle, call, every_type, record, result, said, session

Records = list[dict[str, Any]]

# GitHub and Obsidian obey HTML in Markdown; so does this one
_OWN = {"p", "code", "pre", "em", "strong", "blockquote", "ul", "ol", "li", "hr", "br", "a", "s", "h1", "h2"}
_OBEDIENT = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def files_of(tmp_path: Path, sources: dict[str, Records], **more: Any) -> dict[str, str]:
    """Write a bundle of *sources* as Markdown, and return the files by path."""
    (tmp_path / "out").mkdir()
    root = write_markdown(*bundle(tmp_path, sources, **more), tmp_path / "out")
    return {str(path.relative_to(root)): path.read_text("utf-8") for path in root.rglob("*.md")}


def one_file(tmp_path: Path, records: Records, **more: Any) -> str:
    """Return the file of one session."""
    return files_of(tmp_path, {"claude-code/s-1": records}, **more)["sessions/claude-code/s-1.md"]


def rendered(text: str) -> Page:
    """Return what a renderer that obeys HTML makes of a file, without its front matter."""
    html = _OBEDIENT.render(text.split("\n---\n", 1)[1] if text.startswith("---\n") else text)
    # how the renderer aligns the columns of the index
    return Page(html.replace(' style="text-align:right"', ""))


@pytest.mark.parametrize(
    "words",
    [
        "**Fix the parser**\n\nIt breaks on *empty* files.",
        "> An empty file has no lines.",
        "*Thought: only the provider can read it*",
        "```python\nprint('hello')\n```",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "1 event: queue-operation",
        "**Summary**: What an earlier session was about",
        "<summary>Edit: p.py +1 -1</summary>",
        "```diff\n a\n-b\n+c\n```",
        "<summary>Bash: make test · <b>error</b></summary>",
        "make: *** [test] Error 1",
        "**Context compacted (auto) at 155k tokens**: Compacted",
        "hologram, not understood",
        "## User · 22:00 UTC",
        "## Assistant · 22:00 UTC · model-1",
    ],
)
def test_the_file_shows(words: str, tmp_path: Path) -> None:
    """What each type of record has to say stands in the file."""
    assert words in one_file(tmp_path, every_type())


def attacked(attack: str) -> Records:
    """Return a session in which *attack* stands wherever a text can."""
    image = {"type": "image", "media_type": attack, "data": attack, "url": attack}
    return [
        session(cwd=attack, git_branch=attack, tool_version=attack, session_id=attack),
        said(attack, model=attack),
        said(f"a paragraph\n{attack}", "assistant", id="a", model=attack),
        said(attack, attack, id="x"),
        record("thinking", id="t", text=attack, encrypted=False),
        call(attack, {attack: attack, "command": attack, "list": [attack]}),
        result(attack, error=True),
        call("Edit", {"file_path": attack, "old_string": attack, "new_string": f"{attack}\n2"}, id="c2"),
        record(
            "tool_result",
            id="r2",
            call=None,
            is_error=None,
            content=[image, {"type": attack, "data": attack}],
        ),
        record("message", id="i", role="user", content=[image, {"type": "text", "text": attack}]),
        record("event", id="e", name=attack, data={attack: attack}),
        record("summary", id="s", text=attack),
        record("compaction", id="k", text=attack, trigger=attack, held={"items": attack, "sha256": attack}),
        record("unknown", id="u", name=attack, data=attack),
    ]


def test_no_text_is_obeyed(tmp_path: Path) -> None:
    """A renderer that obeys HTML finds none of a transcript's, and nothing that it would load or run."""
    everywhere = " ".join(ATTACKS)

    files = files_of(
        tmp_path,
        {f"claude-code/s-{number}": attacked(attack) for number, attack in enumerate(ATTACKS)},
        report={"damaged": [{"offset": 0, "length": 1, "reason": everywhere}]},
        damaged=1,
        lost=dict.fromkeys(ATTACKS, 1),
        reader=everywhere,
    )

    assert len(files) == len(ATTACKS) + 1
    for path, text in files.items():
        page = rendered(text)
        # a scheme that nothing knows stands before an address that was taken out of use
        forbidden = [each for each in page.forbidden if not each.startswith("unsafe:")]
        assert (forbidden, page.sources, page.scripts) == ([], [], []), path


@given(st.text(alphabet=st.sampled_from("`~<>!/?&[]()# \n\\abd:=-*_|'\"x"), max_size=60))
def test_no_prose_becomes_html(text: str) -> None:
    """Whatever is written, a renderer that obeys HTML finds no element but those of Markdown."""
    html = _OBEDIENT.render(prose(text))
    tags = set(re.findall(r"<(?!/)([^\s>/]+)", html))

    assert tags <= _OWN


@given(st.text(alphabet=st.sampled_from("`~ \nab"), max_size=80))
def test_a_fence_survives_what_is_in_it(text: str) -> None:
    """A text in a fence comes out of a renderer as it went in, and what follows is outside."""
    expected = text.strip("\n")

    tokens = _OBEDIENT.parse(f"{fenced(text)}\n\nafter\n")

    assert [token.type for token in tokens] == ["fence", "paragraph_open", "inline", "paragraph_close"]
    assert tokens[0].content.rstrip("\n") == expected.rstrip("\n")


def test_a_fence_that_was_left_open_is_closed() -> None:
    """An answer that broke off inside a code block doesn't swallow the rest of the file."""
    tokens = _OBEDIENT.parse(prose("Look:\n\n~~~py\nx = 1") + "\n\nafter\n")

    assert [token.content for token in tokens if token.type == "inline"] == ["Look:", "after"]


def test_a_long_result_is_cut_and_says_by_how_much(tmp_path: Path) -> None:
    """What is left out is counted; the bundle has it."""
    lines = "\n".join(f"line {number}" for number in range(1000))

    text = one_file(tmp_path, [session(), call("Bash", {"command": "x"}), result(lines)])

    assert "line 399\n```\n\n*600 lines (5,399 characters) more in the bundle.*" in text


def test_the_front_matter_has_the_facts(tmp_path: Path) -> None:
    """YAML gives them as values."""
    text = one_file(tmp_path, every_type(), report={"title": 'A "title": yes'})

    facts = yaml.safe_load(text.split("---\n")[1])
    assert facts["title"] == 'A "title": yes'
    assert (facts["tool"], facts["session_id"], facts["models"]) == ("claude-code", "s-1", ["model-1"])
    assert (facts["prompts"], facts["tool_calls"], facts["tool_errors"]) == (2, 2, 1)
    assert facts["tokens"] == {"output": 120}
    assert facts["bundle_path"] == "data/sessions/claude-code/s-1.jsonl"


def test_links_lead_to_files(tmp_path: Path) -> None:
    """Every link in the index and to a subagent has its file."""
    sources = {
        "claude-code/s-1": [
            session(at=at(0)),
            said("go | *now*"),
            call("Task", {"description": "Look around"}),
            result("done", extra={"toolUseResult": {"agentId": "a1"}}),
        ],
        "claude-code/s-1.agents/a1": [session(agent_id="a1"), said("Look", sidechain=True)],
    }

    files = files_of(tmp_path, sources)

    assert sorted(files) == [
        "index.md",
        "sessions/claude-code/s-1.agents/a1.md",
        "sessions/claude-code/s-1.md",
    ]
    links = {path: rendered(text).links for path, text in files.items()}
    assert links["index.md"] == ["sessions/claude-code/s-1.md", "sessions/claude-code/s-1.agents/a1.md"]
    assert links["sessions/claude-code/s-1.md"] == ["s-1.agents/a1.md"]


@pytest.mark.parametrize(
    "text",
    [
        "[x](javascript:run)",
        "[x]( JavaScript:run)",
        "[x]: vbscript:run",
        "[x](\ndata:text/html,x)",
        "[x](file:///etc)",
    ],
)
def test_an_address_that_would_run_is_taken_out_of_use(text: str) -> None:
    """Not every renderer refuses such addresses by itself."""
    assert re.search(r"unsafe:(?:javascript|vbscript|data|file):", prose(text), re.IGNORECASE)


def test_words_that_look_like_addresses_stay() -> None:
    """Only where an address can stand is anything put before it."""
    text = "The data: all of it. A file: one. See [x](https://example.org/javascript:y)."

    assert prose(text) == text


def test_a_title_stays_in_its_cell() -> None:
    """No mark of Markdown in a title means anything."""
    assert inline("a | b\n[c](d) *e* <f> `g`") == r"a \| b \[c\](d) \*e\* \<f\> \`g\`"


def test_the_same_bundle_gives_the_same_bytes(tmp_path: Path) -> None:
    """Two runs, into two places, differ in nothing."""
    store, digest = bundle(tmp_path, {"claude-code/s-1": every_type()})
    roots = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        roots.append(write_markdown(store, digest, tmp_path / name))

    first, second = ({path.name: path.read_bytes() for path in root.rglob("*.md")} for root in roots)
    assert first == second


@pytest.mark.needs_samples
def test_real_sessions_are_harmless(tmp_path: Path) -> None:
    """A renderer that obeys HTML finds nothing in the samples to obey."""
    root = write_markdown(*export(Path(os.environ["AUTOCODE_SAMPLES"]), tmp_path), tmp_path)

    for path in root.rglob("*.md"):
        page = rendered(path.read_text("utf-8"))
        assert (page.forbidden, page.sources, page.scripts) == ([], [], [])


_TAG = "<img src=//example.org/p onerror=alert(1)>"
_RUN = "javascript:alert(1)"


@pytest.mark.parametrize(
    "text",
    [
        f"\\`{_TAG}`",
        f"a `b\nc` {_TAG} `d",
        f"- a\n\n  ```\n  code\n{_TAG}",
        f"1. x\n\n   ~~~\n{_TAG}",
        f"```\n```\u00a0\n```\n{_TAG}",
        "!![i](//example.org/i.png)",
        "a `b\nc` ![i](//example.org/i.png) `d",
        f"[x]({' ' * 11}{_RUN})",
        f"[x](\n{' ' * 11}{_RUN})",
        f"> [x](\n> {_RUN})",
        f"> [x]:\n> {_RUN}\n\n[x]",
    ],
)
def test_where_code_ends_is_what_commonmark_says(text: str) -> None:
    """A text whose code ends elsewhere than it seems is shown as code, whole."""
    parser = MarkdownIt("commonmark", {"html": True})

    shown = prose(text)

    tokens = parser.parse(shown)
    assert [token.type for token in tokens] == ["fence"]
    assert tokens[0].content == text + "\n"


def test_a_branch_has_a_heading_of_its_own(tmp_path: Path) -> None:
    """What a user left isn't merged with the answer before it."""
    records = [
        session(tool="chatgpt"),
        said("Which?", id="p1"),
        said("This one", "assistant", id="a1", parent="p1", source={"offset": 1, "length": 9}),
        said("Another", "assistant", id="a2", parent="p1", sidechain=True),
    ]

    text = one_file(tmp_path, records)

    assert "This one\n\n---\n\n## Branch not taken, forked from “Which?”\n\n## Assistant\n\nAnother" in text


def test_times_without_a_zone_are_shown_as_they_stand(tmp_path: Path) -> None:
    """They have names of their own in the front matter, and say what they lack."""
    records = [session(raw_at="2024-08-05 19:33:12"), record("event", name="output", data={"text": "x"})]

    files = files_of(tmp_path, {"aider/s-1": records}, lost={"absurd-time": 1})

    text = files["sessions/aider/s-1.md"]
    assert yaml.safe_load(text.split("---\n")[1])["begun_local"] == "2024-08-05T19:33:12.000"
    assert "--:--:--" not in text
    assert "| 5 Aug 2024, 19:33 (local time, zone not stated) |" in files["index.md"]


def test_nothing_is_folded_that_is_empty(tmp_path: Path) -> None:
    """A result without text is a word, not a fold to open in vain."""
    records = [session(), call("Bash", {"command": "x"}), result(""), result("", id="r2", call=None)]

    text = one_file(tmp_path, records)

    assert text.count("<details>") == 1
    assert "Result: *empty*" in text
    assert "*An empty result. Its call isn't in this transcript.*" in text


def test_a_cost_has_no_noise_of_floats(tmp_path: Path) -> None:
    """A sum of costs is told to a millionth of a dollar."""
    records = [session(), *(said("x", "assistant", id=f"a{n}", cost_usd=0.1) for n in range(3))]

    assert "\ncost_usd: 0.3\n" in one_file(tmp_path, records)


def test_the_conversation_goes_on_under_a_heading(tmp_path: Path) -> None:
    """Behind an aside stands where the reader is; events alone are no conversation."""
    aside = said("Look", id="s1", sidechain=True)
    event = record("event", id="e", name="fields", data={})

    text = one_file(tmp_path, [session(), said("go", id="p1"), aside, said("done", "assistant", id="a1")])
    (tmp_path / "other").mkdir()
    other = one_file(tmp_path / "other", [session(), said("go", id="p1"), aside, event])

    assert "## Aside: a subagent or a branch\n\n## User\n\nLook\n\n---\n\n## Back in the conversation" in text
    assert "Look\n\n---\n\n<details><summary>1 event" in other
