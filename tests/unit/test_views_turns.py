"""Records into blocks, and what is known of a session before it is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from autocode.jobs.operations.views import turns
from autocode.jobs.operations.views.blocks import (
    Block,
    Branch,
    Call,
    Marker,
    Message,
    Notices,
    Result,
    Thought,
    Unknown,
)
from autocode.jobs.operations.views.overview import survey
from autocode.jobs.operations.views.turns import blocks_of, message_of
from autocode.jobs.operations.views.wording import local_time
from view_bundles import at, call, every_type, record, result, said, session


def shapes(blocks: Iterator[Block]) -> list[str]:
    """Return the types of blocks, with the ids of their records."""
    return [f"{type(block).__name__} {block.stamp.id}" for block in blocks]


def test_every_type_of_record_becomes_a_block() -> None:
    """Nothing of a session is left out, and the order is that of the records."""
    assert shapes(blocks_of(every_type())) == [
        "Marker sum",
        "Notices e1",
        "Message p1",
        "Thought t1",
        "Thought t2",
        "Message a1",
        "Call c",
        "Call c2",
        "Result r3",
        "Marker k",
        "Unknown u",
        "Message p2",
    ]


def test_results_lie_beside_their_calls() -> None:
    """Calls made at once get their own results each, whatever the order in which these come."""
    calls = [call("A", {}, id="a"), call("B", {}, id="b")]
    results = [result("b's", id="rb", call="b"), result("a's", id="ra", call="a")]

    blocks = list(blocks_of([*calls, *results]))

    assert [
        (block.stamp.id, [each.stamp.id for each in block.results])
        for block in blocks
        if isinstance(block, Call)
    ] == [
        ("a", ["ra"]),
        ("b", ["rb"]),
    ]
    assert len(blocks) == 2


def test_a_result_that_comes_too_late_stands_on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call waits in a window of bounded size, and no longer."""
    monkeypatch.setattr(turns, "_WINDOW_BLOCKS", 3)
    others = [said(str(number), id=f"m{number}") for number in range(5)]

    blocks = list(blocks_of([call("A", {}, id="a"), *others, result("late", call="a")]))

    assert shapes(iter(blocks)) == ["Call a", *(f"Message m{number}" for number in range(5)), "Result r"]


def test_the_window_is_bounded_in_bytes() -> None:
    """Records of some size push a waiting call out although they are few."""
    taken = 0

    def records() -> Iterator[dict[str, Any]]:
        nonlocal taken
        yield call("A", {}, id="a")
        for number in range(100):
            taken += 1
            yield said("x", id=f"m{number}", source={"offset": 0, "length": 1 << 20})

    next(blocks_of(records()))

    assert taken <= 4


def test_events_stay_out_of_a_stretch_of_work() -> None:
    """Events between calls come behind them in one run, before the next message."""
    events = [record("event", id=f"e{number}", name="progress", data={}) for number in range(3)]
    calls = [
        call("A", {}, id="a"),
        result("1", call="a"),
        call("B", {}, id="b"),
        result("2", id="r2", call="b"),
    ]

    blocks = list(
        blocks_of([calls[0], events[0], calls[1], events[1], calls[2], events[2], calls[3], said("x")])
    )

    assert shapes(iter(blocks)) == ["Call a", "Call b", "Notices e0", "Message m"]
    assert [len(block.notices) for block in blocks if isinstance(block, Notices)] == [3]


def test_tokens_stand_on_the_last_block_of_a_message() -> None:
    """A tool that streams tells a message several times, and counts up."""
    common = {"message_id": "msg", "at": at(1)}
    records = [
        record("thinking", id="t", text="x", usage={"output": 1}, **common),
        said("y", "assistant", id="a", usage={"output": 2}, **common),
        call("A", {}, usage={"output": 30}, **common),
        said("z", "assistant", id="b", usage={"output": 4}, message_id="other"),
    ]

    assert [(block.stamp.usage or {}).get("output") for block in blocks_of(records)] == [None, None, 30, 4]


@pytest.mark.parametrize(
    ("text", "extra", "origin"),
    [
        ("Fix it", {}, "said"),
        ("<b>Fix</b> it", {}, "said"),
        ("<system-reminder>\nx\n</system-reminder>", {}, "context"),
        ("<environment_context>x</environment_context>", {}, "context"),
        ("# AGENTS.md instructions for /x", {}, "context"),
        ("Caveat: …", {"isMeta": True}, "context"),
        ("This session is being continued", {"isCompactSummary": True}, "summary"),
        ("[Request interrupted by user]", {}, "interruption"),
        ("<command-name>/clear</command-name>", {}, "command"),
    ],
)
def test_what_a_tool_put_in_is_told_from_what_was_said(text: str, extra: dict[str, Any], origin: str) -> None:
    """A message of the user that no user wrote isn't shown as theirs."""
    assert message_of(said(text, extra=extra)).origin == origin


def test_a_command_is_shown_as_it_was_typed() -> None:
    """The tags around a slash command go; name and arguments stay."""
    tags = {"command-message": "review", "command-name": "/review", "command-args": "42"}
    text = "\n".join(f"<{tag}>{value}</{tag}>" for tag, value in tags.items())

    assert message_of(said(text)).parts[0].text == "/review 42"


def test_a_type_of_a_later_normal_form_is_shown_whole() -> None:
    """A record that this version doesn't know is an unknown block, named after its type."""
    [block] = blocks_of([record("vision", what="a cube")])

    assert isinstance(block, Unknown)
    assert (block.name, block.data) == ("vision", {"type": "vision", "what": "a cube"})


def test_the_overview_counts() -> None:
    """Prompts, replies, calls, errors, models, times and tokens of a session."""
    [overview] = survey(every_type(), {"title": "A title"})

    assert (overview.headline, overview.prompt_count, overview.replies) == ("A title", 2, 1)
    assert (dict(overview.calls), overview.errors) == ({"Edit": 1, "Bash": 1}, 1)
    assert (list(overview.models), overview.tokens["output"]) == (["model-1"], 120)
    assert (overview.first_at, overview.last_at, overview.seconds) == (at(0), at(22), 22.0)
    assert [(prompt.text, prompt.calls, prompt.seconds) for prompt in overview.prompts] == [
        ("Fix the parser", 2, 20.0),
        ("/clear", 0, 0.0),
    ]


def test_each_session_of_a_source_has_an_overview_of_its_own() -> None:
    """A source is parted at its session records; a title in such a record is that session's."""
    records = [
        session(session_id="one"),
        said("first", at=at(1)),
        session(session_id="two", title="The second"),
        said("x", at=at(5)),
        said("y", id="m2", at=at(9)),
    ]

    overviews = survey(records, {"title": None})

    assert [(each.headline, each.prompt_count, each.seconds) for each in overviews] == [
        ("first", 1, 0.0),
        ("The second", 2, 4.0),
    ]


def test_a_message_that_streams_is_counted_once() -> None:
    """Of several records of one message the last one's tokens count; a report's own count goes first."""
    records = [
        said("a", "assistant", message_id="m", usage={"output": 1}),
        said("b", "assistant", message_id="m", usage={"output": 10}),
        said("c", "assistant", message_id="n", usage={"output": 5}),
    ]

    assert survey(records, {})[0].tokens == {"output": 15}
    assert survey(records, {"tokens": {"output": 99}})[0].tokens == {"output": 99}


def test_a_cost_is_found_where_a_tool_tells_it() -> None:
    """Costs count wherever they stand: on an answer, on what was printed behind it, beside the message."""
    records = [
        said("a", "assistant", cost_usd=0.5),
        {"type": "event", "id": "e", "name": "output", "data": {}, "usage": {"output": 7}, "cost_usd": 0.25},
        said("b", "assistant", extra={"costUSD": 0.125}),
    ]

    overview = survey(records, {})[0]

    assert overview.cost == 0.875
    assert overview.tokens == {"output": 7}


def test_a_subagent_is_found_by_its_result_or_by_its_progress() -> None:
    """The call of a subagent is known from its result, or from events where it was interrupted."""
    told = result("done", extra={"toolUseResult": {"agentId": "a1"}})
    progress = record(
        "event",
        name="progress/agent_progress",
        data={"data": {"agentId": "a2"}, "parentToolUseID": "call-2"},
    )

    assert survey([call("Task", {}), told, progress], {})[0].agents == {"call-1": "a1", "call-2": "a2"}


def test_costs_are_told_where_the_transcript_states_them() -> None:
    """A stated cost is added up; nothing is calculated."""
    records = [
        said("a", "assistant", extra={"costUSD": 0.25}),
        said("b", "assistant", extra={"costUSD": 0.5}),
    ]

    assert survey(records, {})[0].cost == 0.75
    assert survey([said("a", usage={"output": 5})], {})[0].cost is None


def test_blocks_are_of_the_types_that_views_know() -> None:
    """Every block of every type of record is one of the documented union."""
    known = (Message, Thought, Call, Result, Marker, Notices, Unknown)

    assert all(isinstance(block, known) for block in blocks_of(every_type()))


def branched(tool: str = "chatgpt") -> list[dict[str, Any]]:
    """Return a conversation with two answers that were left, the second of them after an edited prompt."""
    return [
        session(tool=tool),
        said("Which?", id="p1", source={"offset": 1, "length": 9}),
        said("This one", "assistant", id="a1", parent="p1", source={"offset": 2, "length": 9}),
        said("Another", "assistant", id="a2", parent="p1", sidechain=True, source={"offset": 3, "length": 9}),
        said("A third", "assistant", id="a3", parent="p1", sidechain=True, source={"offset": 4, "length": 9}),
        said("Go on", id="p2", parent="a3", sidechain=True, source={"offset": 5, "length": 9}),
    ]


def test_each_branch_begins_with_where_it_forks() -> None:
    """Two siblings are two branches; what follows in one of them stays in it."""
    blocks = list(blocks_of(branched()))

    assert shapes(iter(blocks)) == [
        "Message p1",
        "Message a1",
        "Branch a2",
        "Message a2",
        "Branch a3",
        "Message a3",
        "Message p2",
    ]
    assert [(each.parent, each.words, each.is_fork) for each in blocks if isinstance(each, Branch)] == [
        ("p1", "Which?", True)
    ] * 2


def test_the_conversation_goes_on_behind_an_aside() -> None:
    """A subagent's work inside a session's own file is set off at both ends."""
    records = [
        session(),
        said("go", id="p1"),
        said("Look", id="s1", sidechain=True),
        said("Seen", "assistant", id="s2", parent="s1", sidechain=True),
        said("done", "assistant", id="a1", parent="p1"),
    ]

    assert [(each.begins, each.is_fork) for each in blocks_of(records) if isinstance(each, Branch)] == [
        (True, False),
        (False, False),
    ]


def test_a_subagent_s_own_transcript_has_no_asides() -> None:
    """All of it is a side chain."""
    records = [session(agent_id="a"), said("Look", sidechain=True)]

    assert shapes(blocks_of(records)) == ["Message m"]


def test_counts_leave_branches_out() -> None:
    """Prompts and replies are counted in the same way: those of the conversation that is shown."""
    [overview] = survey([*branched(), call("A", {}, sidechain=True)], {})

    assert (overview.prompt_count, overview.replies, overview.calls.total()) == (1, 1, 0)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("2024-08-05 19:33:12", "2024-08-05T19:33:12.000"),
        ("2024-08-05T19:33:12.123456", "2024-08-05T19:33:12.123"),
        ("2024-08-05", None),
        ("2024-13-05 19:33:12", None),
        ("1970-01-01T00:00:00", None),
        ("2024-08-05T19:33:12Z", None),
        (1e300, None),
        (None, None),
    ],
)
def test_only_a_date_and_time_is_a_time_without_a_zone(raw: Any, expected: str | None) -> None:
    """What can't be meant stays out."""
    assert local_time(raw) == expected


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        (["/add parser.py", "Fix the parser"], "Fix the parser"),
        (["/run make", "/clear"], "/run make"),
        (["/home/dev/parser.py is broken", "x"], "/home/dev/parser.py is broken"),
    ],
)
def test_a_session_is_named_after_what_was_asked(prompts: list[str], expected: str) -> None:
    """A slash command says little of what a session is about."""
    [overview] = survey([session(), *(said(text, id=text) for text in prompts)], {})

    assert overview.headline == expected


def test_a_session_without_prompts_says_what_there_is() -> None:
    """Where there is neither a title nor an id, the records are counted."""
    printed = [record("event", id=f"e{number}", name="output", data={}) for number in range(3)]

    assert [
        each.headline
        for records in ([session(session_id=None), *printed], [session(session_id=None)])
        for each in survey(records, {})
    ] == ["No prompt: 3 outputs of the tool", "Nothing recorded"]
