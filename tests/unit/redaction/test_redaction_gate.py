"""The gate: it may let too much through, never too little."""

from __future__ import annotations

import json
import random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autocode.jobs.redaction import DEFAULT_POLICY, Policy, Redactor, Rule
from autocode.jobs.redaction.gate import Gate, gate_of
from autocode.jobs.redaction.pieces import pieces_of
from autocode.jobs.redaction.sieve import NOTHING_SAID, field_sieve, sieve_of
from autocode.jobs.testing.fake_secrets import SECRETS, fake_secret, ordinary_text

around = st.one_of(
    st.sampled_from(
        ["", " ", "\\", '"', '\\"', "\n", "\t", "\x1b[31m", "é", "日", "\U0001f511", "\x7f", "+", "->"]
    ),
    st.text(st.characters(codec="utf-8"), max_size=6),
)
secrets = st.tuples(st.sampled_from(SECRETS), st.integers(0, 10**6)).map(
    lambda drawn: fake_secret(drawn[0], random.Random(drawn[1]))[0]
)
texts = st.one_of(
    st.builds(lambda before, secret, after: before + secret + after, around, secrets, around),
    # the same inside JSON that is itself text, as a tool call's arguments are
    st.builds(lambda secret: json.dumps({"arguments": json.dumps({"cmd": secret})}), secrets),
    st.sampled_from(ordinary_text()),
    around,
)
names = st.one_of(texts, st.sampled_from(["password", "x-api-key", "DB_PASSWD", "client_secret", "token"]))
values = st.sampled_from(
    ["tr0ub4dor", "correct-horse-9", "A1b2C3d4E5f6G7h8i9J0", "pass word", '\\"\\"1a2', "é" * 9]
)
records = st.recursive(
    st.one_of(texts, values, st.integers(-9, 9), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)


def line(record: Any) -> bytes:
    """Return *record* as an export encodes it."""
    return orjson.dumps(record, option=orjson.OPT_SORT_KEYS)


def changed(redactor: Redactor, found: list[Any]) -> set[int]:
    """Return the indexes of the records that redaction changes."""
    return {index for index, record in enumerate(found) if redactor.redact_record(index, record) != record}


@settings(max_examples=300, deadline=None)
@given(st.lists(records, max_size=4))
def test_no_record_that_redaction_changes_is_left_out(found: list[Any]) -> None:
    """Whatever lies beside a secret and wherever it stands, its line is a suspect."""
    redactor = Redactor(DEFAULT_POLICY)

    suspects = redactor.suspects([line(record) for record in found])

    assert changed(redactor, found) <= set(suspects)


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("where", ["value", "key", "nested", "escaped", "ascii"])
def test_every_form_makes_a_suspect_in_every_place(kind: str, where: str) -> None:
    """A secret counts as a value, as a key, in a list, in JSON in JSON, and where ASCII is escaped."""
    shape, _ = fake_secret(kind, random.Random(kind))
    record = {
        "value": {"text": shape},
        "key": {shape: 1},
        "nested": {"a": [{"b": [f'"\n{shape}\t"']}]},
        "escaped": {"a": json.dumps({"b": json.dumps([shape])})},
        "ascii": {"a": f"é\ud800{shape}é"},
    }[where]
    encoded = json.dumps(record, separators=(",", ":")).encode("ascii") if where == "ascii" else line(record)
    redactor = Redactor(DEFAULT_POLICY)

    assert changed(redactor, [record]) == {0}
    assert redactor.suspects([encoded]) == [0]


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_at_the_border_of_a_block_is_seen(kind: str) -> None:
    """The lines are searched in blocks; first and last in a block count like any other."""
    shape, _ = fake_secret(kind, random.Random(kind))
    plain, secret = line({"a": "x" * 60_000}), line({"a": shape})
    lines = [secret, *[plain] * 3, secret, plain, secret, *[plain] * 9, secret]

    actual = Redactor(DEFAULT_POLICY).suspects(lines)

    assert actual == [0, 4, 6, 16]


@settings(max_examples=200, deadline=None)
@given(st.lists(records, max_size=8))
def test_lines_searched_together_are_suspects_as_they_are_alone(found: list[Any]) -> None:
    """What stands in the lines around it makes no line a suspect, and hides none."""
    gate = gate_of(DEFAULT_POLICY)
    lines = [line(record) for record in found]

    actual = gate.suspects(lines)

    assert actual == [index for index, each in enumerate(lines) if gate.may_match(each)]


def test_words_about_secrets_make_no_suspect() -> None:
    """Lines of ordinary code and output pass the gate without a closer look, most of them."""
    lines = [line({"text": text}) for text in ordinary_text()]

    suspects = Redactor(DEFAULT_POLICY).suspects(lines)

    assert len(suspects) <= len(lines) // 3


def test_every_rule_of_the_default_policy_has_a_sieve() -> None:
    """A pattern that can't be translated would send every line the slow way."""
    assert [rule.kind for rule in DEFAULT_POLICY.rules if rule.sieve == NOTHING_SAID] == []


def test_a_pattern_that_cannot_be_translated_suspects_every_line() -> None:
    """What the gate can't judge is searched; nothing is let through unseen."""
    rule = Rule("twice", r"(ab)\1")

    assert rule.sieve == NOTHING_SAID
    assert Redactor(Policy("p", 1, (rule,))).suspects([b'"x"', b'"y"']) == [0, 1]


def test_a_policy_without_rules_suspects_nothing() -> None:
    """No rule, no work."""
    assert Redactor(Policy("empty", 1, ())).suspects([b'"x"']) == []


PATTERNS = (
    r'a"b', r"a\\b", r"a\nb", r"[\t ]{2}x", r"a.b", r"(?s)a.b", r"[^a]b", r"(?i)k[a-c]+", r"(?i:ks)z",
    r"\w{3}-\d", r"\S\s\S", r"\D\W", r"a{60,}b", r"(?:a|bc|)d", r"x(?=y)y", r"(?<=a)b", r"\bab\b", r"^a$",
    r"é+b", r"[à-ü]b", r"a??b", r"(?>ab)c", r"a++b", r"(a(b)?c)d", r"[\x00-\x1f]a", r"\x7f",
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from('abcxyzdkKsS19 -\\"\n\t\x01\x1f\x7féàü日\u212a\u017f'), max_size=12))
def test_a_sieve_matches_wherever_its_pattern_does(text: str) -> None:
    """Escapes, control characters and text outside ASCII hide no match of any construct."""
    matching = [Rule("r", pattern) for pattern in PATTERNS if Rule("r", pattern).compiled.search(text)]

    for encoded in (line([text]), json.dumps([text]).encode("ascii")):
        assert [rule for rule in matching if Gate([rule]).suspects([encoded]) != [0]] == []


def test_a_sieve_of_a_key_asks_for_the_value_beside_it() -> None:
    """A key alone is no suspect; with a string of the shortest length it is."""
    rule = Rule("k", "never-in-it", field="(?i:pass)", check="real")

    lines = [
        b'{"pass":1}',
        b'{"pass":"abc"}',
        b'{"pass":"abcd"}',
        b'{"pass":"a bcd"}',
        b'{"PASS":"\\n\\\\\\"x"}',
    ]

    assert Gate([rule]).suspects(lines) == [2, 4]
    assert field_sieve("a", 2) != sieve_of("a")


def test_a_long_text_is_cut_into_pieces_that_overlap() -> None:
    """A secret across the border of two pieces lies whole in one of them."""
    shape, _ = fake_secret("github-token", random.Random(1))
    for cut in range(0, len(shape) + 2, 5):
        text = "." * ((1 << 20) - cut) + shape + "." * 20_000

        assert any(gate_of(DEFAULT_POLICY).candidates(piece) for piece in pieces_of({"a": [text]}))
        assert shape not in Redactor(DEFAULT_POLICY).redact({"a": [text]})["a"][0]
