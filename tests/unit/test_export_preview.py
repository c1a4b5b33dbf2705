"""The preview: what an export would do, without doing it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from autocode.jobs.errors import RedactionFailed, UsageError
from autocode.jobs.operations.export.payload import Source
from autocode.jobs.operations.export.preview import Preview, preview
from autocode.jobs.redaction import DEFAULT_POLICY, CustomRules, Redactor, digest_of_value, policy_with
from autocode.jobs.testing.fake_secrets import fake_secret
from autocode.jobs.testing.samples import write_samples
from export_context import export, line, manifest_of


def shown_of(folder: Path, *, redact: bool = True, select: tuple[str, ...] = ()) -> Preview:
    """Return the preview of an export of *folder*."""
    return preview(
        lambda _name: folder,
        [Source(root="samples", select=select)],
        policy=DEFAULT_POLICY if redact else None,
    )


def test_the_preview_counts_what_the_export_counts(tmp_path: Path) -> None:
    """Sessions, records, redactions, damage and unread files are those of the manifest."""
    folder = write_samples(tmp_path / "samples", sessions=4, megabytes=0.05).folder
    (folder / "notes.txt").write_text("no session")

    shown = shown_of(folder).to_json()

    manifest = manifest_of(*export(folder, tmp_path))
    totals = manifest["totals"]
    assert {key: shown["totals"][key] for key in ("sessions", "records", "damaged")} == {
        key: totals[key] for key in ("sessions", "records", "damaged")
    }
    # the report's own redactions are counted on both sides
    assert shown["totals"]["redacted"] == totals["redacted"]
    assert shown["totals"]["unread"] == len(manifest["unread"]) == 1
    exported = [each for each in shown["files"] if each["exported"] == "normal-form"]
    assert sorted(each["sha256"] for each in exported) == sorted(
        source["sha256"] for source in manifest["sources"]
    )
    assert [each["names"] for each in exported] == sorted(each["names"] for each in exported)


def test_the_preview_says_where_secrets_are_and_not_what_they_are(tmp_path: Path) -> None:
    """A redaction is told by record, pointer, kind and number."""
    text, secret = fake_secret("github-token", random.Random(1))
    (tmp_path / "s").write_bytes(line("nothing") + line(f"use {text} please"))

    (file,) = shown_of(tmp_path)

    assert file.redaction is not None
    assert file.redaction["places"][0]["pointer"] == "/content/0/text"
    assert [place.to_json() for place in file.places] == [
        {
            "record": 2,
            "pointer": "/content/0/text",
            "kind": "github-token",
            "n": 1,
            "length": len(secret),
            "rule": "github-token",
            "type": "message",
            "tool": None,
            "excerpt": "use [REDACTED:github-token:1] please",
        }
    ]
    assert secret not in json.dumps(file.to_json())


def test_places_name_the_tool_and_are_grouped_by_rule_and_place(tmp_path: Path) -> None:
    """What a tool was told and what it answered is told apart; indexes of lists don't count."""
    _, secret = fake_secret("github-token", random.Random(1))
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": f"gh auth {secret}"}}
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": f"\x1b[1m{secret}"}] * 2,
    }
    (tmp_path / "s").write_bytes(line() + line([call], role="assistant") + line([result]))
    shown = shown_of(tmp_path)

    (file,) = shown

    assert [(place.type, place.tool, place.excerpt) for place in file.places] == [
        ("tool_call", "Bash", "gh auth [REDACTED:github-token:1]"),
        ("tool_result", "Bash", "·[1m[REDACTED:github-token:1]"),
        ("tool_result", "Bash", "·[1m[REDACTED:github-token:1]"),
    ]
    assert [(group.type, group.pointer, count) for group, count in sorted(shown.groups.items())] == [
        ("tool_call", "/input/command", 1),
        ("tool_result", "/content/*/text", 2),
    ]
    assert shown.to_json()["redactions"][1] == {
        "rule": "github-token",
        "type": "tool_result",
        "tool": "Bash",
        "pointer": "/content/*/text",
        "count": 2,
    }


def test_a_digest_is_given_only_where_it_was_asked_for(tmp_path: Path) -> None:
    """With digests, each place has what an allow list needs; with that entry the text stays."""
    _, secret = fake_secret("github-token", random.Random(1))
    (tmp_path / "s").write_bytes(line(secret))
    source = [Source(root="samples")]

    (file,) = preview(lambda _name: tmp_path, source, digests=True)
    (place,) = file.places
    custom = CustomRules.model_validate({"allow": [{"sha256": place.sha256, "rule": place.rule}]})
    (allowed,) = preview(lambda _name: tmp_path, source, policy=policy_with(custom))

    assert place.sha256 == digest_of_value(secret)
    assert "sha256" not in next(iter(shown_of(tmp_path))).places[0].to_json()
    assert allowed.places == ()


def test_the_preview_writes_nothing(tmp_path: Path) -> None:
    """Nothing appears beside the sources, and they stay as they are."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "s").write_bytes(line())
    before = (folder / "s").stat()

    shown_of(folder).to_json()

    assert sorted(tmp_path.rglob("*")) == [folder, folder / "s"]
    assert (folder / "s").stat().st_mtime_ns == before.st_mtime_ns


def test_the_preview_lists_what_it_leaves_out(tmp_path: Path) -> None:
    """Unread files come with kind, digest and size; what can't be taken comes with its reason."""
    (tmp_path / "s").write_bytes(line())
    (tmp_path / "copy").write_bytes(line())
    (tmp_path / "notes").write_text("hello")
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / ".git").mkdir()

    shown = shown_of(tmp_path).to_json()

    files = {tuple(file["names"]): (file["kind"], file["size"], file["exported"]) for file in shown["files"]}
    assert files == {
        ("copy", "s"): ("claude-code", len(line()), "normal-form"),
        ("notes",): ("text", 5, "no"),
    }
    assert shown["left_out"] == [{"name": "broken", "reason": "symlink-broken"}]
    assert shown["reasons"] == {"symlink-broken": 1}
    assert shown["skipped_folders"] == {".git": 1}


def test_the_preview_without_redaction_says_what_goes_in_raw(tmp_path: Path) -> None:
    """Without redaction sessions go in twice and other files raw."""
    (tmp_path / "s").write_bytes(line())
    (tmp_path / "notes").write_text("hello")

    shown = {file.names: (file.exported, file.redaction) for file in shown_of(tmp_path, redact=False)}

    assert shown == {("s",): ("both", None), ("notes",): ("raw", None)}


def test_a_file_that_changes_is_a_problem_of_that_file_alone(tmp_path: Path) -> None:
    """What would stop the export is told beside the file, and the others are still shown."""
    (tmp_path / "a").write_bytes(line(sessionId="a"))
    (tmp_path / "b").write_bytes(line(sessionId="b"))
    walk = shown_of(tmp_path)
    (tmp_path / "a").write_bytes(b"")

    shown = {file.names[0]: file for file in walk}

    assert shown["a"].problem is not None
    assert (shown["a"].problem["type"], shown["a"].exported) == ("source-changed", "no")
    assert (shown["b"].problem, shown["b"].exported) == (None, "normal-form")
    assert (walk.totals["problems"], walk.totals["sessions"]) == (1, 1)


def test_a_rule_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redaction that would fail closed in the export is a problem in the preview."""
    (tmp_path / "s").write_bytes(line())

    def broken(self: Redactor, value: object, prefix: str, seq: int) -> object:
        raise RedactionFailed("rule 'x' failed with ValueError")

    monkeypatch.setattr(Redactor, "_redact", broken)

    (file,) = shown_of(tmp_path)

    assert file.problem is not None
    assert file.problem["type"] == "redaction-failed"
    assert file.report is None


def test_a_selection_that_is_not_there_is_an_error_of_usage(tmp_path: Path) -> None:
    """The preview refuses what the export refuses."""
    with pytest.raises(UsageError):
        shown_of(tmp_path, select=("missing",))


def test_an_empty_folder_is_previewed_as_nothing(tmp_path: Path) -> None:
    """Nothing to export is an answer, not an error."""
    shown = shown_of(tmp_path)

    assert list(shown) == []
    assert set(shown.totals.values()) == {0}


def test_a_preview_can_be_read_twice(tmp_path: Path) -> None:
    """The files first and the JSON afterwards count the same, once."""
    (tmp_path / "s").write_bytes(line())
    shown = shown_of(tmp_path)
    list(shown)

    again = shown.to_json()

    assert [file["names"] for file in again["files"]] == [["s"]]
    assert again["totals"]["records"] == 2
