"""The sample documents: reproducible, read whole by the readers that they are for, and exported."""

from __future__ import annotations

from pathlib import Path

import pytest

from autocode.jobs.sessions import HEAD_BYTES, sniff
from autocode.jobs.testing.sample_documents import write_documents
from export_context import export, manifest_of
from unit.sessions.session_documents import read_document

READERS = {
    "gemini-cli": ("gemini-cli", 1),
    "gemini-cli-lines": ("gemini-cli", 1),
    "chatgpt": ("chatgpt", 2),
    "claude-ai": ("claude-ai", 2),
    "claude-ai-single": ("claude-ai", 1),
    "atif": ("atif", 1),
}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Sample documents that the tests only read."""
    return write_documents(tmp_path_factory.mktemp("documents"), seed=3)


def test_the_same_seed_gives_the_same_documents(tmp_path: Path) -> None:
    """Bytes and names depend on the seed alone."""
    one, other = (write_documents(tmp_path / name, seed=5) for name in ("one", "other"))

    assert {name: path.read_bytes() for name, path in one.items()} == {
        name: path.read_bytes() for name, path in other.items()
    }
    assert one["atif"].read_bytes() != write_documents(tmp_path / "third")["atif"].read_bytes()


@pytest.mark.parametrize("name", READERS)
def test_each_document_is_understood_whole(documents: dict[str, Path], name: str) -> None:
    """Its reader recognises it, and loses nothing but the second use of an id."""
    data = documents[name].read_bytes()
    reader = sniff(data[:HEAD_BYTES])
    assert reader is not None

    records, report = read_document(data, reader)

    assert (reader.name, report.sessions) == READERS[name]
    assert set(report.lost) <= {"duplicate-id"}
    assert report.damaged_total == 0
    results = [record for record in records if record["type"] == "tool_result"]
    assert len(results) >= 6
    assert all(record["call"] for record in results)


def test_documents_are_exported_beside_one_another(documents: dict[str, Path], tmp_path: Path) -> None:
    """Each file is a source of the bundle, in the folder of its tool."""
    folder = documents["atif"].parent.parent

    manifest = manifest_of(*export(folder, tmp_path))

    tools = {member["path"].split("/")[2] for member in manifest["members"] if "/sessions/" in member["path"]}
    assert tools == {"gemini-cli", "chatgpt", "claude-ai", "atif"}
    assert (len(manifest["sources"]), manifest["unread"]) == (len(READERS), [])
