"""The sample histories and runs: reproducible, read whole by the readers that they are for, and exported."""

from __future__ import annotations

from pathlib import Path

import pytest

from autocode.jobs.sessions import HEAD_BYTES, sniff
from autocode.jobs.testing.sample_texts import write_texts
from export_context import export, manifest_of
from unit.sessions.session_lines import accounted, read

READERS = {
    "aider": ("aider", 2),
    "swe-agent": ("swe-agent", 1),
    "swe-agent-text": ("swe-agent", 1),
    "mini-swe-agent": ("mini-swe-agent", 1),
    "mini-swe-agent-bare": ("mini-swe-agent", 1),
    "openhands": ("openhands", 1),
    "openhands-output": ("openhands", 2),
}
DECLARED = {"absurd-time", "repeated-history", "repeated-response", "rounded-count"}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Sample histories and runs that the tests only read."""
    return write_texts(tmp_path_factory.mktemp("texts"), seed=3)


def test_the_same_seed_gives_the_same_texts(tmp_path: Path) -> None:
    """Bytes and names depend on the seed alone."""
    one, other = (write_texts(tmp_path / name, seed=5) for name in ("one", "other"))

    assert {name: path.read_bytes() for name, path in one.items()} == {
        name: path.read_bytes() for name, path in other.items()
    }
    assert one["aider"].read_bytes() != write_texts(tmp_path / "third")["aider"].read_bytes()


@pytest.mark.parametrize("name", READERS)
def test_each_text_is_understood_whole(texts: dict[str, Path], name: str) -> None:
    """Its reader recognises it, and loses nothing but what the documentation declares."""
    data = texts[name].read_bytes()
    reader = sniff(data[:HEAD_BYTES])
    assert reader is not None

    records, report = read(data, reader)

    assert (reader.name, report.sessions) == READERS[name]
    assert set(report.lost) <= DECLARED
    assert (report.damaged_total, accounted(records, report)) == (0, len(data))


def test_texts_are_exported_beside_one_another(texts: dict[str, Path], tmp_path: Path) -> None:
    """Each file is a source of the bundle, in the folder of its tool; the hidden one too."""
    folder = texts["aider"].parent.parent

    manifest = manifest_of(*export(folder, tmp_path))

    tools = {member["path"].split("/")[2] for member in manifest["members"] if "/sessions/" in member["path"]}
    assert tools == {"aider", "swe-agent", "mini-swe-agent", "openhands"}
    assert (len(manifest["sources"]), manifest["unread"]) == (len(READERS), [])
