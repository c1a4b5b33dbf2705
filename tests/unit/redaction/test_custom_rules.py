"""A user's own rules and allow list: the file, its frozen form, and what an export makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autocode.jobs.errors import RedactionFailed, UsageError
from autocode.jobs.redaction import (
    DEFAULT_POLICY,
    Allowance,
    CustomRules,
    Policy,
    Redactor,
    Rule,
    digest_of_value,
    policy_with,
    read_rules,
)
from autocode.jobs.redaction import allow as allow_module
from autocode.jobs.redaction.gate import Gate

TOKEN = "acme_" + "0a1b2c3d" * 4
FILE = """
[[rules]]
id = "acme-token"
pattern = 'acme_[0-9a-f]{32}'
check = "digit"
examples = ["ACME=acme_00112233445566778899aabbccddeeff"]
counter_examples = ["acme_ffffffffffffffffffffffffffffffff", "acme_config"]

[[rules]]
id = "acme-pin"
field = "(?i)pin"
check = "digit"
examples = [{ pin = "1234" }]
counter_examples = [{ pin = "none" }, "pin = 1234"]

[[allow]]
value = "tr0ub4dor"
reason = "the password of the tutorial"

[[allow]]
pattern = "TUTORIAL-.*"
pointer = "/**/env/*"
rule = "password"
"""


def read(folder: Path, text: str) -> CustomRules:
    """Write a rules file and read it."""
    path = folder / "rules.toml"
    path.write_text(text, "utf-8")
    return read_rules(path)


def test_rules_of_a_file_stand_behind_those_of_the_default_policy(tmp_path: Path) -> None:
    """Own rules, keys and the allow list work; the default policy goes on working."""
    redactor = Redactor(policy_with(read(tmp_path, FILE)))
    record = {
        "text": f"{TOKEN}, password=tr0ub4dor, password=tr0ub4dor2",
        "PIN": "4711",
        "x": [{"env": {"a": "password=TUTORIAL-1"}}, {"b": "password=TUTORIAL-1"}],
    }

    actual = redactor.redact_record(0, record)

    assert actual == {
        "text": "[REDACTED:acme-token:1], password=tr0ub4dor, password=[REDACTED:password:1]",
        "PIN": "[REDACTED:acme-pin:1]",
        "x": [{"env": {"a": "password=TUTORIAL-1"}}, {"b": "password=[REDACTED:password:2]"}],
    }
    assert redactor.suspects([orjson.dumps(record)]) == [0]


def test_the_frozen_form_holds_no_literal_and_no_example(tmp_path: Path) -> None:
    """A payload gets digests of allowed values; it says the same after a round through JSON."""
    custom = read(tmp_path, FILE)

    text = custom.model_dump_json()

    assert "tr0ub4dor" not in text
    assert "00112233" not in text
    assert "tutorial" not in text
    assert digest_of_value("tr0ub4dor") in text
    assert policy_with(CustomRules.model_validate_json(text)).digest == policy_with(custom).digest


def test_each_part_of_the_file_is_part_of_the_digest(tmp_path: Path) -> None:
    """Another rule, another allowance: another policy. A comment changes nothing."""
    texts = [
        FILE,
        FILE.replace("{32}", "{32,}"),
        FILE.replace('value = "tr0ub4dor"', 'value = "other-1"'),
    ]

    digests = [policy_with(read(tmp_path, text)).digest for text in texts]

    assert len({*digests, DEFAULT_POLICY.digest}) == 4
    assert policy_with(read(tmp_path, FILE + "\n# a comment\n")).digest == digests[0]
    assert policy_with(None) is policy_with(read(tmp_path, "# nothing")) is DEFAULT_POLICY


RULE = 'id="x"\npattern={}\nexamples=["abc1"]\ncounter_examples=["zzz"]\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[rules]]\n" + RULE.format("'(a+)+(?=b)'"), "rule 'x'"),
        ("[[rules]]\n" + RULE.format(r"'(a)\1'"), "rule 'x'"),
        ("[[rules]]\n" + RULE.format("'a++'"), "rule 'x'"),
        ("[[rules]]\n" + RULE.format("'[[:alpha:]]'"), "rule 'x'"),
        ("[[rules]]\n" + RULE.format("'a{,2}'"), "rule 'x'"),
        ("[[rules]]\n" + RULE.format("'a*'"), "rule 'x' matches the empty text"),
        ("[[rules]]\n" + RULE.format("'('"), "rule 'x'"),
        ("[[rules]]\n" + RULE.format("'q'"), "rule 'x' finds nothing in its example 1"),
        ("[[rules]]\n" + RULE.format("'[a-z]+'"), "rule 'x' finds something in its counter-example 1"),
        ("[[rules]]\n" + RULE.format("'abc'") + "group=2\n", "rule 'x' has no group 2"),
        ("[[rules]]\n" + RULE.format("'abc'") + 'check="nope"\n', "rule 'x' names no known check"),
        ("[[rules]]\n" + RULE.format("'abc'") + 'kind="No Kind"\n', "'No Kind'"),
        ("[[rules]]\n" + RULE.format("'abc'") + "surprise=1\n", "surprise"),
        (("[[rules]]\n" + RULE.format("'abc'")) * 2, "two rules have the id 'x'"),
        ("[[rules]]\n" + RULE.format("'abc'").replace('"x"', '"jwt"'), "two rules have the id 'jwt'"),
        ("[[rules]]\n" + RULE.format("'abc|password=tr0ub4dor'"), "looks like a secret itself"),
        ('[[rules]]\nid="x"\npattern="a"\n', "examples"),
        ('[[allow]]\nrule="jwt"\n', "no value, pattern or pointer"),
        ('[[allow]]\nrule="nope"\npointer="/**"\n', "a rule 'nope'"),
        ('[[allow]]\nsha256="abc"\n', "64 hex digits"),
        ('[[allow]]\nvalue="a"\nsha256="abc"\n', "both"),
        ('[[allow]]\npattern="(?=a)"\n', "RE2"),
        ('[[allow]]\npointer="a"\n', "begin with /"),
        ("rules = 1", "rules"),
        ("[[rules", "no TOML"),
    ],
)
def test_a_file_that_keeps_no_word_is_refused_by_name(tmp_path: Path, text: str, told: str) -> None:
    """The error names file, rule and what to do, and quotes no example."""
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)

    assert told in caught.value.detail
    assert "rules.toml" in caught.value.detail
    assert caught.value.hint
    assert "abc1" not in caught.value.detail + caught.value.hint


@pytest.mark.parametrize(
    ("text", "detail", "hint"),
    [
        (RULE.format("'abc'") + "gruop=1\n", "rule 'x' has a key `gruop`", "`group`"),
        (RULE.format("'abc'").replace("examples", "exampels", 1), "key `exampels`", "`examples`"),
        (RULE.format("'abc'").replace('id="x"\n', ""), "rule 1 has no `id`", "id ="),
        ('id="x"\npattern="a"\nexamples=["a"]\n', "rule 'x' has no `counter_examples`", "at least one"),
        ('id="x"\nexamples=[]\ncounter_examples=["b"]\n', "`examples` of rule 'x' is empty", "at least one"),
        (RULE.format("'abc'").replace('["zzz"]', "[1]"), "part 1 of `counter_examples` of rule 'x'", "text"),
        (RULE.format("'abc'").replace('["zzz"]', "1"), "`counter_examples` of rule 'x' is no list", "["),
        (RULE.format("7"), "`pattern` of rule 'x' has to be a text", "quotes"),
        (RULE.format("'abc'") + 'needles=["a", 1]\n', "part 2 of `needles` of rule 'x'", "quotes"),
        (RULE.format(f"'{'a' * 2_001}'"), "`pattern` of rule 'x' is longer than 2,000", "two rules"),
        (RULE.format("''"), "rule 'x' has neither a pattern nor a field", "`pattern`"),
        (RULE.format("'('"), "has a syntax error: missing ), unterminated subpattern, at character 1", "RE2"),
        (RULE.format("'[[:alpha:]]'"), "has a POSIX class or another set within a set", "[A-Za-z]"),
        (RULE.format("'a(?=b)'"), "has something that RE2 refuses", "look-around"),
        (
            RULE.format("'abc'") + '[[allow]]\nrule="jwtt"\npointer="/**"\n',
            "entry 1 of the allow list",
            "'jwt'",
        ),
        (RULE.format("'abc'") + '[[allow]]\nrule="jwt"\n', "entry 1 of the allow list", "everywhere."),
    ],
)
def test_an_error_names_the_rule_and_leads_somewhere(
    tmp_path: Path, text: str, detail: str, hint: str
) -> None:
    """Rules by id, else counted from 1; a key that is meant; no words of the library that reads the file."""
    with pytest.raises(UsageError) as caught:
        read(tmp_path, "[[rules]]\n" + text)

    assert detail in caught.value.detail
    assert hint in caught.value.hint
    assert ".." not in caught.value.detail.removeprefix(str(tmp_path)) + caught.value.hint


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Missing, not UTF-8, far too long: said, never taken for an empty file."""
    (tmp_path / "latin").write_bytes(b"# \xe9")
    (tmp_path / "long").write_bytes(b"#" * (1 << 20 | 1))

    for name in ("missing", "latin", "long"):
        with pytest.raises(UsageError, match=name):
            read_rules(tmp_path / name)


def test_a_rule_that_fails_stops_the_export_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """An allow list that raises fails closed, too; the error has the rule's id and no text."""

    def broken(_value: str) -> str:
        raise ValueError("secret inside")

    monkeypatch.setattr(allow_module, "digest_of_value", broken)
    rule = Rule("acme", "acme_[0-9]+", id="acme-number", linear=True)
    redactor = Redactor(Policy("p", 1, (rule,), (Allowance(sha256="0" * 64),)))

    with pytest.raises(RedactionFailed) as caught:
        redactor.redact_record(3, ["acme_7"])

    assert caught.value.detail == "record 3: rule 'acme-number' failed with ValueError"
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("pointer", "place", "covered"),
    [
        ("/a/b", "/a/b", True),
        ("/a/b", "/a/b/c", False),
        ("/a/*", "/a/b", True),
        ("/a/*", "/a/b/c", False),
        ("/**/c", "/c", True),
        ("/**/c", "/a/b/c", True),
        ("/**/c", "/a/b/cc", False),
        ("/**", "/a/0", True),
        ("/a.b/*x", "/a.b/0x", True),
        ("/a.b/*x", "/aab/0x", False),
    ],
)
def test_a_place_is_a_pointer_with_stars(pointer: str, place: str, covered: bool) -> None:
    """One star is one part, two are any number; everything else is itself."""
    assert Allowance(pointer=pointer).covers("v", place, rule="r", kind="k") is covered


def test_what_one_rule_may_leave_another_still_replaces() -> None:
    """An allowance is for the find of its rule; an overlapping find of another rule counts."""
    rules = (Rule("a", "abcd"), Rule("b", "bcde"))
    policy = Policy("p", 1, rules, (Allowance(pattern="abcd", rule="a"),))

    assert Redactor(policy).redact("abcde abcd") == "a[REDACTED:b:1] abcd"


PATTERNS = (
    r'a"b', r"a\\b", r"a\nb", r"[\t ]{2}x", r"a.b", r"(?s)a.b", r"[^a]b", r"(?i)k[a-c]+", r"(?i:ks)z",
    r"\S\s\S", r"\w{3}-\d", r"\D\W", r"a{60,}b", r"(?:a|bc|)d", r"\bab\b", r"^a$", r"é+b", r"[à-ü]b",
    r"(?i)[^s]b", r"\v", r"a??b", r"(a(b)?c)d", r"[\x00-\x1f]a", r"(?i)[^é]k", r"(?i)S", r"[\s]x", r"[^\s]x",
    r"(?i)\x{17f}b|ck",
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from('abcxyzdkKsS19 -\\"\n\t\v\x01\x1f\x7féàü日\u212a\u017f'), max_size=12))
def test_a_sieve_matches_wherever_re2_does(text: str) -> None:
    """The gate reads a user's pattern as RE2 does, whose letters fold beyond ASCII."""
    rules = []
    for pattern in PATTERNS:
        try:
            rules.append(Rule("r", pattern, linear=True))
        except UsageError:
            assert "x{" in pattern
    matching = [rule for rule in rules if rule.compiled_linear.search(text)]

    for encoded in (orjson.dumps([text]), json.dumps([text]).encode("ascii")):
        assert [rule for rule in matching if Gate([rule]).suspects([encoded]) != [0]] == []


def test_lone_surrogates_hide_nothing_from_re2() -> None:
    """Text that UTF-8 can't hold is searched, and its places stay right."""
    redactor = Redactor(Policy("p", 1, (Rule("a", "é?acme[0-9]", linear=True),)))

    value: Any = redactor.redact(["\ud800é acme1\udfff éacme2"])

    assert value == ["\ud800é [REDACTED:a:1]\udfff [REDACTED:a:2]"]
