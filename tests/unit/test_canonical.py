"""Canonical JSON: one value, one byte string, one digest."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocode.jobs.canonical import canonical_json, digest_of, is_digest
from autocode.jobs.model import JobStatus

# surrogates included: a transcript cut in the middle of a pair holds lone ones
TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_what_was_written_reads_back_as_the_same_value(value: Any) -> None:
    """Nothing is lost, lone surrogates included, and the bytes are ASCII."""
    written = canonical_json(value)

    assert json.loads(written) == value
    assert written.isascii()


@given(VALUES)
def test_writing_what_was_read_back_changes_nothing(value: Any) -> None:
    """The form is a fixed point, so a digest can be checked after any number of round trips."""
    written = canonical_json(value)

    assert canonical_json(json.loads(written)) == written


@given(st.dictionaries(TEXTS, st.integers(), min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_insertion_does_not_matter(value: dict[str, int], random: Any) -> None:
    """Two dicts that are equal give the same bytes."""
    items = list(value.items())
    random.shuffle(items)

    assert canonical_json(dict(items)) == canonical_json(value)


@given(VALUES, VALUES)
def test_different_values_have_different_bytes(one: Any, other: Any) -> None:
    """Equal bytes mean equal values."""
    if canonical_json(one) == canonical_json(other):
        assert one == other


def test_the_form_itself_is_pinned() -> None:
    """The bytes of a known value never change: digests of old exports depend on them."""
    value = {"b": [1, 1.0, -0.0, True, None], "a": {"é": "\ud800\U0001f600\x00/"}, "A": ""}

    assert canonical_json(value) == (
        rb'{"A":"","a":{"\u00e9":"\ud800\ud83d\ude00\u0000/"},"b":[1,1.0,-0.0,true,null]}'
    )


def test_keys_are_sorted_at_every_depth() -> None:
    """Sorting doesn't stop at the top."""
    assert canonical_json([{"b": {"d": 1, "c": 2}, "a": 0}]) == b'[{"a":0,"b":{"c":2,"d":1}}]'


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_know_are_refused(number: float) -> None:
    """NaN and the infinities have no JSON form, and NaN doesn't even equal itself."""
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({"deep": [number]})


@pytest.mark.parametrize("key", [1, 1.5, True, None])
def test_keys_that_are_not_strings_are_refused_at_every_depth(key: object) -> None:
    """JSON would write them like the strings they resemble, and two values would share a digest."""
    with pytest.raises(TypeError):
        canonical_json([({"a": {key: 0}},)])


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, object(), 1j])
def test_values_that_json_does_not_know_are_refused(value: object) -> None:
    """Nothing is turned into text silently."""
    with pytest.raises(TypeError):
        canonical_json(value)


def test_a_value_nested_beyond_reason_is_refused_not_fatal() -> None:
    """Depth raises a ValueError, whatever the interpreter's own limit is."""
    value: list[Any] = []
    for _ in range(200_000):
        value = [value]

    with pytest.raises(ValueError, match="nested too deeply"):
        canonical_json(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    """A cycle is an error, not an endless walk."""
    value: dict[str, Any] = {}
    value["self"] = value

    with pytest.raises(ValueError, match="Circular"):
        canonical_json(value)


def test_tuples_and_enums_are_what_they_look_like() -> None:
    """A tuple is a list and a status its wire value."""
    assert canonical_json((JobStatus.RETRY, 1)) == b'["retrying",1]'


def test_the_bytes_do_not_depend_on_hash_seed_or_locale() -> None:
    """Another process with another seed and a C locale writes the same bytes."""
    script = (
        "import sys; sys.path[:0] = eval(sys.argv[1])\n"
        "from autocode.jobs.canonical import canonical_json\n"
        "print(canonical_json({k: 'é' for k in ('z', 'ä', 'a', 'M')}).decode())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script, repr(sys.path)],
            env={"PYTHONHASHSEED": seed, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert outputs == {'{"M":"\\u00e9","a":"\\u00e9","z":"\\u00e9","\\u00e4":"\\u00e9"}\n'}


@given(st.binary(max_size=64))
def test_a_digest_is_the_sha256_in_its_written_form(data: bytes) -> None:
    """The written form is recognised, and it is the plain SHA-256."""
    digest = digest_of(data)

    assert digest == "sha256:" + hashlib.sha256(data).hexdigest()
    assert is_digest(digest)


@pytest.mark.parametrize(
    "text", ["", "sha256:", "sha256:" + "A" * 64, "md5:" + "a" * 32, "sha256:" + "a" * 64 + "\n"]
)
def test_what_is_no_digest_is_not_taken_for_one(text: str) -> None:
    """Upper case, other algorithms and a trailing newline don't pass."""
    assert not is_digest(text)
