"""Manifests from outside: what isn't one, or is a dangerous one, is refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autocode.jobs.canonical import canonical_json
from autocode.jobs.errors import ObjectCorrupt, ObjectMissing, UsageError
from autocode.jobs.operations.export.views import load_manifest, write_folder, write_zip
from autocode.jobs.store import LocalStore, put_bytes
from export_context import export, line, manifest_of

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def exported(tmp_path: Path) -> tuple[LocalStore, str]:
    """An export of one session."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "s").write_bytes(line())
    return export(tmp_path / "folder", tmp_path)


def edited(exported: tuple[LocalStore, str], edit: Edit) -> str:
    """Store the export's manifest with a change and return its digest."""
    manifest = manifest_of(*exported)
    edit(manifest)
    return put_bytes(exported[0], canonical_json(manifest)).digest


def test_a_manifest_is_read_as_it_was_written(exported: tuple[LocalStore, str]) -> None:
    """The typed manifest has the digest of the object, and every field of it."""
    manifest = load_manifest(*exported)

    assert manifest.digest == exported[1]
    assert manifest.model_dump(mode="json") == manifest_of(*exported)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../x",
        "data/../../x",
        "data/../x",
        "data/a/../b",
        "data/./x",
        "data//x",
        "data/",
        "data",
        "x",
        "manifest.json",
        "Data/x",
        "data\\x",
        "data/a\\..\\x",
        "data/c:x",
        "data/x\n",
        "data/x\0",
        "data/-rf",
        "data/.hidden",
        "data/x.",
        "data/x ",
        "data/CON",
        "data/con.txt",
        "data/nul/x",
        "data/\u00e9",
        "data/*",
        "data/" + "x" * 300,
        "data/" + "x/" * 50 + "x",
        "",
    ],
)
def test_a_hostile_member_path_is_refused(
    path: str, exported: tuple[LocalStore, str], tmp_path: Path
) -> None:
    """No path that means something else than one file below data/ gets as far as the disk."""
    digest = edited(exported, lambda manifest: manifest["members"][0].update(path=path))
    (tmp_path / "out").mkdir()

    for write in (write_folder, lambda *a: write_zip(a[0], a[1], a[2] / "e.zip")):
        with pytest.raises(UsageError) as caught:
            write(exported[0], digest, tmp_path / "out")
        assert "manifest" in caught.value.detail

    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("data/a.jsonl", "data/a.jsonl"),
        ("data/a.jsonl", "data/A.jsonl"),
        ("data/a", "data/a/b"),
        ("data/A/b", "data/a"),
    ],
)
def test_members_that_cannot_lie_side_by_side_are_refused(
    one: str, other: str, exported: tuple[LocalStore, str]
) -> None:
    """Two members are never one file, nor one the folder of the other, whatever the file system."""

    def clash(manifest: dict[str, Any]) -> None:
        manifest["members"][0]["path"], manifest["members"][1]["path"] = one, other

    with pytest.raises(UsageError, match="side by side"):
        load_manifest(exported[0], edited(exported, clash))


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m.update(format="autocode-export/2"),
        lambda m: m.pop("format"),
        lambda m: m.update(more=1),
        lambda m: m["members"][0].update(size=-1),
        lambda m: m["members"][0].update(size="1"),
        lambda m: m["members"][0].update(size=True),
        lambda m: m["members"][0].update(sha256="sha256:../../x"),
        lambda m: m["members"][0].update(sha256="0" * 64),
        lambda m: m["members"][0].update(mode="0777"),
        lambda m: m.update(members={}),
        lambda m: m.update(redaction=[]),
    ],
)
def test_another_format_is_refused(edit: Edit, exported: tuple[LocalStore, str]) -> None:
    """A manifest with a field too many, too few or of another type isn't half understood."""
    with pytest.raises(UsageError) as caught:
        load_manifest(exported[0], edited(exported, edit))

    assert "autocode-export/1" in caught.value.detail
    assert "finished export" in caught.value.hint


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"[]", b"null", b"{}", b"[" * 100_000, b"\xff", b'{"format":"autocode-export/1"}']
)
def test_an_object_that_is_no_manifest_is_refused(data: bytes, tmp_path: Path) -> None:
    """Any other object is an error of usage, not a crash."""
    store = LocalStore(tmp_path / "store")

    with pytest.raises(UsageError, match="is no manifest"):
        load_manifest(store, put_bytes(store, data).digest)


def test_a_manifest_that_is_not_canonical_is_refused(exported: tuple[LocalStore, str]) -> None:
    """Two manifests of one value would give one export two identities."""
    store, digest = exported
    data = store.open(digest).read_all(limit=1 << 20)

    with pytest.raises(UsageError, match="canonical"):
        load_manifest(store, put_bytes(store, data + b"\n").digest)


def test_a_member_of_another_size_makes_no_view(exported: tuple[LocalStore, str], tmp_path: Path) -> None:
    """A manifest that lies about a size is found out before the member is there."""
    digest = edited(exported, lambda manifest: manifest["members"][0].update(size=1))
    (tmp_path / "out").mkdir()

    with pytest.raises(UsageError, match="gives data/"):
        write_folder(exported[0], digest, tmp_path / "out")

    assert list((tmp_path / "out").iterdir()) == []


def test_missing_and_damaged_manifests_pass_through(exported: tuple[LocalStore, str]) -> None:
    """What the store says about the manifest itself reaches the caller."""
    store, digest = exported
    with pytest.raises(ObjectMissing):
        load_manifest(store, "sha256:" + "0" * 64)
    path = store.path_of(digest)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(ObjectCorrupt):
        load_manifest(store, digest)
