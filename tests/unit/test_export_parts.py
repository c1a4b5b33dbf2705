"""Long sessions are exported in parts, so that growth costs its tail."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autocode.jobs.errors import SourceChanged
from autocode.jobs.operations.export.payload import Source
from autocode.jobs.operations.export.preview import preview
from autocode.jobs.operations.export.scan import freeze
from autocode.jobs.operations.export.views import load_manifest, write_folder, write_zip
from autocode.jobs.sessions import PART, Cutter
from autocode.jobs.sessions.claude_code import ClaudeCodeReader
from autocode.jobs.sessions.discover import Candidate
from autocode.jobs.store import LocalStore
from autocode.jobs.testing.fake_secrets import fake_secret
from export_context import Job, export, job_over, line, manifest_of, objects_of, paths_of, run

SCAN = sys.modules["autocode.jobs.operations.export.scan"]
SMALL = 4096
SECRET = fake_secret("github-token", random.Random(1))[1]
MEMBERS = "data/sessions/claude-code/s-1"


def session(count: int, first: int = 0, size: int = 300) -> bytes:
    """Return *count* lines of a session, numbered from *first*."""
    return b"".join(
        line(f"{number} " + "x" * size, uuid=f"u-{number}", parentUuid=f"u-{number - 1}")
        for number in range(first, first + count)
    )


@pytest.fixture
def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let parts be 4 KiB, so that small sessions have several."""
    monkeypatch.setattr(SCAN, "Cutter", partial(Cutter, SMALL))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return an empty folder for sessions."""
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def another(job: Job, number: int = 2) -> Job:
    """Return another job over the same home."""
    return Job(job.context, job.payload, memo=job.memo, job_id=f"job-{number}")


def cut_of(path: Path) -> list[int]:
    """Return the sizes of the parts of a file."""
    found, _ = freeze(Candidate(path.name, path, 0), lambda: None)
    return [part.size for part in found.cut()]


def reads(job: Job) -> int:
    """Return how many parts were read."""
    return job.ran.count("read")


def test_growth_costs_the_last_part(root: Path, tmp_path: Path) -> None:
    """Of a grown session of 20 MiB no byte before the last part is read again, and the result is the same."""
    path = root / "s.jsonl"
    path.write_bytes(session(8500, size=2300))
    job = job_over(root, tmp_path / "one")
    run(job)
    with path.open("ab") as file:
        file.write(session(100, 8500, 1000))
    grown = path.read_bytes()
    sizes = cut_of(path)
    again = another(job)

    def spoil(step: str) -> None:
        # what lies before the last part can't be read any more as it was scanned
        if step == "read":
            with path.open("r+b") as file:
                file.write(bytes(sum(sizes[:-1])))

    again.before = spoil
    digest = run(again)

    assert (len(sizes), reads(job)) == (3, 3)
    assert again.ran == ["scan", "read", "bundle"]
    assert sizes[-1] < PART + 200_000
    path.write_bytes(grown)
    assert export(root, tmp_path / "two")[1] == digest


@pytest.mark.usefixtures("cut_small")
def test_an_unchanged_session_is_not_read(root: Path, tmp_path: Path) -> None:
    """Every part is remembered; so is the bundle."""
    (root / "s.jsonl").write_bytes(session(60))
    job = job_over(root, tmp_path)
    first = run(job)
    again = another(job)

    assert run(again) == first
    assert again.ran == ["scan"]
    assert reads(job) == len(cut_of(root / "s.jsonl")) > 4


@pytest.mark.usefixtures("cut_small")
@pytest.mark.parametrize(
    ("change", "read_again"),
    [
        (lambda data, _sizes: data.replace(b'"0 x', b'"0 y'), "all"),
        (lambda data, sizes: data[: sum(sizes[:3])], "last"),
        (lambda data, sizes: data[: sum(sizes[:3]) - 10], "last"),
        (lambda data, sizes: data[: sizes[0] + 10], "last"),
        (lambda data, _sizes: data + b"\n", "last"),
    ],
    ids=["rewritten at the start", "shrunk to parts", "shrunk within one", "shrunk to two", "a newline more"],
)
def test_changes_cost_what_they_touch(
    change: Callable[[bytes, list[int]], bytes], read_again: str, root: Path, tmp_path: Path
) -> None:
    """What stands behind a change is read again, nothing before it; the result is that of a fresh home."""
    path = root / "s.jsonl"
    path.write_bytes(session(60))
    job = job_over(root, tmp_path / "one")
    run(job)
    path.write_bytes(change(path.read_bytes(), cut_of(path)))
    again = another(job)

    digest = run(again)

    assert reads(again) == (len(cut_of(path)) if read_again == "all" else 1)
    assert digest == export(root, tmp_path / "two")[1]


@pytest.mark.usefixtures("cut_small")
def test_a_job_that_died_between_parts_goes_on_there(root: Path, tmp_path: Path) -> None:
    """Parts that were read stay read, and the result is that of an undisturbed run."""
    (root / "s.jsonl").write_bytes(session(60))
    job = job_over(root, tmp_path / "one")

    def die(_step: str) -> None:
        if reads(job) == 2:
            raise KeyboardInterrupt

    job.before = die
    with pytest.raises(KeyboardInterrupt):
        run(job)
    again = Job(job.context, job.payload, memo=job.memo)
    digest = run(again)

    assert reads(again) == len(cut_of(root / "s.jsonl")) - 2
    assert digest == export(root, tmp_path / "two")[1]


@pytest.mark.usefixtures("cut_small")
def test_a_part_that_changed_after_the_scan_is_refused(root: Path, tmp_path: Path) -> None:
    """Each part is checked against the digest that was scanned."""
    path = root / "s.jsonl"
    path.write_bytes(session(60))
    job = job_over(root, tmp_path)

    def change(_step: str) -> None:
        if reads(job) == 2:
            path.write_bytes(path.read_bytes().replace(b"59 x", b"59 y").replace(b"30 x", b"30 y"))

    job.before = change

    with pytest.raises(SourceChanged, match=r"s\.jsonl no longer holds the \d+ bytes"):
        run(job)


@pytest.mark.usefixtures("cut_small")
def test_the_parts_together_are_the_session(root: Path, tmp_path: Path) -> None:
    """Raw parts in order are the file, normal forms those of reading it whole, and one report tells all."""
    path = root / "s.jsonl"
    path.write_bytes(session(60) + b'{"torn' + line("after") + session(20, 60))
    whole = ClaudeCodeReader().read(io.BytesIO(path.read_bytes()))
    records = list(whole)

    store, digest = export(root, tmp_path, redact=False)
    manifest = load_manifest(store, digest)
    found = {member.path: store.open(member.sha256).read_all(limit=1 << 30) for member in manifest.members}
    source = manifest.sources[0]
    stems = source.parts

    assert stems[:2] == [MEMBERS, f"{MEMBERS}.part-0002"]
    assert sorted(found) == sorted(
        [f"{MEMBERS}.report.json", *(stem + ending for stem in stems for ending in (".jsonl", ".raw"))]
    )
    assert b"".join(found[f"{stem}.raw"] for stem in stems) == path.read_bytes()
    lines = b"".join(found[f"{stem}.jsonl"] for stem in stems).splitlines()
    assert [json.loads(each) for each in lines] == records
    entry = json.loads(found[f"{MEMBERS}.report.json"])
    assert entry["report"] == whole.report.to_json()
    assert [part["source"]["size"] for part in entry["parts"]] == cut_of(path)
    assert entry["source"] == {"sha256": source.sha256, "size": path.stat().st_size}
    assert source.sha256 == "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    assert (source.records, manifest.totals["sessions"]) == (len(records), 1)


@pytest.mark.usefixtures("cut_small")
def test_a_file_without_a_reader_is_cut_as_well(root: Path, tmp_path: Path) -> None:
    """Raw files are exported in parts too."""
    (root / "s.jsonl").write_bytes(session(1))
    (root / "notes.txt").write_bytes(b"notes\n" * 2000)

    store, digest = export(root, tmp_path, redact=False)

    unread = [path for path in paths_of(store, digest) if path.startswith("data/unread/")]
    assert len([path for path in unread if path.endswith(".raw")]) == len(cut_of(root / "notes.txt")) == 3
    assert len(unread) == 4


@pytest.mark.usefixtures("cut_small")
def test_secrets_stay_out_of_everything_that_parts_leave(root: Path, tmp_path: Path) -> None:
    """No object holds a secret, numbers go on from part to part, and the report has every place."""
    lines = [session(20), line(f"a {SECRET}"), session(20, 20), line(f"b {SECRET}"), session(20, 40)]
    title = line(type="custom-title", customTitle=f"of {SECRET}")
    (root / "s.jsonl").write_bytes(line(cwd=f"/{SECRET}") + lines[0] + title + b"".join(lines[1:]))

    store, digest = export(root, tmp_path)

    assert [key for key, data in objects_of(store).items() if SECRET.encode() in data] == []
    member = next(
        each for each in manifest_of(store, digest)["members"] if each["path"].endswith("report.json")
    )
    entry = json.loads(store.open(member["sha256"]).read_all(limit=1 << 30))
    places = entry["redaction"]["places"]
    assert len(places) == entry["redaction"]["total"] == entry["redaction"]["counts"]["github-token"]
    numbers = [place["n"] for place in places if not place["pointer"].startswith("/report")]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) > 2
    records = {place["record"] for place in places}
    assert max(records) > 40
    assert entry["report"]["title"].startswith("of [REDACTED:github-token:")


@pytest.mark.usefixtures("cut_small")
def test_a_preview_tells_what_the_export_does(root: Path, tmp_path: Path) -> None:
    """The preview of a session in parts has the report and the places of its export."""
    (root / "s.jsonl").write_bytes(session(30) + line(f"a {SECRET}") + session(30, 30) + line(f"a {SECRET}"))
    store, digest = export(root, tmp_path)
    member = next(
        each for each in manifest_of(store, digest)["members"] if each["path"].endswith("report.json")
    )
    entry = json.loads(store.open(member["sha256"]).read_all(limit=1 << 30))

    (previewed,) = preview(lambda _name: root, [Source(root="samples")])

    assert previewed.report == entry["report"]
    assert previewed.redaction == entry["redaction"]
    assert entry["redaction"]["total"] == 2


@pytest.mark.usefixtures("cut_small")
def test_views_hold_all_parts(root: Path, tmp_path: Path) -> None:
    """The folder and the zip have every part, and the checksums fit."""
    (root / "s.jsonl").write_bytes(session(60))
    store, digest = export(root, tmp_path)

    folder = write_folder(store, digest, tmp_path)
    archive = write_zip(store, digest, tmp_path / "export.zip")

    expected = {f"data/{path.relative_to(folder / 'data')}" for path in (folder / "data").rglob("*.*")}
    assert {path for path in expected if not path.endswith(".agents")} == set(paths_of(store, digest))
    with zipfile.ZipFile(archive) as opened:
        assert (
            len([name for name in opened.namelist() if ".part-" in name]) == len(cut_of(root / "s.jsonl")) - 1
        )
        assert opened.testzip() is None


@pytest.mark.usefixtures("cut_small")
def test_a_session_named_like_a_part_takes_no_members_place(root: Path, tmp_path: Path) -> None:
    """Where an id of one session could be another's part, both get their digests behind their names."""
    (root / "a.jsonl").write_bytes(session(60))
    (root / "b.jsonl").write_bytes(line("b", sessionId="S-1.Part-0002"))

    store, digest = export(root, tmp_path)

    manifest = load_manifest(store, digest)
    assert len({member.path.casefold() for member in manifest.members}) == len(manifest.members)
    assert all("~" in source.path for source in manifest.sources)


@pytest.mark.usefixtures("cut_small")
def test_labels_and_progress_tell_the_part(root: Path, tmp_path: Path) -> None:
    """Each part has a label of its own, made of the frozen input; progress counts bytes up to the total."""
    (root / "s.jsonl").write_bytes(session(60))
    (root / "t.jsonl").write_bytes(session(1).replace(b"s-1", b"s-2"))
    job = _Labelled(job_over(root, tmp_path))

    run(job)

    parts = len(cut_of(root / "s.jsonl"))
    whole = hashlib.sha256((root / "s.jsonl").read_bytes()).hexdigest()[:12]
    short = hashlib.sha256((root / "t.jsonl").read_bytes()).hexdigest()[:12]
    expected = {f"read s {whole} part {number}/{parts}" for number in range(1, parts + 1)}
    assert {label for label in job.labels if label} == expected | {f"read t {short}"}
    told = [done for done, _, unit in job.context.told if unit == "bytes"]
    total = sum(path.stat().st_size for path in root.iterdir())
    assert told == sorted(told)
    assert told[-1] == total


class _Labelled(Job):
    def __init__(self, job: Job) -> None:
        super().__init__(job.context, job.payload)
        self.labels: list[str | None] = []

    async def step(self, step: Any, inputs: Any, *, label: str | None = None) -> Any:
        """Remember the label."""
        self.labels.append(label)
        return await super().step(step, inputs, label=label)


def test_a_line_longer_than_a_part_belongs_to_one(root: Path, tmp_path: Path) -> None:
    """Parts end with lines, however long these are; what follows is a part of its own."""
    path = root / "s.jsonl"
    head, long, rest = session(1), line("y" * (2 * PART)), session(3, 1)
    path.write_bytes(head + long + rest)

    store, digest = export(root, tmp_path)

    assert cut_of(path) == [len(head + long), len(rest)]
    assert manifest_of(store, digest)["sources"][0]["records"] == 6


def test_a_gigabyte_of_zeros_is_one_part(root: Path) -> None:
    """Without a newline there is no place to cut."""
    path = root / "zeros"
    path.touch()
    os.truncate(path, 1 << 30)

    assert cut_of(path) == [1 << 30]


def test_a_session_up_to_a_part_is_stored_as_one(root: Path, tmp_path: Path) -> None:
    """A short session has no object but its entry and its normal form, and its manifest no parts."""
    (root / "s.jsonl").write_bytes(session(3))
    store, digest = export(root, tmp_path)

    assert paths_of(store, digest) == [f"{MEMBERS}.jsonl", f"{MEMBERS}.report.json"]
    assert "parts" not in manifest_of(store, digest)["sources"][0]
    # the scan, the manifest, and these two
    assert len(list(LocalStore(store.root).list())) == 4


def test_a_document_is_one_part(root: Path, monkeypatch: pytest.MonkeyPatch, cut_small: None) -> None:
    """What its reader can't read in parts isn't cut, however many lines it has."""
    path = root / "s.jsonl"
    path.write_bytes(session(60))
    in_parts = len(cut_of(path))
    monkeypatch.setattr(ClaudeCodeReader, "in_parts", False)

    cut = cut_of(path)

    assert in_parts > 1
    assert cut == [path.stat().st_size]
