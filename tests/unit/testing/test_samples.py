"""The generator of sample sessions: reproducible, in the real layouts, with what it says."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autocode.jobs.errors import UsageError
from autocode.jobs.testing.fake_secrets import SECRETS
from autocode.jobs.testing.samples import QUIRKS, SampleFile, SampleSet, main, write_samples


def tree(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Return name, digest, mode and modification time of every file."""
    return {
        path.relative_to(folder).as_posix(): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mode & 0o777,
            int(path.stat().st_mtime),
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def values(data: bytes) -> tuple[list[Any], int]:
    """Return the JSON values in JSONL bytes, glued ones too, and the number of damaged spans."""
    found: list[Any] = []
    damaged = 0
    for line in data.split(b"\n"):
        rest = line.strip(b"\0").decode()
        while rest:
            try:
                value, end = json.JSONDecoder().raw_decode(rest)
            except ValueError:
                damaged += 1
                break
            found.append(value)
            rest = rest[end:]
    return found, damaged


def holder(samples: SampleSet, quirk: str) -> tuple[SampleFile, bytes]:
    """Return the file that has *quirk*, and its bytes."""
    file = next(file for file in samples.files if quirk in file.quirks)
    return file, (samples.folder / file.relative).read_bytes()


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> SampleSet:
    """A set of samples that the tests only read."""
    return write_samples(tmp_path_factory.mktemp("samples"), seed=7, sessions=5, megabytes=0.2)


def test_the_same_seed_gives_the_same_bytes_on_every_machine(tmp_path: Path) -> None:
    """Names, bytes, modes and times are equal, and equal to what another machine got."""
    one = write_samples(tmp_path / "one", seed=0)
    other = write_samples(tmp_path / "other", seed=0)

    assert tree(one.folder) == tree(other.folder)
    listing = json.dumps(tree(one.folder), sort_keys=True).encode()
    assert (
        hashlib.sha256(listing).hexdigest()
        == "153640e86680627f6b613d611ef14353841a9eec7572f254df5de5d59c65a1ab"
    )


def test_another_seed_gives_another_tree(tmp_path: Path) -> None:
    """Nothing of a tree repeats under another seed."""
    one = tree(write_samples(tmp_path / "one", seed=1, megabytes=0).folder)
    other = tree(write_samples(tmp_path / "other", seed=2, megabytes=0).folder)

    assert not set(one) & set(other)


def test_files_are_what_the_set_says(samples: SampleSet) -> None:
    """Sizes, digests, records and damaged spans of every file are as reported, and no file is missing."""
    found = tree(samples.folder)

    assert sorted(found) == sorted(file.relative for file in samples.files)
    for file in samples.files:
        data = (samples.folder / file.relative).read_bytes()
        counted = ([json.loads(data)], 0) if file.tool == "gemini-cli" else values(data)
        assert (len(data), found[file.relative][0]) == (file.size, file.sha256)
        assert (len(counted[0]), counted[1]) == (file.records, file.damaged)


def test_the_layouts_are_those_of_the_tools(samples: SampleSet) -> None:
    """Claude Code has sessions, one with a subagent beside it; Codex has dated folders, Gemini a file."""
    names = sorted(file.relative for file in samples.files)
    claude = [name for name in names if name.startswith("claude-code/projects/-home-ada-src-parser/")]
    subagents = [name for name in claude if "/subagents/agent-" in name]

    assert len(claude) == 5
    assert len(subagents) == 1
    assert subagents[0].split("/subagents/")[0] + ".jsonl" in claude
    assert sum(name.startswith("codex/sessions/2026/01/") for name in names) == 1
    assert sum(name.startswith("gemini-cli/tmp/") for name in names) == 1


def test_records_of_every_type_occur(samples: SampleSet) -> None:
    """Tool calls, results, usage, thinking, summaries, snapshots and progress events are there."""
    found = [
        record
        for file in samples.files
        if file.tool == "claude-code"
        for record in values((samples.folder / file.relative).read_bytes())[0]
    ]
    messages = [record["message"] for record in found if "message" in record]
    blocks = {b["type"] for m in messages if isinstance(m["content"], list) for b in m["content"]}

    assert {r["type"] for r in found} == {
        "summary", "file-history-snapshot", "user", "assistant", "progress", "system",
    }  # fmt: skip
    assert blocks == {"thinking", "text", "tool_use", "tool_result"}
    assert all("usage" in message for message in messages if message["role"] == "assistant")
    uuids = {record["uuid"] for record in found if "uuid" in record}
    assert {record["parentUuid"] for record in found if record.get("parentUuid")} <= uuids


def test_every_quirk_is_planted_once(samples: SampleSet) -> None:
    """Each kind of damage is in exactly the file that says so."""
    planted = sorted(quirk for file in samples.files for quirk in file.quirks)
    assert planted == sorted(QUIRKS)

    assert b"}{" in holder(samples, "glued-line")[1]
    assert holder(samples, "truncated-line")[0].damaged == 1
    assert b"\n" + b"\0" * 311 + b"{" in holder(samples, "nul-padding")[1]
    assert rb"\udcb2" in holder(samples, "lone-surrogate")[1]
    assert "\u2028".encode() in holder(samples, "line-separator")[1]
    assert holder(samples, "no-final-newline")[1].endswith(b"}")


def test_every_form_of_secret_is_planted_in_tool_output(samples: SampleSet) -> None:
    """Each form is planted once, in a file whose tool output holds it."""
    assert sorted(secret.form for secret in samples.secrets) == sorted(SECRETS)
    for secret in samples.secrets:
        found, _ = values((samples.folder / secret.relative).read_bytes())
        outputs = [
            text
            for record in found
            for text in (
                record.get("toolUseResult", {}).get("stdout", "")
                if isinstance(record.get("toolUseResult"), dict)
                else "",
                record.get("payload", {}).get("output", ""),
            )
        ]
        assert any(secret.text in output for output in outputs), secret.form


def test_the_size_is_about_what_was_asked_for(tmp_path: Path) -> None:
    """The set is as big as asked for, within a session's exchange or two."""
    written = write_samples(tmp_path / "big", sessions=3, megabytes=3).to_json()

    assert 3_000_000 <= written["bytes"] <= 3_400_000


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    """Samples never mix with or overwrite what is there."""
    (tmp_path / "mine").write_text("keep")

    with pytest.raises(UsageError, match="isn't empty"):
        write_samples(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("wrong", [{"sessions": 1}, {"megabytes": -1.0}, {"megabytes": float("nan")}])
def test_sizes_out_of_range_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """Too few sessions, a negative size and NaN are usage errors, and nothing is written."""
    with pytest.raises(UsageError):
        write_samples(tmp_path / "none", **wrong)

    assert not (tmp_path / "none").exists()


def test_the_module_runs_as_a_command(tmp_path: Path) -> None:
    """``python -m`` writes the set under another hash seed and locale and prints its counts."""
    folder = tmp_path / "cli"
    command = [
        sys.executable,
        "-m",
        "autocode.jobs.testing.samples",
        str(folder),
        "--seed",
        "5",
        "--megabytes",
        "0",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONHASHSEED": "1",
        "LC_ALL": "C",
    }

    shown = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout

    expected = write_samples(tmp_path / "here", seed=5, megabytes=0)
    assert json.loads(shown) == expected.to_json()
    assert tree(folder) == tree(expected.folder)


def test_a_wrong_command_line_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A usage error is one line on stderr and exit code 2."""
    (tmp_path / "mine").write_text("keep")

    with pytest.raises(SystemExit) as caught:
        main([str(tmp_path)])

    assert caught.value.code == 2
    assert "isn't empty" in capsys.readouterr().err
