"""``autocode.jobs.load``: the tables of an export as pandas frames of documented types."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from autocode.jobs import load
from autocode.jobs.errors import BundleDamaged, JobsError, ObjectCorrupt, ObjectMissing, UsageError
from autocode.jobs.operations.export.views import load_manifest, write_folder, write_zip
from autocode.jobs.operations.views.frame import DTYPES, iter_frames
from autocode.jobs.operations.views.tables import TABLES
from autocode.jobs.store import LocalStore
from made_bundle import bundle_of, example_export, session

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with one export."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def digest(home: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The export in it."""
    return example_export(tmp_path_factory.mktemp("in"), home)[1]


@pytest.fixture(scope="module")
def folder(home: Path, digest: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export unpacked."""
    return write_folder(LocalStore(home / "store"), digest, tmp_path_factory.mktemp("out"))


def copy_of(folder: Path, target: Path) -> Path:
    """Copy an unpacked bundle, so that it can be spoilt."""
    for path in folder.rglob("*"):
        if path.is_file():
            (target / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(folder)).write_bytes(path.read_bytes())
    return target


def types_of(frame: pd.DataFrame) -> dict[str, str]:
    """Return the exact types by column."""
    return {
        str(name): repr(dtype) if "string" in str(dtype) else str(dtype)
        for name, dtype in frame.dtypes.items()
    }


@pytest.mark.parametrize("table", TABLES)
def test_types_are_as_documented(home: Path, digest: str, table: str, tmp_path: Path) -> None:
    """Each column has the type of its kind, in an empty table as well."""
    expected = {
        column.name: repr(pd.StringDtype("python"))
        if DTYPES[column.kind].startswith("string")
        else DTYPES[column.kind]
        for column in TABLES[table].columns
    }
    _, nearly_empty = bundle_of(tmp_path, [session(0)])

    full = load(digest, home=home, table=table)
    empty = load(nearly_empty, home=tmp_path, table=table)

    assert types_of(full) == types_of(empty) == expected
    assert list(full.index) == list(range(len(full)))


def test_values_are_those_of_the_session(home: Path, digest: str) -> None:
    """Missing values are missing, times are times, flags are flags."""
    calls = load(digest, home=home, table="tool_calls")

    assert list(calls["name"]) == ["Read", "Bash", "Edit", "Bash", "Bash", "WebFetch"]
    assert calls["is_error"].fillna(value=False).tolist() == [False, True, False, False, False, False]
    assert calls["duration_ms"].isna().tolist() == [False] * 5 + [True]
    assert calls["at"].iloc[0] == pd.Timestamp("2026-02-07T10:00:03Z")
    assert list(calls["name"].cat.categories) == ["Bash", "Edit", "Read", "WebFetch"]
    assert calls["record"].is_monotonic_increasing


def test_records_are_the_default_and_the_frame_says_what_it_is(home: Path, digest: str) -> None:
    """One row for each record of the normal form, with the export's digest kept beside."""
    frame = load(digest, home=home)

    assert len(frame) == 21
    assert frame.attrs == {"digest": digest, "table": "records"}


@pytest.mark.parametrize("place", ["folder", "text", "zip", "digest", "hex", "short", "shown"])
def test_a_bundle_is_the_same_wherever_it_lies(
    home: Path, digest: str, folder: Path, tmp_path: Path, place: str
) -> None:
    """Store, folder and zip file give equal frames; a digest may be short."""
    places: dict[str, str | Path] = {
        "folder": folder,
        "text": str(folder),
        "zip": write_zip(LocalStore(home / "store"), digest, tmp_path / "b.zip"),
        "digest": digest,
        "hex": digest.removeprefix("sha256:"),
        "short": digest[:19],
        "shown": digest[:19] + "…",
    }

    frame = load(places[place], home=home, table="messages")

    pd.testing.assert_frame_equal(frame, load(digest, home=home, table="messages"))
    assert frame.attrs["digest"] == digest


def test_the_home_is_that_of_the_environment(
    home: Path, digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a home given, AUTOCODE_HOME names it."""
    monkeypatch.setenv("AUTOCODE_HOME", str(home))

    assert len(load(digest, table="sessions")) == 2


def test_fewer_columns_come_in_the_order_asked_for(home: Path, digest: str) -> None:
    """The rows are sorted by their key even where the key isn't asked for."""
    whole = load(digest, home=home, table="usage")

    frame = load(digest, home=home, table="usage", columns=["output_tokens", "model"])

    assert list(frame.columns) == ["output_tokens", "model"]
    pd.testing.assert_frame_equal(frame, whole[["output_tokens", "model"]])


def test_frames_in_a_row_are_the_table(home: Path, digest: str) -> None:
    """Small frames hold the same rows; the last one is short, and an empty table is one empty frame."""
    frames = list(iter_frames(digest, home=home, table="records", rows=4))
    empty = list(iter_frames(digest, home=home, table="damage"))

    whole = load(digest, home=home).astype(
        dict.fromkeys(("type", "name", "model", "stop_reason"), "string[python]")
    )
    assert [len(frame) for frame in frames] == [4, 4, 4, 4, 4, 1]
    pd.testing.assert_frame_equal(pd.concat(frames, ignore_index=True), whole)
    assert [len(frame) for frame in empty] == [0]


@pytest.mark.parametrize(
    ("wrong", "detail"),
    [
        ({"table": "tokens"}, "There is no table 'tokens'."),
        ({"columns": ["seq", "text"]}, "The table records has no column 'text'."),
        ({"columns": []}, "columns takes a list of different names, at least one."),
        ({"columns": ["seq", "seq"]}, "columns takes a list of different names, at least one."),
        ({"columns": "seq"}, "columns takes a list of different names, at least one."),
    ],
)
def test_wrong_names_are_refused_with_the_right_ones(
    home: Path, digest: str, wrong: dict[str, Any], detail: str
) -> None:
    """Who mistypes a name learns which there are."""
    with pytest.raises(UsageError) as caught:
        load(digest, home=home, **wrong)

    assert caught.value.detail == detail


def test_what_is_no_bundle_is_said_to_be_none(home: Path, digest: str, tmp_path: Path) -> None:
    """An unknown digest, another object, a path that isn't there, a folder and files of something else."""
    store = LocalStore(home / "store")
    session_object = next(m.sha256 for m in load_manifest(store, digest).members if m.path.endswith(".jsonl"))
    (tmp_path / "other").mkdir()
    (tmp_path / "text.zip").write_text("no zip")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as packed:
        packed.writestr("a/b", "c")
    places: list[tuple[str | Path, type[JobsError], str]] = [
        ("sha256:" + "0" * 64, ObjectMissing, "holds no export sha256:000"),
        ("sha256:00000000", ObjectMissing, "holds no export sha256:00000000"),
        (session_object, UsageError, "is no manifest"),
        ("nowhere", UsageError, "is neither the digest of an export nor a path"),
        (tmp_path / "other", UsageError, "is no bundle: no manifest.json"),
        (tmp_path / "text.zip", UsageError, "is no bundle: it is no zip file"),
        (tmp_path / "other.zip", UsageError, "is no bundle: no folder with a manifest.json"),
    ]

    for place, kind, detail in places:
        with pytest.raises(kind) as caught:
            load(place, home=home)
        assert detail in caught.value.detail


@pytest.mark.parametrize("harm", ["change", "truncate", "lengthen", "remove", "link", "manifest"])
def test_a_damaged_folder_gives_no_frame(folder: Path, tmp_path: Path, harm: str) -> None:
    """Not a row of a bundle comes out whose bytes aren't those of its manifest."""
    root = copy_of(folder, tmp_path / "b")
    victim = root / ("manifest.json" if harm == "manifest" else "data/sessions/claude-code/s-2.jsonl")
    data = victim.read_bytes()
    if harm in {"remove", "link"}:
        victim.unlink()
    if harm == "link":
        (tmp_path / "elsewhere").write_bytes(data)
        victim.symlink_to(tmp_path / "elsewhere")
    spoilt = {
        "change": data.replace(b"publish", b"PUBLISH", 1),
        "truncate": data[:-30],
        "lengthen": data + b"{}\n",
        "manifest": data.replace(b'"size":', b'"size": ', 1),
    }
    if harm in spoilt:
        victim.write_bytes(spoilt[harm])

    with pytest.raises(UsageError if harm == "manifest" else BundleDamaged):
        load(root)


def test_a_damaged_zip_gives_no_frame(home: Path, digest: str, tmp_path: Path) -> None:
    """The zip file's own checksum or ours finds it."""
    path = write_zip(LocalStore(home / "store"), digest, tmp_path / "b.zip")
    with zipfile.ZipFile(path) as packed:
        entry = next(each for each in packed.infolist() if each.filename.endswith("s-2.jsonl"))
    data = bytearray(path.read_bytes())
    middle = entry.header_offset + 80 + entry.compress_size // 2
    data[middle] ^= 0xFF
    path.write_bytes(data)

    with pytest.raises(BundleDamaged, match=r"s-2\.jsonl of the bundle"):
        load(path)


def test_a_damaged_object_gives_no_frame(tmp_path: Path) -> None:
    """An object of the store that doesn't match its digest is the store's error."""
    store, digest = example_export(tmp_path / "in", tmp_path)
    path = store.path_of(load_manifest(store, digest).members[0].sha256)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-60] + bytes(60))

    with pytest.raises(ObjectCorrupt):
        load(digest, home=tmp_path, table="messages")


def test_importing_is_cheap() -> None:
    """The name ``load`` costs neither pandas nor a database until it is called."""
    code = (
        "import sys; from autocode.jobs import load; "
        "print(sorted({'pandas', 'sqlalchemy', 'prefect', 'numpy'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout == "[]\n"


def test_the_page_of_the_tables_is_in_step() -> None:
    """docs/tables.md describes every table and column with its types, and nothing else."""
    page = (ROOT / "docs" / "tables.md").read_text("utf-8")

    described = page[page.index("\n## bundle\n") :].strip()

    assert described == tables_page().strip()


def tables_page() -> str:
    """Return what docs/tables.md says of the tables; print it to write the page anew."""
    lines: list[str] = []
    for table in TABLES.values():
        key = f" Key: {', '.join(f'`{name}`' for name in table.key)}." if table.key else ""
        lines += [
            f"## {table.name}",
            "",
            f"{table.about}{key}",
            "",
            "| column | kind | meaning |",
            "|---|---|---|",
        ]
        for column in table.columns:
            refers = f" → `{column.references}`" if column.references not in {None, table.name} else ""
            lines.append(f"| `{column.name}` | {column.kind} | {column.about}{refers} |")
        lines.append("")
    return "\n".join(lines)
