"""The two encoders of records agree with canonical JSON to the byte."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocode.jobs.canonical import canonical_json
from autocode.jobs.operations.export import encoding
from autocode.jobs.operations.export.encoding import encode_record, pieces_of
from export_context import export, line, objects_of

TEXTS = st.text(st.characters(), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=30,
)


@given(VALUES)
def test_records_are_encoded_canonically(value: Any) -> None:
    """The prebuilt encoder writes what canonical JSON is."""
    assert encode_record({"value": value}) == canonical_json({"value": value})


@given(VALUES, st.integers(1, 5))
def test_pieces_add_up_to_canonical_json(value: Any, size: int) -> None:
    """The encoder in pieces writes what canonical JSON is, wherever it cuts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_SLICE", "_BATCH", "_GROUP", "_FEW", "_SHORT"):
            patch.setattr(encoding, name, size)

        assert b"".join(pieces_of(value)) == canonical_json(value)


def test_a_large_record_comes_in_pieces_that_are_small() -> None:
    """No piece of a text of ten mebibytes is larger than the worst case of one mebibyte."""
    pieces = list(pieces_of({"text": "\N{GRINNING FACE}" * (10 << 20), "more": [1] * 1000}))

    assert max(map(len, pieces)) < 13 << 20
    assert len(pieces) > 9


def test_large_and_small_records_make_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The normal form doesn't depend on which encoder wrote which of its records."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "s").write_bytes(b"".join(line("x" * size) for size in (1, 900, 2, 3, 1000, 4)))
    _, expected = export(folder, tmp_path / "one")
    for limit in (0, 800, 1 << 30):
        monkeypatch.setattr(sys.modules["autocode.jobs.operations.export.read"], "LARGE", limit)

        other, digest = export(folder, tmp_path / str(limit))

        assert digest == expected
        assert objects_of(other).keys() >= {digest}
