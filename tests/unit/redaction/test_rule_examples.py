"""Every rule by its examples: found whatever a tool puts around them; near misses stay; all is documented."""

from __future__ import annotations

import json
import random
from pathlib import Path

import orjson
import pytest

from autocode.jobs.redaction import DEFAULT_POLICY, Policy, Redactor, Rule
from autocode.jobs.testing.rule_examples import RULE_EXAMPLES, table
from autocode.jobs.testing.rule_forms import drawn

RULES = {rule.id: rule for rule in DEFAULT_POLICY.rules}
FORMS = [(rule, form) for rule, known in RULE_EXAMPLES.items() for form in known.forms]
PAGE = Path(__file__).resolve().parents[3] / "docs" / "redaction.md"


def test_every_rule_has_an_id_of_its_own_and_examples() -> None:
    """No rule is without source, example and counter-example, and no example without a rule."""
    assert len(RULES) == len(DEFAULT_POLICY.rules)
    assert set(RULE_EXAMPLES) == set(RULES)
    assert all(known.source and known.forms and known.not_found for known in RULE_EXAMPLES.values())


@pytest.mark.parametrize(("rule", "form"), FORMS)
def test_a_rule_finds_its_examples_alone(rule: str, form: str) -> None:
    """The rule itself, without the others, replaces exactly the secret."""
    text, secret = drawn(form, random.Random(form))

    actual = Redactor(Policy("alone", 1, (RULES[rule],))).redact(text)

    assert actual == text.replace(secret, f"[REDACTED:{RULES[rule].kind}:1]")


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_leaves_its_counter_examples_alone(rule: str) -> None:
    """Placeholders, names and prefixes without a secret stay, with all rules at work."""
    for text in RULE_EXAMPLES[rule].not_found:
        assert Redactor(DEFAULT_POLICY).redact(text) == text


@pytest.mark.parametrize(("rule", "form"), FORMS)
@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "+{}",
        "-{}",
        "\n-{}",
        "\\n+{}",
        "\x1b[32m{}\x1b[0m",
        "\x1b[31m-{}",
        "    12→{}",
        "> {}",
        '["{}"]',
        "é{}é",
    ],
)
def test_what_tool_output_puts_around_a_secret_hides_nothing(rule: str, form: str, around: str) -> None:
    """Diff marks, colours, line numbers, quotes and escapes: the secret goes, and its line was a suspect."""
    text, secret = drawn(form, random.Random(form))
    record = {"content": [{"text": around.format(text)}]}
    redactor = Redactor(DEFAULT_POLICY)

    actual = redactor.redact_record(0, record)["content"][0]["text"]

    assert secret not in actual
    assert redactor.suspects([orjson.dumps(record)]) == [0]


@pytest.mark.parametrize(("rule", "form"), FORMS)
@pytest.mark.parametrize("times", [1, 2])
def test_json_in_json_hides_nothing(rule: str, form: str, times: int) -> None:
    """Arguments of a tool call and its echo in a log are text with JSON in it, escaped once or twice."""
    text, secret = drawn(form, random.Random(form))
    inner, escaped = text, secret
    for _ in range(times):
        inner, escaped = json.dumps([inner]), json.dumps(escaped)[1:-1]
    redactor = Redactor(DEFAULT_POLICY)

    actual = redactor.redact_record(0, {"arguments": inner})["arguments"]

    assert escaped not in actual
    assert redactor.suspects([orjson.dumps({"arguments": inner})]) == [0]


@pytest.mark.parametrize("rule", DEFAULT_POLICY.rules, ids=lambda rule: rule.id)
def test_no_rule_is_slow_on_its_own_beginnings(rule: Rule) -> None:
    """What begins like a find and never becomes one, over and over, is searched in a moment."""
    known = RULE_EXAMPLES[rule.id].forms[0]
    text, _ = drawn(known, random.Random(1))
    half = text[: len(text) // 2] + " "

    Redactor(Policy("alone", 1, (rule,))).redact(half * (200_000 // len(half)))


def test_the_page_lists_every_rule_as_the_code_has_it() -> None:
    """The table in docs/redaction.md is this one; `python scripts/redaction_table.py` writes it anew."""
    page = PAGE.read_text("utf-8")

    written = page.partition("<!-- rules: begin -->\n")[2].partition("<!-- rules: end -->")[0]

    assert written.strip() == table({rule.id: rule.kind for rule in DEFAULT_POLICY.rules}).strip()
