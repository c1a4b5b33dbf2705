"""The rows of an export's tables: what is joined, counted and numbered, whoever shows them."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import orjson
import pytest

from autocode.jobs.errors import UsageError
from autocode.jobs.operations.export.views import load_manifest
from autocode.jobs.operations.views import counting
from autocode.jobs.operations.views.bundles import StoredBundle, lines_of
from autocode.jobs.operations.views.rows import rows_of, size_of
from autocode.jobs.operations.views.tables import TABLES, table_named
from autocode.jobs.store import LocalStore
from autocode.jobs.testing.samples import write_samples
from export_context import export
from made_bundle import at, bundle_of, example_export, record, session

Rows = dict[str, list[dict[str, Any]]]


def tables_of(bundle: tuple[LocalStore, str]) -> Rows:
    """Return all rows by table."""
    tables: Rows = defaultdict(list)
    for table, row in rows_of(StoredBundle(*bundle)):
        tables[table].append(row)
    return tables


def call(seq: int, name: str = "Bash", **fields: Any) -> dict[str, Any]:
    """Return a tool call."""
    return record(seq, "tool_call", **{"call_id": f"c{seq}", "name": name, "input": {"a": "b"}, **fields})


def result(seq: int, of: int | None, text: str = "out", **fields: Any) -> dict[str, Any]:
    """Return the result of the call that is record *of*."""
    said = {"call_id": f"c{of}", "call": None if of is None else f"r{of}", "is_error": False}
    return record(seq, "tool_result", **{**said, "content": [{"type": "text", "text": text}], **fields})


def test_every_row_has_exactly_the_columns_of_its_table(tmp_path: Path) -> None:
    """No column is forgotten and none made up, in any table."""
    tables = tables_of(example_export(tmp_path / "in", tmp_path))

    shapes = {(table, tuple(sorted(row))) for table, rows in tables.items() for row in rows}

    assert shapes == {
        (table, tuple(sorted(table_named(table).names))) for table, rows in tables.items() if rows
    }


def test_a_call_is_joined_with_its_result(tmp_path: Path) -> None:
    """Name, input and time of the call stand beside output, outcome and duration of the result."""
    tables = tables_of(
        bundle_of(tmp_path, [session(0), call(1), result(2, 1, is_error=True, at=at(1, 30.25))])
    )

    (row,) = tables["tool_calls"]

    taken = ("record", "result_record", "name", "input", "output", "is_error", "duration_ms", "output_chars")
    assert [row[name] for name in taken] == [2, 3, "Bash", '{"a":"b"}', "out", True, 30_250, 3]


def test_results_may_come_in_any_order_and_calls_may_have_none(tmp_path: Path) -> None:
    """Parallel calls find their own results; an unanswered call keeps null."""
    records = [session(0), call(1), call(2, "Read"), call(3, "Grep"), result(4, 3, "g"), result(5, 1, "b")]

    tables = tables_of(bundle_of(tmp_path, records))

    found = {row["name"]: (row["output"], row["result_record"]) for row in tables["tool_calls"]}
    assert found == {"Bash": ("b", 6), "Grep": ("g", 5), "Read": (None, None)}


def test_a_result_without_a_call_has_a_row_without_a_name(tmp_path: Path) -> None:
    """Neither a result of an unknown call nor a second result of the same call is dropped or made a call."""
    tables = tables_of(
        bundle_of(tmp_path, [session(0), call(1), result(2, 1), result(3, 1), result(4, None)])
    )

    rows = [(row["record"], row["name"], row["result_record"]) for row in tables["tool_calls"]]

    assert rows == [(2, "Bash", 3), (4, None, 4), (5, None, 5)]
    assert tables["sessions"][0]["tool_calls"] == 1


@pytest.mark.parametrize("limit", ["_MOST_CALLS", "_MOST_CHARS"])
def test_calls_that_wait_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """The oldest unanswered call is given up; its late result has a row of its own."""
    monkeypatch.setattr(counting, limit, 2)

    tables = tables_of(bundle_of(tmp_path, [session(0), call(1), call(2), call(3), result(4, 1)]))

    rows = {row["record"]: (row["name"], row["result_record"]) for row in tables["tool_calls"]}
    assert rows == {2: ("Bash", None), 3: ("Bash", None), 4: ("Bash", None), 5: (None, 5)}


def test_a_time_that_runs_backwards_is_no_duration(tmp_path: Path) -> None:
    """A result before its call has no duration rather than a negative one."""
    tables = tables_of(bundle_of(tmp_path, [session(0), call(1), result(2, 1, at=at(0))]))

    assert tables["tool_calls"][0]["duration_ms"] is None


def test_of_several_records_of_a_message_the_last_counts(tmp_path: Path) -> None:
    """Counts that grow while a tool streams are counted once, at the record that has them in full."""
    about = {"message_id": "m", "request_id": "q", "model": "opus", "role": "assistant", "content": []}
    usage = {"input": 7, "output": 1, "cache_read": 2, "cache_write": 3}
    records = [
        session(0),
        record(1, "message", **about, usage=usage),
        record(2, "message", **about, usage={**usage, "output": 9}),
        record(3, "message", **{**about, "message_id": None}, usage=usage),
    ]

    tables = tables_of(bundle_of(tmp_path, records))

    rows = [(row["record"], row["input_tokens"], row["output_tokens"]) for row in tables["usage"]]
    assert sorted(rows) == [(3, 7, 9), (4, 7, 1)]
    assert (tables["sessions"][0]["output_tokens"], tables["sessions"][0]["cache_write_tokens"]) == (10, 6)


def test_what_is_told_of_the_whole_session_alone_counts_too(tmp_path: Path) -> None:
    """Tokens that only the report has are at the session's own record; a session in dollars has its sum."""
    usage = {"input": 7, "output": 1, "cache_read": 0, "cache_write": 0}
    said = {"role": "assistant", "content": [], "usage": usage}
    paid = record(2, "event", name="metrics", data={}, cost_usd=1)
    records = [session(0), record(1, "message", **said, cost_usd=0.25), paid]
    tokens = {"input": 10, "output": 1, "cache_read": 0, "cache_write": 2}

    tables = tables_of(bundle_of(tmp_path, records, tokens=tokens, models=["opus"]))

    taken = ("record", "input_tokens", "output_tokens", "cache_write_tokens", "cost_usd", "model")
    assert [tuple(row[name] for name in taken) for row in tables["usage"]] == [
        (2, 7, 1, 0, 0.25, None),
        (3, 0, 0, 0, 1.0, None),
        (1, 3, 0, 2, None, "opus"),
    ]
    assert (tables["sessions"][0]["input_tokens"], tables["sessions"][0]["cost_usd"]) == (10, 1.25)


def test_a_copied_step_is_not_counted_again(tmp_path: Path) -> None:
    """A step of ATIF that another trajectory has, too, is counted there; the sums hold."""
    (tmp_path / "in").mkdir()
    metrics = {"prompt_tokens": 7, "completion_tokens": 1}
    steps = [
        {"step_id": n, "source": "agent", "message": "hi", "metrics": metrics, "is_copied_context": n == 1}
        for n in (1, 2)
    ]
    whole = {
        "schema_version": "ATIF-v1.7",
        "session_id": "a",
        "agent": {"name": "x", "version": "1"},
        "steps": steps,
    }
    (tmp_path / "in" / "a.json").write_text(json.dumps(whole))

    bundle = export(tmp_path / "in", tmp_path)

    tables = tables_of(bundle)
    assert [(row["record"], row["input_tokens"]) for row in tables["usage"]] == [(3, 7)]
    assert differences_from_reports(bundle) == {}


def test_running_totals_are_counted_by_their_growth(tmp_path: Path) -> None:
    """What Codex tells twice counts once, a total that shrank begins anew, and the model is the turn's."""

    def counted(seq: int, given: int, cached: int, written: int) -> dict[str, Any]:
        total = {"input_tokens": given, "cached_input_tokens": cached, "output_tokens": written}
        usage = {"input": given - cached, "output": written, "cache_read": cached, "cache_write": 0}
        return record(
            seq,
            "event",
            name="event_msg/token_count",
            data={"info": {"total_token_usage": total}},
            usage=usage,
        )

    turn = record(1, "event", name="turn_context", data={"model": "gpt"})
    records = [
        session(0),
        turn,
        counted(2, 10, 4, 1),
        counted(3, 10, 4, 1),
        counted(4, 30, 4, 2),
        counted(5, 5, 0, 1),
    ]

    tables = tables_of(bundle_of(tmp_path, records))

    rows = [
        (row["record"], row["model"], row["input_tokens"], row["output_tokens"]) for row in tables["usage"]
    ]
    assert rows == [(3, "gpt", 6, 1), (5, "gpt", 20, 1), (6, "gpt", 5, 1)]
    assert tables["sessions"][0]["models"] == '["gpt"]'


def test_the_usage_of_a_source_adds_up_to_its_report(tmp_path: Path) -> None:
    """Tokens, times, models and records of each session are those that its report gives."""
    samples = write_samples(tmp_path / "in", sessions=8, megabytes=0.2)
    bundle = export(samples.folder, tmp_path)

    assert differences_from_reports(bundle) == {}


@pytest.mark.needs_samples
def test_the_usage_of_real_sources_adds_up_to_their_reports(tmp_path: Path) -> None:
    """The same holds for what real tools wrote."""
    bundle = export(Path(os.environ["AUTOCODE_SAMPLES"]), tmp_path)

    assert differences_from_reports(bundle) == {}


def differences_from_reports(bundle: tuple[LocalStore, str]) -> dict[str, Any]:
    """Return what the rows of a source say otherwise than its report."""
    tables = tables_of(bundle)
    manifest = load_manifest(*bundle)
    reports = {member.path: member for member in manifest.members if member.path.endswith(".report.json")}
    different: dict[str, Any] = {}
    for source in tables["sources"]:
        member = reports[f"{source['path']}.report.json"]
        report = orjson.loads(bundle[0].open(member.sha256).read_all(limit=1 << 28))["report"]
        sessions = [row for row in tables["sessions"] if row["source"] == source["source"]]
        tokens = {
            kind: sum(row[f"{kind}_tokens"] for row in sessions)
            for kind in ("input", "output", "cache_read", "cache_write")
        }
        said = {"tokens": tokens, "records": sum(row["records"] for row in sessions)}
        expected = {"tokens": report["tokens"], "records": sum(report["records"].values())}
        if len(sessions) == 1:
            (only,) = sessions
            said |= {name: only[name] for name in ("first_at", "last_at", "title")}
            said |= {"models": orjson.loads(only["models"])}
            expected |= {name: report[name] for name in ("first_at", "last_at", "title", "models")}
        if said != expected:
            different[source["path"]] = (said, expected)
    return different


def test_a_source_with_several_sessions_is_split(tmp_path: Path) -> None:
    """Each record belongs to the session record before it, and nothing is counted across."""
    say = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    records = [
        session(0, title="First"),
        record(1, "message", **say),
        call(2),
        session(3, cwd="/b"),
        record(4, "message", **say),
        result(5, 2),
    ]

    tables = tables_of(bundle_of(tmp_path, records, title="of the file"))

    sessions = [(row["session"], row["title"], row["project"], row["records"]) for row in tables["sessions"]]
    assert sessions == [(1, "First", None, 3), (2, None, "/b", 3)]
    assert [row["session"] for row in tables["messages"]] == [1, 2]
    assert [(row["session"], row["name"]) for row in tables["tool_calls"]] == [(1, "Bash"), (2, None)]
    assert [(row["first_at"], row["last_at"]) for row in tables["sessions"]] == [
        (at(1), at(2)),
        (at(4), at(5)),
    ]


def test_the_only_session_of_a_source_has_the_title_of_its_report(tmp_path: Path) -> None:
    """A title that is known only at the end of the file is there."""
    tables = tables_of(bundle_of(tmp_path, [session(0)], title="Mend the parser"))

    assert tables["sessions"][0]["title"] == "Mend the parser"


def test_parts_are_read_one_after_another(tmp_path: Path) -> None:
    """A call in one part finds its result in the next."""
    tables = tables_of(bundle_of(tmp_path, [session(0), call(1)], [result(2, 1)]))

    assert [(row["record"], row["result_record"]) for row in tables["tool_calls"]] == [(2, 3)]
    assert tables["sessions"][0]["records"] == 3


def test_a_redaction_points_at_its_record(tmp_path: Path) -> None:
    """The number of a redacted record is that of the message whose text has the marker."""
    tables = tables_of(example_export(tmp_path / "in", tmp_path))

    texts = {row["record"]: row["text"] for row in tables["messages"]}
    assert ["[REDACTED:github-token:1]" in texts[row["record"]] for row in tables["redactions"]] == [True]
    assert [row["count"] for row in tables["redaction_counts"]] == [1]


def test_a_nul_becomes_a_space(tmp_path: Path) -> None:
    """SQL functions end a text at a NUL, so there is none in any text or JSON."""
    nul = {"role": "user\0", "content": [{"type": "text", "text": "a\0b"}], "extra": {"k\0": ["v\0"]}}
    records = [session(0), record(1, "message", **nul), call(2, input="x\0y \\u0000")]

    tables = tables_of(bundle_of(tmp_path, records))

    assert tables["messages"][0]["text"] == "a b"
    assert tables["tool_calls"][0]["input"] == '"x y \\\\u0000"'
    assert tables["records"][1]["data"] == '{"extra":{"k ":["v "]}}'


def test_images_are_counted_and_not_copied(tmp_path: Path) -> None:
    """Base64 fills no table."""
    content = [{"type": "text", "text": "see"}, {"type": "image", "media_type": "image/png", "data": "QUJD"}]

    tables = tables_of(bundle_of(tmp_path, [session(0), record(1, "message", role="user", content=content)]))

    assert (tables["messages"][0]["text"], tables["messages"][0]["attachments"]) == ("see", 1)
    assert "QUJD" not in str(dict(tables))


@pytest.mark.parametrize("line", [b"nonsense\n", b"[]\n", b'{"seq":1,"type":"message"}\n'])
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: bytes) -> None:
    """A bundle that no export wrote is refused with the place, and not with a KeyError."""
    bundle = bundle_of(tmp_path, [session(0), line])

    with pytest.raises(UsageError, match=r"Line 2 of data/sessions/aider/s.jsonl is no record"):
        tables_of(bundle)


def test_tables_of_reports_read_no_session(tmp_path: Path) -> None:
    """Who asks for losses alone doesn't wait for the records."""
    told: list[int] = []
    bundle = StoredBundle(*example_export(tmp_path / "in", tmp_path))

    rows = list(rows_of(bundle, ("losses", "redaction_counts", "sources", "bundle"), told.append))

    assert {table for table, _ in rows} == {"redaction_counts", "sources", "bundle"}
    assert told == []


def test_what_is_told_adds_up(tmp_path: Path) -> None:
    """The bytes told while reading are the size told beforehand."""
    told: list[int] = []
    bundle = StoredBundle(*example_export(tmp_path / "in", tmp_path))

    list(rows_of(bundle, tuple(TABLES), told.append))

    assert sum(told) == size_of(bundle.manifest)


@pytest.mark.parametrize(
    "chunks", [[b"a\nb\nc\n"], [b"a", b"\nb\n", b"", b"c\n"], [b"a\nb\nc"], [b"a\n", b"b\nc"]]
)
def test_lines_are_the_same_however_the_bytes_come(chunks: list[bytes]) -> None:
    """Where a chunk ends, and whether the last line does, makes no difference."""
    assert list(lines_of(iter(chunks))) == [b"a", b"b", b"c"]
