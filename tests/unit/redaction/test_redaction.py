"""The redactor: structure, numbers, report, idempotence, windows, failure."""

from __future__ import annotations

import copy
import json
import random
import time
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autocode.jobs.errors import RedactionFailed, UsageError
from autocode.jobs.redaction import DEFAULT_POLICY, Policy, Redactor, Rule
from autocode.jobs.redaction import checks as checks_module
from autocode.jobs.redaction.policy import REACH
from autocode.jobs.redaction.report import PLACES_KEPT
from autocode.jobs.testing.fake_secrets import SECRETS, fake_secret, ordinary_text

KEY = "ghp_" + "7kQ2" * 9
OTHER = "ghp_" + "8zR3" * 9

pieces = st.one_of(
    st.sampled_from(SECRETS).flatmap(
        lambda kind: st.integers(0, 20).map(lambda seed: fake_secret(kind, random.Random(seed))[0])
    ),
    st.sampled_from(ordinary_text()),
    st.text(max_size=20),
    st.sampled_from(
        [
            "[REDACTED:password:1]",
            "[REDACTED:jwt:",
            "token=",
            "password: ",
            ":",
            "=",
            '"',
            "@",
            "-",
            "\\n",
            "",
        ]
    ),
)
texts = st.lists(pieces, max_size=8).map("".join)
values = st.recursive(
    st.one_of(texts, st.integers(), st.floats(allow_nan=False), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=8,
)


def others(value: Any) -> list[Any]:
    """Return every value in *value* that is no text, in order."""
    if isinstance(value, dict):
        return [other for item in value.values() for other in others(item)]
    if isinstance(value, list):
        return [other for item in value for other in others(item)]
    return [] if isinstance(value, str) else [value]


@given(values)
def test_redacting_twice_changes_nothing(value: Any) -> None:
    """The output of a redactor holds nothing that a new one would replace."""
    once = Redactor(DEFAULT_POLICY).redact(value)

    again = Redactor(DEFAULT_POLICY)

    assert again.redact(once) == once
    assert again.report.total == 0


@given(values)
def test_input_and_other_values_are_untouched(value: Any) -> None:
    """The input isn't mutated; numbers, booleans, null and the structure stay as they were."""
    before = copy.deepcopy(value)

    actual = Redactor(DEFAULT_POLICY).redact(value)

    assert value == before
    assert others(actual) == others(value)


@given(
    st.sampled_from(SECRETS),
    st.integers(0, 10**6),
    st.sampled_from(["é", " ", "\n", '", "', "; "]),
    st.booleans(),
)
def test_no_byte_of_a_planted_secret_is_left(kind: str, seed: int, around: str, as_key: bool) -> None:
    """A planted secret occurs nowhere in the serialised output, wherever it was planted."""
    shape, planted = fake_secret(kind, random.Random(seed))
    text = f"x{around}{shape}{around}y"
    record = {"a": [{text: 1} if as_key else {"b": text}, {"arguments": json.dumps({"cmd": text})}]}

    actual = json.dumps(Redactor(DEFAULT_POLICY).redact(record), ensure_ascii=False)

    assert planted not in actual
    assert json.dumps(planted)[1:-1] not in actual


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(pieces, st.integers(0, 9000), st.sampled_from("a- =\n")), min_size=1, max_size=5),
    st.integers(1, 20_000),
)
def test_window_size_changes_nothing(parts: list[tuple[str, int, str]], window: int) -> None:
    """Windows of any size give the output of one search over the whole text."""
    text = "".join(piece + filler * count for piece, count, filler in parts)

    actual = Redactor(DEFAULT_POLICY, window=window).redact(text)

    assert actual == Redactor(DEFAULT_POLICY, window=10**9).redact(text)


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("reach", [0, REACH])
def test_a_secret_across_a_window_border_is_found_whole(kind: str, reach: int) -> None:
    """Wherever a window starts or ends in a secret, the output is the same."""
    shape, _ = fake_secret(kind, random.Random(kind))
    text = "x " * ((300 + reach) // 2) + shape + " " + "y " * 6000
    expected = Redactor(DEFAULT_POLICY, window=10**9).redact(text)

    for window in range(290, 310 + len(shape), 7):
        assert Redactor(DEFAULT_POLICY, window=window).redact(text) == expected


def test_a_secret_longer_than_any_window_is_replaced_whole() -> None:
    """The run that ends a match is followed beyond the window."""
    text = "a " * 200 + KEY + "aB3" * 10_000 + " b"

    assert Redactor(DEFAULT_POLICY, window=100).redact(text) == "a " * 200 + "[REDACTED:github-token:1] b"


def test_markers_in_the_input_are_kept_and_hide_nothing() -> None:
    """A marker that somebody typed doesn't protect the text beside it, and stays itself."""
    once = Redactor(DEFAULT_POLICY).redact('password="tr0ub[REDACTED:jwt:1]4dor"')

    assert once == 'password="[REDACTED:password:1][REDACTED:jwt:1][REDACTED:password:2]"'
    assert Redactor(DEFAULT_POLICY).redact(once) == once


def test_numbers_follow_first_appearance_and_stay_with_their_secret() -> None:
    """The same secret has the same number in the whole session; another one gets the next."""
    redactor = Redactor(DEFAULT_POLICY)

    first = redactor.redact_record(0, {"b": [f"{KEY} {OTHER}"], "a": KEY})
    second = redactor.redact_record(1, {"z": f"{OTHER},{KEY}"})

    one, two = "[REDACTED:github-token:1]", "[REDACTED:github-token:2]"
    assert first == {"b": [f"{one} {two}"], "a": one}
    assert second == {"z": f"{two},{one}"}


def test_the_report_names_places_and_no_secret() -> None:
    """Counts, RFC 6901 pointers (with redacted keys in them) and lengths; never the text."""
    redactor = Redactor(DEFAULT_POLICY)

    redactor.redact_record(7, {"a/b": [{"~": KEY}], f"k {OTHER}": {"c": KEY}})

    actual = redactor.report.to_json()
    assert KEY not in json.dumps(actual)
    assert OTHER not in json.dumps(actual)
    assert actual["counts"] == {"github-token": 3}
    assert [
        (place["record"], place["pointer"], place["n"], place["length"]) for place in actual["places"]
    ] == [
        (7, "/a~1b/0/~0", 1, 40),
        (7, "", 2, 40),
        (7, "/k [REDACTED:github-token:2]/c", 1, 40),
    ]


def test_places_are_capped_and_counts_are_not() -> None:
    """A report lists a bounded number of places and says how many it left out."""
    redactor = Redactor(DEFAULT_POLICY)

    redactor.redact([KEY] * (PLACES_KEPT + 5))

    actual = redactor.report.to_json()
    assert (actual["total"], len(actual["places"]), actual["places_left_out"]) == (
        PLACES_KEPT + 5,
        PLACES_KEPT,
        5,
    )


def test_a_key_names_its_value_a_secret() -> None:
    """The value of an object key that says password is replaced as a whole; a placeholder isn't."""
    record = {
        "password": "tr0ub4dor",
        "DB_PASSWORD": "corr-horse-9",
        "pwd": "/home/ada src",
        "passwd": "${PASS}",
    }

    actual = Redactor(DEFAULT_POLICY).redact(record)

    assert actual == {
        "password": "[REDACTED:password:1]",
        "DB_PASSWORD": "[REDACTED:password:2]",
        "pwd": "/home/ada src",
        "passwd": "${PASS}",
    }


def test_keys_that_become_equal_stay_apart() -> None:
    """A redacted key never overwrites a member whose key is that very marker."""
    record = {"[REDACTED:github-token:1]": 1, KEY: 2, "z": 3}

    actual = Redactor(DEFAULT_POLICY).redact(record)

    assert list(actual.values()) == [1, 2, 3]
    assert KEY not in actual


def test_overlapping_finds_become_one_span_named_by_the_leftmost_longest() -> None:
    """What any rule calls secret is gone, under one marker."""
    rules = (
        Rule("short", "abc", ("abc",)),
        Rule("long", "abcde+", ("abcd",)),
        Rule("late", "eeffg", ("ff",)),
    )

    actual = Redactor(Policy("p", 1, rules)).redact("-abcdeeffg-abc-")

    assert actual == "-[REDACTED:long:1]-[REDACTED:short:1]-"


def test_a_failing_rule_stops_the_export_without_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the rule and the record; neither it nor what hangs on it holds the text."""

    def broken(value: str) -> bool:
        raise ValueError(value)

    monkeypatch.setitem(checks_module.CHECKS, "digit", broken)
    redactor = Redactor(Policy("p", 1, (Rule("bad", "s3cr3t", ("s3cr",), check="digit"),)))

    with pytest.raises(RedactionFailed) as caught:
        redactor.redact_record(12, ["my s3cr3t"])

    assert caught.value.detail == "record 12: rule 'bad' failed with ValueError"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert "s3cr3t" not in repr((caught.value.data, caught.value.hint))


@pytest.mark.parametrize("value", [b"bytes", ("a",), {1: "a"}, object(), {"a": {2}}])
def test_what_is_no_json_value_fails(value: object) -> None:
    """A value that the walk doesn't know could hide text: it is refused."""
    with pytest.raises(RedactionFailed):
        Redactor(DEFAULT_POLICY).redact([value])


def test_depth_costs_no_stack() -> None:
    """A value nested deeper than Python's recursion limit is walked."""
    value: Any = [KEY]
    for _ in range(50_000):
        value = [value]

    actual = Redactor(DEFAULT_POLICY).redact(value)

    while isinstance(actual[0], list):
        actual = actual[0]
    assert actual == ["[REDACTED:github-token:1]"]
    while value and isinstance(value[0], list):
        value = value.pop()


def test_lone_surrogates_and_nul_pass() -> None:
    """Text that UTF-8 can't hold is searched like any other."""
    actual = Redactor(DEFAULT_POLICY).redact(f"\ud800\x00 {KEY}\udcb2")

    assert actual == "\ud800\x00 [REDACTED:github-token:1]\udcb2"


@pytest.mark.parametrize(
    "unit", ["a", "-----BEGIN", "sk-", "token:", "eyJ.", "=", "://a:", "[REDACTED:a:1]", "password=x "]
)
def test_time_grows_with_the_length_and_no_faster(unit: str) -> None:
    """Eight times the text takes no more than about eight times the processor time, whatever repeats."""

    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        start = time.process_time()
        Redactor(DEFAULT_POLICY).redact(text)
        return time.process_time() - start

    small = min(seconds(200_000) for _ in range(3))
    large = seconds(1_600_000)

    assert large < 30 * small + 0.2


def test_the_digest_follows_what_influences_the_output() -> None:
    """Equal policies have equal digests; a changed rule, name or revision changes it."""
    rule = Rule("a", "b", ("b",))
    digests = [
        policy.digest
        for policy in (
            Policy("p", 1, (rule,)),
            Policy("p", 1, (Rule("a", "b", ("b",), check="digit"),)),
            Policy("p", 2, (rule,)),
            Policy("q", 1, (rule,)),
            Policy("p", 1, (rule, rule)),
        )
    ]

    assert len(set(digests)) == len(digests)
    assert Policy("p", 1, (Rule("a", "b", ("b",)),)).digest == digests[0]


@pytest.mark.parametrize(
    "parts",
    [
        {"kind": "Bad Kind", "pattern": "a", "needles": ("a",)},
        {"kind": "a", "pattern": "(", "needles": ("a",)},
        {"kind": "a", "pattern": "a", "needles": ("",)},
        {"kind": "a", "pattern": "a", "needles": ("A",)},
        {"kind": "a", "pattern": "a", "needles": ("a",), "group": 1},
        {"kind": "a", "pattern": "a", "needles": ("a",), "check": "unknown"},
    ],
)
def test_a_malformed_rule_is_refused(parts: dict[str, Any]) -> None:
    """A rule that can't work is refused when it is made, by name."""
    with pytest.raises(UsageError):
        Rule(**parts)


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "DB_PASSWORD", "value": "S3!"},
        {"value": "S3!", "name": "DB_PASSWORD"},
        {"Name": "db.password", "Type": "String", "Value": "S3!"},
        {"key": "password", "secure": True, "value": "S3!"},
    ],
)
def test_the_name_in_an_entry_is_the_key_of_its_value(entry: dict[str, Any]) -> None:
    """Lists of an environment in manifests and cloud answers; their lines are suspects, in any order."""
    record = {"env": [{k: "tr0ub4dor" if v == "S3!" else v for k, v in entry.items()}]}
    redactor = Redactor(DEFAULT_POLICY)

    actual = redactor.redact_record(0, record)

    assert actual == {"env": [{k: "[REDACTED:password:1]" if v == "S3!" else v for k, v in entry.items()}]}
    assert redactor.suspects([orjson.dumps(record)]) == [0]


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "LANG", "value": "tr0ub4dor"},
        {"name": "DB_PASSWORD", "value": "changeme"},
        {"name": "password", "value": "two words1"},
        {"name": "password", "default": "tr0ub4dor"},
        {"name": ["password"], "value": "tr0ub4dor"},
    ],
)
def test_an_entry_without_a_secret_stays(entry: dict[str, Any]) -> None:
    """Other names, placeholders, sentences and other members are left alone."""
    assert Redactor(DEFAULT_POLICY).redact([entry]) == [entry]
