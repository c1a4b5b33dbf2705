"""The offline pages in a browser: nothing leaves them, nothing in them runs, and people can use them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect

from autocode.jobs.operations.views.html import write_html
from view_attacks import ATTACKS
from view_bundles import at, bundle, call, every_type, record, result, said, session

WIDTHS: Final = (360, 768, 1280)
LONG: Final = "\n".join(f"output line {number}" for number in range(200))
IN_VIEW: Final = """new Promise((done) => {
    const look = () => {
        const top = [...CSS.highlights.get("here")][0].getBoundingClientRect().top;
        if (top > 100 && top < 700) done(true); else requestAnimationFrame(look);
    };
    look();
})"""
"""Resolves once the match that is looked at is in the middle of the window."""

UNBROKEN: Final = "x" * 400


def talk() -> list[dict[str, Any]]:
    """Return a session with several prompts, an error, a long output and what could make a page too wide."""
    table = "| a | b |\n|---|---|\n" + f"| {'word ' * 30} | {UNBROKEN} |\n"
    rounds = [
        each
        for number in range(1, 5)
        for each in (
            said(f"Prompt number {number}", id=f"q{number}", at=at(100 * number)),
            said(f"Answer number {number}\n\n{table}", "assistant", id=f"b{number}", at=at(100 * number + 5)),
            call("Bash", {"command": f"make {UNBROKEN}"}, id=f"d{number}", at=at(100 * number + 6)),
            result(f"{LONG}\n{UNBROKEN}", id=f"s{number}", call=f"d{number}", at=at(100 * number + 9)),
        )
    ]
    agent = call("Task", {"description": "Look around"}, id="task", call_id="task-1", at=at(600))
    told = result(
        "done", id="told", call="task", call_id="task-1", extra={"toolUseResult": {"agentId": "a1"}}
    )
    return [*every_type(), *rounds, agent, told]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of a bundle with ordinary sessions, a subagent and attacks."""
    home = tmp_path_factory.mktemp("pages")
    attacks = [
        each
        for number, attack in enumerate(ATTACKS)
        for each in (
            said(attack, id=f"m{number}"),
            said(attack, "assistant", id=f"a{number}"),
            call(attack, {"command": attack}, id=f"c{number}"),
            result(attack, error=True, id=f"r{number}", call=f"c{number}"),
            record("unknown", id=f"u{number}", name=attack, data=attack),
        )
    ]
    sources = {
        "claude-code/talk": talk(),
        "claude-code/talk.agents/a1": [session(agent_id="a1"), said("Find the needle", id="m1", at=at(601))],
        "claude-code/attacks": [session(session_id="attacks", cwd="/home/dev/other"), *attacks],
        "codex/short": [session(session_id="short", tool="codex", at=at(0)), said("A short one", at=at(1))],
    }
    return write_html(*bundle(home, sources, lost={"lone-surrogate": 2}, redacted={"jwt": 1}), home)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own, whose errors and requests fail the test at its end."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: troubles.append(dialog.message))
    context.on(
        "request", lambda request: None if request.url.startswith("file:") else troubles.append(request.url)
    )
    yield page
    assert page.evaluate("window.ran") is None
    assert troubles == []
    context.close()


def opened(page: Page, root: Path, name: str = "claude-code/talk") -> Page:
    """Open a session's page, or the index."""
    page.goto((root / (f"sessions/{name}.html" if "/" in name else f"{name}.html")).as_uri())
    return page


@pytest.mark.parametrize("name", ["index", "claude-code/talk", "claude-code/attacks"])
def test_a_page_asks_for_itself_and_nothing_else(name: str, page: Page, root: Path) -> None:
    """Also with everything open and every image on screen, the page is the only request."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    opened(page, root, name)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    page.evaluate("for (const each of document.images) each.scrollIntoView()")

    assert [url for url in asked if not url.startswith("data:")] == [page.url]


@pytest.mark.parametrize("name", ["index", "claude-code/talk", "claude-code/attacks"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_fits_its_window(name: str, width: int, page: Page, root: Path) -> None:
    """Nothing makes the page scroll sideways, open or folded."""
    page.set_viewport_size({"width": width, "height": 800})
    opened(page, root, name)
    folded = page.evaluate("document.documentElement.scrollWidth")

    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    # off screen, what is wide isn't laid out
    page.evaluate("document.styleSheets[0].insertRule('.b { content-visibility: visible !important }')")

    assert (folded, page.evaluate("document.documentElement.scrollWidth")) == (width, width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index", "claude-code/talk"])
def test_nobody_meets_a_barrier(name: str, scheme: Any, browser: Browser, root: Path, axe: str) -> None:
    """The checks of axe find no violation: contrast, names, landmarks, headings, focus."""
    # axe adds a script and styles, which the page's own policy would refuse
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)
    page = opened(context.new_page(), root, name)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    page.evaluate(axe)

    found = page.evaluate("axe.run().then((told) => told.violations)")

    assert [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in found] == []
    context.close()


def test_the_search_finds_what_is_folded(page: Page, root: Path) -> None:
    """A match deep in an output opens what it lies in, is counted, and comes into view."""
    opened(page, root)
    page.keyboard.press("/")
    page.keyboard.type("output line 173")
    expect(page.locator("#found")).to_have_text("4 found")

    page.keyboard.press("Enter")

    expect(page.locator("#found")).to_have_text("1 of 4")
    folded = page.locator("#r-d1 details.more")
    expect(folded).to_have_attribute("open", "")
    assert page.evaluate(IN_VIEW) is True
    assert page.evaluate("CSS.highlights.get('found').size") == 4
    page.keyboard.press("Shift+Enter")
    expect(page.locator("#found")).to_have_text("4 of 4")


def test_the_search_crosses_elements(page: Page, root: Path) -> None:
    """A phrase whose words lie in several elements, as in coloured code, is found."""
    opened(page, root)

    page.get_by_label("Search this session").fill("print('hello')")

    expect(page.locator("#found")).to_have_text("1 found")


def test_the_search_takes_text_literally(page: Page, root: Path) -> None:
    """Signs of regular expressions mean themselves, and a search that finds nothing says so."""
    opened(page, root)

    page.get_by_label("Search this session").fill("(.*)")

    expect(page.locator("#found")).to_have_text("nothing found")


def test_the_browser_s_own_search_finds_what_is_folded(page: Page, root: Path) -> None:
    """A link to text in a folded output, which the browser resolves as its find-in-page does, opens it."""
    page.goto((root / "sessions/claude-code/talk.html").as_uri() + "#:~:text=output%20line%20173")

    expect(page.locator("#r-d1 > details")).to_have_attribute("open", "")


def test_keys_go_from_message_to_message(page: Page, root: Path) -> None:
    """The keys j and k go by message, J by prompt; what is reached has the focus and is on screen."""
    opened(page, root)
    focused = "document.activeElement.id"

    page.keyboard.press("j")
    first = page.evaluate(focused)
    page.keyboard.press("j")
    second = page.evaluate(focused)
    page.keyboard.press("k")
    back = page.evaluate(focused)
    page.keyboard.press("J")
    prompt = page.evaluate(focused)

    assert (first, second, back) == ("r-p1", "r-a1", "r-p1")
    assert prompt == "r-p2"
    expect(page.locator("#r-p2")).to_be_in_viewport()


def test_t_opens_and_folds_all_tools(page: Page, root: Path) -> None:
    """The key and its button do the same, and the button says which it is."""
    opened(page, root)
    closed = page.locator(".call > details:not([open])")
    count = closed.count()

    page.keyboard.press("t")

    assert (count > 3, closed.count()) == (True, 0)
    expect(page.locator("#toggle")).to_have_attribute("aria-pressed", "true")
    page.locator("#toggle").click()
    assert closed.count() == count


def test_keys_are_text_in_a_field(page: Page, root: Path) -> None:
    """Who types into the search isn't taken away from it."""
    opened(page, root)
    page.keyboard.press("/")
    page.keyboard.type("jkt?")

    expect(page.get_by_label("Search this session")).to_have_value("jkt?")
    page.keyboard.press("Escape")
    expect(page.get_by_label("Search this session")).to_have_value("")


def test_a_link_to_a_folded_record_opens_it(page: Page, root: Path) -> None:
    """A record inside a call or a subagent is shown when somebody follows a link to it."""
    page.goto((root / "sessions/claude-code/talk.html").as_uri() + "#a-a1-m1")

    expect(page.get_by_text("Find the needle")).to_be_in_viewport()


def test_the_theme_can_be_chosen_and_is_kept(page: Page, root: Path) -> None:
    """The switch goes through auto, light and dark; the next page opens as it was left."""
    page.emulate_media(color_scheme="light")
    opened(page, root)
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)

    page.locator("#theme").click()
    page.locator("#theme").click()

    expect(page.locator("#theme")).to_have_text("Theme: dark")
    dark = page.evaluate(paper)
    assert dark != light
    opened(page, root, "index")
    assert page.evaluate(paper) == dark


def test_the_index_filters_and_sorts(page: Page, root: Path) -> None:
    """Words, tool and order choose which sessions stand where."""
    opened(page, root, "index")
    rows = page.locator("#shelf tr[data-tool]:visible th > a")
    expect(page.locator("#shown")).to_have_text("3 sessions")

    page.locator("#tool").select_option("codex")
    only = rows.all_inner_texts()
    page.locator("#tool").select_option("")
    page.get_by_label("Filter").fill("PROJECT parser")
    filtered = rows.all_inner_texts()
    page.get_by_label("Filter").fill("")
    page.locator("#sort").select_option("most prompts")

    assert (only, filtered) == (["A short one"], ["Fix the parser"])
    assert rows.count() == 3
    assert rows.all_inner_texts()[1] == "Fix the parser"


def test_everything_is_there_without_script(browser: Browser, root: Path) -> None:
    """Sessions, messages and what is folded can be read; what needs a script isn't shown."""
    context = browser.new_context(java_script_enabled=False)
    page = opened(context.new_page(), root)

    expect(page.get_by_text("It breaks on empty files.")).to_be_visible()
    expect(page.locator("#search")).to_be_hidden()
    page.locator("#r-d1 summary").first.click()
    expect(page.get_by_text("output line 5", exact=False).first).to_be_visible()
    page.get_by_role("link", name="sessions").click()
    expect(page.get_by_role("link", name="A short one")).to_be_visible()
    context.close()


def test_print_shows_what_is_open_and_no_controls(page: Page, root: Path) -> None:
    """On paper there are messages and one line a call; the note says so."""
    opened(page, root)
    page.emulate_media(media="print")

    expect(page.get_by_text("Printed as it was open")).to_be_visible()
    expect(page.locator(".bar")).to_be_hidden()
    expect(page.locator(".toc")).to_be_hidden()
    expect(page.locator("#r-a1")).to_be_visible()
    assert page.pdf()[:5] == b"%PDF-"


def test_a_session_of_five_megabytes_opens(browser: Browser, tmp_path: Path) -> None:
    """It is interactive while most of it was never laid out: a key reaches a message, a search its end."""
    prose = "A sentence of some length, as people write them.\n\n" * 20
    rounds = [
        each
        for number in range(700)
        for each in (
            said(f"Prompt {number}", id=f"p{number}", at=at(number)),
            said(prose, "assistant", id=f"a{number}", at=at(number)),
            call("Bash", {"command": "make"}, id=f"c{number}", at=at(number)),
            result(
                "some output, as programs write it\n" * 180, id=f"r{number}", call=f"c{number}", at=at(number)
            ),
        )
    ]
    store, digest = bundle(tmp_path, {"claude-code/long": [session(), *rounds, said("the needle", id="end")]})
    root = write_html(store, digest, tmp_path)
    page = browser.new_page(viewport={"width": 1280, "height": 800})

    opened(page, root, "claude-code/long")
    page.keyboard.press("j")
    page.keyboard.press("j")
    reached = page.evaluate("document.activeElement.id")
    page.keyboard.press("/")
    page.keyboard.type("the needle")
    page.keyboard.press("Enter")

    expect(page.locator("#r-end")).to_be_in_viewport()
    size = (root / "sessions/claude-code/long.html").stat().st_size
    elements = page.evaluate("document.querySelectorAll('*').length")
    assert reached == "r-a0"
    assert size > 5_000_000
    assert elements < 60_000
    timing = page.evaluate("JSON.stringify(performance.getEntriesByType('navigation')[0])")
    assert json.loads(timing)["domInteractive"] < 30_000
    page.close()
