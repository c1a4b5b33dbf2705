"""What an export's identity depends on, and what it must not depend on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from autocode.jobs.canonical import canonical_json
from autocode.jobs.operations.export import ExportPayload
from autocode.jobs.operations.export.payload import FoundFile, ReadInputs, Source
from autocode.jobs.store import LocalStore
from autocode.jobs.testing.samples import write_samples
from export_context import Job, StoreContext, export, job_over, line, manifest_of, paths_of, run


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """A folder with sessions of three tools."""
    return write_samples(tmp_path / "samples", sessions=3, megabytes=0.05).folder


def test_the_same_input_gives_the_same_digest_in_another_home(samples: Path, tmp_path: Path) -> None:
    """Two homes agree on the digest of the same sessions."""
    _, first = export(samples, tmp_path / "one")

    _, second = export(samples, tmp_path / "two")

    assert second == first


def test_names_times_and_places_of_files_do_not_count(samples: Path, tmp_path: Path) -> None:
    """Files that were copied elsewhere under other names and times give the digest of the originals."""
    _, expected = export(samples, tmp_path / "one")
    copies = tmp_path / "elsewhere" / "deep er"
    copies.mkdir(parents=True)
    for number, path in enumerate(sorted((p for p in samples.rglob("*") if p.is_file()), reverse=True)):
        copy = copies / f"copy {number}.txt"
        copy.write_bytes(path.read_bytes())
        os.utime(copy, (number, number))

    _, actual = export(copies, tmp_path / "two")

    assert actual == expected


def test_the_order_of_the_sources_does_not_count(samples: Path, tmp_path: Path) -> None:
    """Sources in another order, twice, and nested in one another give one digest."""
    names = sorted(path.name for path in samples.iterdir())
    store = LocalStore(tmp_path / "store")

    digests = {
        run(
            Job(
                StoreContext(samples, store),
                ExportPayload(sources=tuple(Source(root="r", select=select) for select in selects)),
            )
        )
        for selects in (
            [tuple(names)],
            [tuple(reversed(names))],
            [(name,) for name in reversed(names)],
            [(*names, f"{names[0]}/projects"), (names[0],)],
            [()],
        )
    }

    assert len(digests) == 1


def test_redaction_is_part_of_the_identity(samples: Path, tmp_path: Path) -> None:
    """An export without redaction is another artifact, and says so."""
    store, redacted = export(samples, tmp_path)

    _, plain = export(samples, tmp_path, redact=False)

    assert plain != redacted
    assert manifest_of(store, plain)["redaction"] is None
    assert manifest_of(store, redacted)["redaction"]["name"] == "default"


def test_the_manifest_is_canonical_json(samples: Path, tmp_path: Path) -> None:
    """The manifest, which is written in pieces, is what canonical JSON makes of its value."""
    for redact in (True, False):
        store, digest = export(samples, tmp_path, redact=redact)

        data = store.open(digest).read_all(limit=1 << 20)

        assert data == canonical_json(json.loads(data))


def test_the_manifest_counts_what_its_members_are(samples: Path, tmp_path: Path) -> None:
    """Every member's digest and size are those of its object, and the totals are their sums."""
    store, digest = export(samples, tmp_path)

    manifest = manifest_of(store, digest)

    assert [store.verify(m["sha256"]).size for m in manifest["members"]] == [
        m["size"] for m in manifest["members"]
    ]
    assert manifest["totals"]["members"] == len(manifest["members"])
    assert manifest["totals"]["member_bytes"] == sum(m["size"] for m in manifest["members"])
    assert manifest["totals"]["sessions"] == 5
    assert manifest["totals"]["records"] == sum(source["records"] for source in manifest["sources"])


def test_exporting_again_reads_nothing_again(samples: Path, tmp_path: Path) -> None:
    """A second job over unchanged sessions scans, and takes everything else from the memo."""
    first = job_over(samples, tmp_path)
    digest = run(first)
    second = job_over(samples, tmp_path)
    second.memo, second.job_id = first.memo, "job-2"

    again = run(second)

    assert (again, second.ran) == (digest, ["scan"])


def test_an_unchanged_session_is_reused_beside_a_changed_one(tmp_path: Path) -> None:
    """Only the session that has grown is read again."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(line(sessionId="a"))
    (folder / "b.jsonl").write_bytes(line(sessionId="b"))
    first = job_over(folder, tmp_path)
    run(first)
    with (folder / "b.jsonl").open("ab") as file:
        file.write(line("more", sessionId="b"))
    second = job_over(folder, tmp_path)
    second.memo, second.job_id = first.memo, "job-2"

    run(second)

    assert second.ran == ["scan", "read", "bundle"]


def test_memo_keys_ignore_where_the_bytes_lie_and_how_far_the_job_is(samples: Path, tmp_path: Path) -> None:
    """Path, name and progress are no part of what a step is remembered under."""
    job = job_over(samples, tmp_path)
    run(job)
    moved = samples.rename(tmp_path / "moved")
    again = job_over(moved, tmp_path / "two")

    run(again)

    assert again.keys[1:] == job.keys[1:]
    excluded = {name for name, info in ReadInputs.model_fields.items() if info.exclude}
    assert excluded == {"path", "name", "offset", "rules"}


def test_the_same_bytes_twice_are_one_session(tmp_path: Path) -> None:
    """A copy of a session adds nothing."""
    folder = tmp_path / "folder"
    (folder / "backup").mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(line())
    _, once = export(folder, tmp_path)
    (folder / "backup" / "a.jsonl").write_bytes(line())

    store, twice = export(folder, tmp_path)

    assert twice == once
    assert paths_of(store, twice) == [
        "data/sessions/claude-code/s-1.jsonl",
        "data/sessions/claude-code/s-1.report.json",
    ]


def test_one_session_at_two_moments_keeps_both(tmp_path: Path) -> None:
    """Two files of one session with different bytes are both exported, told apart by their digests."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "old.jsonl").write_bytes(line())
    (folder / "new.jsonl").write_bytes(line() + line("more"))

    store, digest = export(folder, tmp_path)

    manifest = manifest_of(store, digest)
    assert sorted(source["path"] for source in manifest["sources"]) == sorted(
        f"data/sessions/claude-code/s-1~{source['sha256'].removeprefix('sha256:')}"
        for source in manifest["sources"]
    )
    assert [source["records"] for source in sorted(manifest["sources"], key=lambda s: int(s["size"]))] == [
        2,
        3,
    ]


@pytest.mark.needs_samples
def test_snapshots_of_a_real_session_are_all_kept(tmp_path: Path) -> None:
    """A session at six moments of its life gives six sessions under six paths."""
    growth = Path(os.environ["AUTOCODE_SAMPLES"]) / "growth"
    expected = {path.read_bytes() for path in growth.rglob("*.jsonl")}

    store, digest = export(growth, tmp_path)

    manifest = manifest_of(store, digest)
    assert manifest["totals"]["sessions"] == len(expected)
    assert len({source["path"] for source in manifest["sources"]}) == len(expected)


def test_subagents_lie_below_their_session(tmp_path: Path) -> None:
    """The transcript of a subagent gets the session's path and its own id."""
    written = write_samples(tmp_path / "samples", sessions=2, megabytes=0)

    store, digest = export(written.folder, tmp_path)

    agents = [path for path in paths_of(store, digest) if ".agents/" in path and path.endswith(".jsonl")]
    sessions = [path.partition(".agents/")[0] + ".jsonl" for path in agents]
    assert len(agents) == 1
    assert sessions[0] in paths_of(store, digest)


def test_unread_files_are_named_by_digest_and_exported_only_raw(samples: Path, tmp_path: Path) -> None:
    """A file that no reader knows is listed by kind, digest and size; its bytes go in unredacted only."""
    content = json.dumps({"exportedAt": "2026-01-01", "prompts": []}).encode()
    (samples / "replay.json").write_bytes(content)
    store, redacted = export(samples, tmp_path)

    other, plain = export(samples, tmp_path / "plain", redact=False)

    unread = manifest_of(store, redacted)["unread"]
    assert [(each["kind"], each["size"]) for each in unread] == [("vscode-chatreplay", len(content))]
    assert not store.stat(unread[0]["sha256"])
    assert manifest_of(other, plain)["unread"] == []
    assert f"data/unread/{unread[0]['sha256'].removeprefix('sha256:')}.raw" in paths_of(other, plain)
    assert other.open(unread[0]["sha256"]).read_all(limit=1 << 20) == content


def test_without_redaction_every_source_is_kept_raw(samples: Path, tmp_path: Path) -> None:
    """Each file's bytes are members of an export without redaction, and of no other."""
    store, digest = export(samples, tmp_path, redact=False)

    contents = {
        store.open(m["sha256"]).read_all(limit=1 << 20) for m in manifest_of(store, digest)["members"]
    }

    assert {path.read_bytes() for path in samples.rglob("*") if path.is_file()} <= contents
    assert not [path for path in paths_of(*export(samples, tmp_path / "redacted")) if path.endswith(".raw")]


def test_no_file_is_compared_with_every_other(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export of twice as many files takes twice as long, so its plan never compares two of them."""

    def compared(_self: FoundFile, _other: object) -> bool:
        raise AssertionError("two files were compared")

    monkeypatch.setattr(FoundFile, "__eq__", compared)

    assert run(job_over(samples, tmp_path)).startswith("sha256:")
