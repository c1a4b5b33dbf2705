"""The offline pages: complete, harmless, the same every time, and there as a whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from autocode.jobs.errors import ObjectMissing, UsageError
from autocode.jobs.operations.export.views import load_manifest
from autocode.jobs.operations.views.html import page as page_module
from autocode.jobs.operations.views.html import write_html
from autocode.jobs.operations.views.sources import bundle_sources
from autocode.jobs.store import LocalStore
from export_context import export
from view_attacks import ATTACKS, Page
from view_bundles import at, bundle, call, every_type, record, result, said, session

Records = list[dict[str, Any]]


def pages_of(tmp_path: Path, sources: dict[str, Records], **more: Any) -> dict[str, str]:
    """Write a bundle of *sources* as pages, and return them by path."""
    (tmp_path / "out").mkdir()
    root = write_html(*bundle(tmp_path, sources, **more), tmp_path / "out")
    return {str(path.relative_to(root)): path.read_text("utf-8") for path in root.rglob("*.html")}


def one_page(tmp_path: Path, records: Records, **more: Any) -> str:
    """Return the page of one session."""
    return pages_of(tmp_path, {"claude-code/s-1": records}, **more)["sessions/claude-code/s-1.html"]


def bare(html: str) -> str:
    """Return the text of a page, white space made even."""
    return " ".join(Page(html).text.split())


def test_every_record_is_on_the_page_and_can_be_linked_to(tmp_path: Path) -> None:
    """Each record's id is an anchor, once; every link to a place on the page has that place."""
    records = every_type()

    page = Page(one_page(tmp_path, records))

    expected = {f"r-{each['id']}" for each in records if each["type"] != "session"}
    assert expected - set(page.ids) == set()
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} - set(page.ids) == set()


@pytest.mark.parametrize(
    "words",
    [
        "Fix the parser",
        "It breaks on empty files.",
        "An empty file has no lines.",
        "only the provider can read it",
        "print('hello')",
        "queue-operation",
        "What an earlier session was about",
        "p.py +1 -1",
        "-b",
        "+c",
        "make: *** [test] Error 1",
        "Its call isn't in this transcript.",
        "Image, not loaded: https://images.invalid/one.png",
        "A document",
        "Context compacted (auto) at 155k tokens",
        "hologram",
        '"shape": "cube"',
        "120 out",
        "model-1",
        "2.1.33",
    ],
)
def test_the_page_shows(words: str, tmp_path: Path) -> None:
    """What each type of record has to say stands on the page."""
    assert words in bare(one_page(tmp_path, every_type()))


def test_an_error_is_told_outside_of_what_is_folded(tmp_path: Path) -> None:
    """The word and the first line of the error are there while the call is folded."""
    html = one_page(tmp_path, every_type())

    assert '<span class="bad">error</span>' in html
    assert '<p class="why">make: *** [test] Error 1</p>' in html


def attacked(attack: str) -> Records:
    """Return a session in which *attack* stands wherever a text can."""
    image = {"type": "image", "media_type": attack, "data": attack, "url": attack}
    return [
        session(cwd=attack, git_branch=attack, tool_version=attack, session_id=attack),
        said(attack, model=attack, usage={"output": 3}, message_id=attack),
        said(attack, "assistant", id="a", model=attack),
        said(attack, attack, id="x"),
        record("thinking", id="t", text=attack, encrypted=False),
        call(attack, {attack: attack, "command": attack, "list": [attack]}),
        result(attack, error=True),
        call("Edit", {"file_path": attack, "old_string": attack, "new_string": f"{attack}\n2"}, id="c2"),
        call("apply_patch", f"*** Begin Patch\n*** Update File: {attack}\n-{attack}", id="c3"),
        record(
            "tool_result",
            id="r2",
            call=None,
            is_error=None,
            content=[image, {"type": attack, "data": attack}],
        ),
        record("event", id="e", name=attack, data={attack: attack}),
        record("summary", id="s", text=attack),
        record("compaction", id="k", text=attack, trigger=attack, held={"items": attack, "sha256": attack}),
        record("unknown", id="u", name=attack, data=attack),
    ]


def test_no_text_leaves_its_place(tmp_path: Path) -> None:
    """Wherever a text of a transcript stands, it makes no element, attribute or address of its own."""
    everywhere = " ".join(ATTACKS)

    pages = pages_of(
        tmp_path,
        {f"claude-code/s-{number}": attacked(attack) for number, attack in enumerate(ATTACKS)},
        report={
            "models": list(ATTACKS),
            "damaged": [{"offset": 0, "length": 1, "reason": everywhere}],
        },
        damaged=1,
        lost=dict.fromkeys(ATTACKS, 1),
        redacted=dict.fromkeys(ATTACKS, 1),
        reader=everywhere,
    )

    assert len(pages) == len(ATTACKS) + 1
    for path, html in pages.items():
        page = Page(html)
        found = page.forbidden, page.sources, len(page.scripts), "ran=1" in "".join(page.scripts)
        assert found == ([], [], 3, False), path


def test_the_policy_allows_the_page_s_own_scripts_and_style_alone(tmp_path: Path) -> None:
    """The Content-Security-Policy names the digest of each script as it stands in the page."""
    html = one_page(tmp_path, every_type())

    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert policy is not None
    assert style is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].replace("&#39;", "'").split(";"))
    digests = {
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in Page(html).scripts
    }
    assert rules["default-src"] == "'none'"
    assert (rules["img-src"], rules["base-uri"], rules["form-action"]) == ("data:", "'none'", "'none'")
    assert digests <= set(rules["script-src"].split())
    assert "unsafe" not in policy[1]
    assert rules["style-src"] == (
        f"'sha256-{base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()}'"
    )


def test_only_raster_images_in_base64_are_shown(tmp_path: Path) -> None:
    """An SVG can hold a script, and data that isn't base64 can hold anything."""
    parts = [
        {"type": "image", "media_type": "image/png", "data": "iVBORw0KGgo="},
        {"type": "image", "media_type": "image/svg+xml", "data": "PHN2Zz4="},
        {"type": "image", "media_type": "image/png", "data": '" onerror="x'},
    ]

    page = Page(one_page(tmp_path, [session(), record("message", role="user", content=parts)]))

    assert page.sources == ["data:image/png;base64,iVBORw0KGgo="]
    assert "An image that isn't shown (image/svg+xml, 8 characters of data)." in page.text


def test_marks_of_redaction_are_marked(tmp_path: Path) -> None:
    """A mark stands out in prose, in code and in results, and isn't taken for Markdown."""
    mark = "[REDACTED:github-token:1]"
    records = [
        session(),
        said(f"the {mark} and `{mark}`"),
        call("Bash", {"command": f"x {mark}"}),
        result(mark),
    ]

    html = one_page(tmp_path, records)

    assert html.count(f'<mark class="gone" title="Redacted: github-token, number 1">{mark}</mark>') >= 3


def test_a_bare_address_is_a_link(tmp_path: Path) -> None:
    """An address in a sentence can be followed; one in code or in a link already stays as it is."""
    text = "See https://example.org/a?b=1&c=2. Or `https://example.org/code` or [x](https://example.org/x)."

    page = Page(one_page(tmp_path, [session(), said(text)]))

    links = [link for link in page.links if link.startswith("https:")]
    assert links == ["https://example.org/a?b=1&c=2", "https://example.org/x"]


def test_losses_and_damage_are_told(tmp_path: Path) -> None:
    """The top of the page says that something is missing, and the account says what."""
    text = bare(
        one_page(
            tmp_path,
            every_type(),
            report={"damaged": [{"offset": 512, "length": 80, "reason": "truncated"}]},
            lost={"lone-surrogate": 2, "thinking-signature": 4},
            damaged=1,
            damaged_bytes=80,
            redacted={"jwt": 3},
        )
    )

    assert "Not everything is on this page: 1 damaged span (80 bytes), 3 redacted secrets, 2 losses." in text
    assert "byte 512 80 bytes, truncated" in text
    assert "lone-surrogate 2: half characters, replaced by" in text
    assert "jwt 3" in text


def test_a_long_output_is_folded_and_complete(tmp_path: Path) -> None:
    """The first lines are seen at once; all the others are behind a line that says how many there are."""
    lines = [f"line {number}" for number in range(300)]

    html = one_page(tmp_path, [session(), call("Bash", {"command": "x"}), result("\n".join(lines))])

    assert "<summary>Show all 300 lines</summary>" in html
    blocks = re.findall(r"<pre>(line.*?)</pre>", html, re.DOTALL)
    assert "\n".join(blocks).split("\n") == lines


def test_blank_lines_of_an_output_stay(tmp_path: Path) -> None:
    """What stands in a result stands on the page to the letter."""
    html = one_page(tmp_path, [session(), call("Bash", {"command": "x"}), result("one\n\n\n  two\ttabs")])

    assert "<pre>one\n\n\n  two\ttabs</pre>" in html


def test_a_subagent_lies_where_it_was_called(tmp_path: Path) -> None:
    """Its transcript follows its call on the parent's page, folded, and it has no page of its own."""
    parent = [
        session(),
        said("go"),
        call("Task", {"description": "Look around"}),
        result("done", extra={"toolUseResult": {"agentId": "a1"}}),
        said("thanks", id="m2"),
    ]
    agent = [
        session(agent_id="a1"),
        said("Look", sidechain=True),
        said("Seen", "assistant", id="m2", sidechain=True),
    ]

    pages = pages_of(tmp_path, {"claude-code/s-1": parent, "claude-code/s-1.agents/a1": agent})

    html = pages["sessions/claude-code/s-1.html"]
    assert set(pages) == {"index.html", "sessions/claude-code/s-1.html"}
    places = [
        html.index(mark) for mark in ('id="r-c"', 'id="agent-a1"', 'id="a-a1-m"', 'id="a-a1-m2"', 'id="r-m2"')
    ]
    assert places == sorted(places)
    assert "Parent agent" in html
    assert 'href="sessions/claude-code/s-1.html#agent-a1">Subagent: Look around</a>' in pages["index.html"]


def test_subagents_of_one_name_have_anchors_of_their_own(tmp_path: Path) -> None:
    """Two files that call themselves the same are both shown, and no id stands twice."""
    parent = [session(), call("Task", {}), result("done", extra={"toolUseResult": {"agentId": "a1"}})]
    agent = [session(agent_id="a1"), said("Look")]

    html = pages_of(
        tmp_path,
        {
            "claude-code/s-1": parent,
            "claude-code/s-1.agents/a1": agent,
            "claude-code/s-1.agents/a1~0f": [*agent, session(agent_id="a1"), said("again")],
        },
    )["sessions/claude-code/s-1.html"]

    ids = Page(html).ids
    assert [each for each in ids if each.startswith("agent-")] == ["agent-a1", "agent-a1~0f", "agent-a1~0f.2"]
    assert len(ids) == len(set(ids))


def test_a_long_subagent_has_a_page_that_its_call_links_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would make a page heavy is a link away, there and back."""
    monkeypatch.setattr("autocode.jobs.operations.views.html.site.INLINE", 10)
    parent = [
        session(),
        call("Task", {"description": "Look around"}),
        result("done", extra={"toolUseResult": {"agentId": "a1"}}),
    ]

    pages = pages_of(
        tmp_path,
        {"claude-code/s-1": parent, "claude-code/s-1.agents/a1": [session(agent_id="a1"), said("Look")]},
    )

    assert 'href="s-1.agents/a1.html">Subagent: Look around</a>' in pages["sessions/claude-code/s-1.html"]
    assert 'href="../s-1.html"' in pages["sessions/claude-code/s-1.agents/a1.html"]
    assert 'href="../../../index.html"' in pages["sessions/claude-code/s-1.agents/a1.html"]


def test_subagents_that_no_call_names_are_at_the_end(tmp_path: Path) -> None:
    """A transcript is shown even where nothing says which call it belongs to."""
    pages = pages_of(
        tmp_path,
        {
            "claude-code/s-1": [session(), said("go")],
            "claude-code/s-1.agents/a1": [session(agent_id="a1"), said("Look")],
        },
    )

    assert "1 subagent that no call on this page names" in bare(pages["sessions/claude-code/s-1.html"])


def test_a_subagent_without_its_parent_has_a_page(tmp_path: Path) -> None:
    """It is in the index like a session."""
    pages = pages_of(tmp_path, {"claude-code/s-1.agents/a1": [session(agent_id="a1"), said("Look")]})

    assert 'href="sessions/claude-code/s-1.agents/a1.html"' in pages["index.html"]


def test_each_session_of_a_source_has_a_page(tmp_path: Path) -> None:
    """A source is parted at its session records."""
    records = [session(), said("one"), session(session_id="s-2"), said("two")]

    pages = pages_of(tmp_path, {"aider/history": records})

    assert sorted(pages) == [
        "index.html",
        "sessions/aider/history.0001.html",
        "sessions/aider/history.0002.html",
    ]
    assert "two" not in bare(pages["sessions/aider/history.0001.html"]).split("Account")[0]
    assert "two" in bare(pages["sessions/aider/history.0002.html"])


def test_a_source_in_parts_is_one_page(tmp_path: Path) -> None:
    """Where a source was cut for reading makes no difference to who reads it."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = one_page(tmp_path / "whole", every_type())
    parts = one_page(tmp_path / "parts", every_type(), part_length=4)

    assert parts == whole


def test_the_index_groups_sessions_by_folder_the_newest_first(tmp_path: Path) -> None:
    """Folders are in the order of their newest session; title, else the first prompt, names a session."""
    pages = pages_of(
        tmp_path,
        {
            "claude-code/a": [session(at=at(0), cwd="/one"), said("oldest", at=at(1))],
            "claude-code/b": [session(at=at(100), cwd="/two"), said("newer", at=at(101))],
            "codex/c": [session(at=at(200), cwd="/one"), said("newest", at=at(201))],
        },
    )

    text = bare(pages["index.html"])
    places = [
        text.index(words) for words in ("/one 2", "newest codex", "oldest claude", "/two 1", "newer claude")
    ]
    assert places == sorted(places)
    assert "3 sessions in 2 folders" in text


def test_the_same_bundle_gives_the_same_bytes(tmp_path: Path) -> None:
    """Two runs, into two places, differ in nothing."""
    store, digest = bundle(tmp_path, {"claude-code/s-1": every_type()})
    roots = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        roots.append(write_html(store, digest, tmp_path / name))

    first, second = ({path.name: path.read_bytes() for path in root.rglob("*.html")} for root in roots)
    assert first == second


def test_pages_belong_to_their_owner_alone(tmp_path: Path) -> None:
    """Conversations are private, also as pages."""
    root = write_html(*bundle(tmp_path, {"claude-code/s-1": every_type()}), tmp_path)

    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in [root, *root.rglob("*")]} == {0}


def test_a_changed_page_is_not_replaced(tmp_path: Path) -> None:
    """What is there and is another view stays, and the error names what differs."""
    store, digest = bundle(tmp_path, {"claude-code/s-1": every_type()})
    root = write_html(store, digest, tmp_path)
    (root / "index.html").write_text("mine")

    with pytest.raises(UsageError, match=r"'index\.html' is another"):
        write_html(store, digest, tmp_path)

    assert (root / "index.html").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([root.name, "store"])


def test_nothing_is_left_behind_when_a_session_is_missing(tmp_path: Path) -> None:
    """Pages appear together or not at all."""
    store, digest = bundle(tmp_path, {"claude-code/a": every_type(), "claude-code/b": [session(), said("x")]})
    victim = next(each for each in store.list() if b'"x"' in store.open(each).read_all(limit=1 << 20))
    store.delete(victim)
    (tmp_path / "out").mkdir()

    with pytest.raises(ObjectMissing):
        write_html(store, digest, tmp_path / "out")

    assert list((tmp_path / "out").iterdir()) == []


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    """The next run in the same folder takes away what nobody writes any more."""
    store, digest = bundle(tmp_path, {"claude-code/s-1": every_type()})
    (tmp_path / "out" / ".autocode-export-0123456789abcdef.partial" / "sessions").mkdir(parents=True)

    root = write_html(store, digest, tmp_path / "out")

    assert list((tmp_path / "out").iterdir()) == [root]


def test_progress_counts_every_record_twice(tmp_path: Path) -> None:
    """The last call tells that all is done, and none tells more."""
    told: list[tuple[int, int]] = []

    write_html(
        *bundle(
            tmp_path,
            {
                "claude-code/s-1": every_type(),
                "claude-code/s-1.agents/a1": [session(agent_id="a1"), said("Look")],
            },
        ),
        tmp_path,
        lambda done, total: told.append((done, total)),
    )

    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_who_stops_it_leaves_nothing_behind(tmp_path: Path) -> None:
    """A progress function may raise; the error passes unchanged."""
    store, digest = bundle(tmp_path, {"claude-code/s-1": every_type()})
    (tmp_path / "out").mkdir()

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_html(store, digest, tmp_path / "out", stop)

    assert list((tmp_path / "out").iterdir()) == []


def test_memory_follows_the_longest_record_and_not_the_session(tmp_path: Path) -> None:
    """While a page is written, the blocks that are alive at once stay few."""
    records = [session(), *(said("x" * 8000, "assistant", id=f"m{number}") for number in range(700))]
    store, digest = bundle(tmp_path, {"claude-code/s-1": records})
    sizes: list[int] = []
    tracemalloc.start()
    write_html(
        store, digest, tmp_path, lambda _done, _total: sizes.append(tracemalloc.get_traced_memory()[0])
    )
    tracemalloc.stop()

    assert max(sizes) - sizes[0] < 3_000_000


@pytest.mark.needs_samples
def test_real_sessions_become_light_pages(tmp_path: Path) -> None:
    """Every page of the samples is harmless, and none is twice as large as its records, and the style."""
    store, digest = export(Path(os.environ["AUTOCODE_SAMPLES"]), tmp_path)

    root = write_html(store, digest, tmp_path)

    sizes = {source.path: source.size for source in bundle_sources(load_manifest(store, digest))}
    for path in root.rglob("*.html"):
        page = Page(path.read_text("utf-8"))
        stem = re.sub(r"(\.[0-9]{4})?\.html$", "", str(path.relative_to(root)))
        assert page.forbidden == []
        assert len(page.ids) == len(set(page.ids))
        if stem != "index":
            assert path.stat().st_size < 2 * sizes[f"data/{stem}"] + 60_000


def test_the_limit_of_a_page_is_documented() -> None:
    """The size up to which a subagent lies in its parent's page is the one that docs/views.md gives."""
    assert page_module.INLINE == 512 << 10


def test_the_store_is_only_read(tmp_path: Path) -> None:
    """A view adds nothing to the store and takes nothing away."""
    store, digest = bundle(tmp_path, {"claude-code/s-1": every_type()})
    before = sorted(store.list())

    write_html(store, digest, tmp_path)

    assert isinstance(store, LocalStore)
    assert sorted(store.list()) == before


def test_a_branch_is_folded_and_leads_to_where_it_forks(tmp_path: Path) -> None:
    """What a user left isn't passed off as the conversation."""
    records = [
        session(tool="chatgpt"),
        said("Which?", id="p1"),
        said("This one", "assistant", id="a1", parent="p1", source={"offset": 1, "length": 9}),
        said("Another", "assistant", id="a2", parent="p1", sidechain=True),
    ]

    html = one_page(tmp_path, records)

    assert "Branch not taken, forked from “Which?”" in bare(html)
    branch = html.index('id="r-a2.branch"')
    assert 'href="#r-p1" dir="auto">“Which?”</a>' in html[branch:]
    assert (
        html.index("<details>", branch) < html.index('id="r-a2"') < html.index("</details></section>", branch)
    )


def test_lines_that_a_user_typed_stay_lines(tmp_path: Path) -> None:
    """A prompt is read as it was typed; an answer is Markdown, whose line ends are spaces."""
    html = one_page(tmp_path, [session(), said("one\ntwo"), said("three\nfour", "assistant", id="a")])

    assert "<p>one<br>\ntwo</p>" in html
    assert "<p>three\nfour</p>" in html


def zoneless() -> Records:
    """Return a session whose times have no zone."""
    return [
        session(raw_at="2024-08-05 19:33:12"),
        said("go", id="p1", raw_at="2024-08-05T19:34:00.5"),
        said("done", "assistant", id="a1", raw_at="2024-08-05T19:35:12"),
    ]


def test_times_without_a_zone_are_shown_as_they_stand(tmp_path: Path) -> None:
    """Nothing is made up, and nothing that the file says is withheld."""
    pages = pages_of(tmp_path, {"claude-code/s-1": zoneless()}, lost={"absurd-time": 3})

    html = pages["sessions/claude-code/s-1.html"]
    text = bare(html)
    assert "5 Aug 2024, 19:33 to 19:35 (local time, zone not stated)" in text
    assert "Duration2 min" in text
    assert "absurd-time 3: times without a zone, shown as they stand" in text
    assert "Not everything is on this page" not in text
    assert "User19:34 local time" in text
    assert 'title="2024-08-05 19:35:12.000 (local time, zone not stated)"' in html
    assert "5 Aug 2024, 19:33local time, zone not stated" in bare(pages["index.html"])
