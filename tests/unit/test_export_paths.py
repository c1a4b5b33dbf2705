"""Where members lie in the bundle, whatever ids the sessions claim to have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autocode.jobs.canonical import canonical_json
from autocode.jobs.operations.export.bundle import write_manifest
from autocode.jobs.operations.export.manifest import load_manifest
from autocode.jobs.operations.export.payload import BundleInputs
from autocode.jobs.store import LocalStore
from export_context import StoreContext, export, job_over, line, paths_of, run

SAFE = re.compile(r"data/sessions/claude-code/[A-Za-z0-9][A-Za-z0-9._~/-]*\.(jsonl|report\.json|raw)")

HOSTILE = (
    "../x",
    "a/b",
    "/etc/passwd",
    "..",
    ".",
    "",
    " ",
    "x" * 300,
    "two\nlines",
    "CON",
    "con.txt",
    "COM1",
    "lpt9.x",
    "a\\b",
    "C:x",
    "-rf",
    "~root",
    "\N{LATIN SMALL LETTER E WITH ACUTE}",
    "e\N{COMBINING ACUTE ACCENT}",
    "dot.",
    "nul",
    "\x00",
    "*",
    "\N{RIGHT-TO-LEFT OVERRIDE}cod",
    "\ud800",
)


@pytest.mark.parametrize("session_id", HOSTILE)
def test_a_hostile_session_id_gives_a_plain_path(session_id: str, tmp_path: Path) -> None:
    """No id becomes part of a path unless it is a plain name; the digest takes its place."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(line(sessionId=session_id))
    (folder / "b.jsonl").write_bytes(line(sessionId=session_id, agentId=session_id, isSidechain=True))

    store, digest = export(folder, tmp_path, redact=False)

    paths = paths_of(store, digest)
    assert len({path.casefold() for path in paths}) == 6
    assert [path for path in paths if not SAFE.fullmatch(path) or ".." in path.split("/")] == []
    assert load_manifest(store, digest).digest == digest


def test_ids_that_differ_in_case_alone_are_told_apart(tmp_path: Path) -> None:
    """Sessions called Ab and aB don't overwrite each other where case doesn't count."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("Ab", "aB", "AB", "other"):
        (folder / f"{name}-{ord(name[0])}{ord(name[1])}").write_bytes(line(sessionId=name))

    paths = paths_of(*export(folder, tmp_path))

    assert len({path.casefold() for path in paths}) == 8
    assert "data/sessions/claude-code/other.jsonl" in paths


def test_sources_with_like_digests_are_told_apart(tmp_path: Path) -> None:
    """Two sources without ids whose digests begin alike, which can be contrived, get different paths."""
    context = StoreContext(tmp_path, LocalStore(tmp_path / "store"))
    normal = context.put([b"{}\n"], "text/plain")
    report = {
        "tool": "claude-code",
        "reader": "claude-code",
        "revision": 1,
        "session_id": None,
        "agent_id": None,
    }
    entries = [
        context.put([canonical_json({
            "source": {"sha256": "sha256:" + "ab" * 8 + end * 48, "size": 3},
            "raw": None,
            "normal": {"digest": normal.digest, "size": normal.size},
            "report": report,
            "redaction": None,
        })], "text/plain").digest
        for end in "01"
    ]  # fmt: skip

    digest = write_manifest(
        context, BundleInputs(entries=tuple(entries), unread=(), left_out={}, policy=None)
    ).digest

    assert len(set(paths_of(context.store, digest))) == 4


@settings(max_examples=40, deadline=None)
@given(ids=st.lists(st.text(max_size=12) | st.sampled_from(HOSTILE), min_size=1, max_size=5))
def test_whatever_the_ids_are_the_paths_are_safe_and_unique(
    ids: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every set of ids gives a manifest that the strict loader accepts."""
    base = tmp_path_factory.mktemp("ids")
    (base / "folder").mkdir()
    for number, session_id in enumerate(ids):
        (base / "folder" / str(number)).write_bytes(line(str(number), sessionId=session_id))
    job = job_over(base / "folder", base)

    digest = run(job)

    assert len(load_manifest(job.context.store, digest).members) == 2 * len(ids)
