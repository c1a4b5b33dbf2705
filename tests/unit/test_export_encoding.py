"""The two encoders of records agree with the specification, and with one another, to the byte."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autocode.jobs.operations.export import encoding
from autocode.jobs.operations.export.encoding import encode_record, pieces_of
from export_context import export, line, objects_of

TEXTS = st.text(max_size=20)
INTEGERS = st.integers(-(1 << 63), (1 << 64) - 1)
SCALARS = st.none() | st.booleans() | INTEGERS | TEXTS
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def values_of(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return JSON values made of *scalars*."""
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
        max_leaves=30,
    )


def number_of(value: float) -> str:
    """Write a float as docs/normal-form.md says: the digits that Python finds, in our notation."""
    digits, _, exponent = repr(abs(value)).partition("e")
    if not exponent:
        shown = digits
    elif int(exponent) == -5:
        shown = "0.0000" + digits.replace(".", "")
    else:
        shown = f"{digits}e{'+' if int(exponent) > 0 else '-'}{abs(int(exponent))}"
    return ("-" if math.copysign(1, value) < 0 else "") + shown


@given(values_of(SCALARS))
def test_records_are_written_as_python_writes_json_in_utf8(value: Any) -> None:
    """Keys are sorted, nothing is padded, and only what JSON demands is escaped, as json.dumps does it."""
    expected = json.dumps({"value": value}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    assert encode_record({"value": value}) == expected.encode()


@given(FLOATS)
@example(1e16)
@example(-1e-5)
@example(1.5e-05)
@example(1e-6)
@example(5e-324)
@example(-0.0)
@example(1e22)
@example(9999999999999998.0)
def test_floats_have_the_shortest_digits_in_the_specified_notation(value: float) -> None:
    """The digits are those that Python finds; the exponent begins where the specification says."""
    assert encode_record(value).decode() == number_of(value)


@given(values_of(SCALARS | FLOATS), st.integers(1, 5))
def test_pieces_add_up_to_the_record(value: Any, size: int) -> None:
    """The encoder in pieces writes what the one in one go writes, wherever it cuts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_SLICE", "_BATCH", "_GROUP", "_FEW", "_SHORT"):
            patch.setattr(encoding, name, size)

        assert b"".join(pieces_of(value)) == encode_record(value)


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
