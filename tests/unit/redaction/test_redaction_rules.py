"""The default policy: what it finds, and what it leaves alone."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

import pytest

from autocode.jobs.redaction import DEFAULT_POLICY, Redactor, Rule
from autocode.jobs.testing.fake_secrets import SECRETS, fake_secret, ordinary_text


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("seed", range(5))
def test_each_form_is_replaced_and_its_surroundings_stay(kind: str, seed: int) -> None:
    """Every form of secret becomes one marker; the text around it is untouched."""
    shape, value = fake_secret(kind, random.Random(f"{kind}{seed}"))
    redactor = Redactor(DEFAULT_POLICY)

    actual = redactor.redact(f"before {shape} after")

    expected = re.escape(f"before {shape} after").replace(re.escape(value), r"\[REDACTED:[a-z-]+:1\]")
    assert re.fullmatch(expected, actual), actual


@pytest.mark.parametrize("line", ordinary_text())
def test_ordinary_lines_are_left_alone(line: str) -> None:
    """Code, digests, ids, placeholders and variables are no secrets."""
    redactor = Redactor(DEFAULT_POLICY)

    assert redactor.redact(line) == line


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("before", ["", "\\n", "\x1b[32m", "\\u0022", "%0A", "(", ">", "é", "\n+"])
def test_a_secret_is_found_after_what_tool_output_puts_before_it(kind: str, before: str) -> None:
    """Escapes written out, colours and diff marks don't hide the secret that follows them."""
    shape, value = fake_secret(kind, random.Random(kind))

    actual = Redactor(DEFAULT_POLICY).redact(before + shape)

    assert value not in actual


@pytest.mark.parametrize(
    "text",
    [
        "password = 'S3!'",
        "Password:   'S3!'",
        "password        = 'S3!'",
        "password := `S3!`",
        ":password => 'S3!'",
        "PGPASSWORD=S3!",
        "--db-password=S3!",
        "password: S3!",
        '{\\\\\\"passwd\\\\\\": \\\\\\"S3!\\\\\\"}',
        "Server=db;User Id=app;Pwd=S3!;",
    ],
)
def test_every_way_to_assign_counts(text: str) -> None:
    """Spaces, quotes, escapes and the signs of several languages lead to the value."""
    actual = Redactor(DEFAULT_POLICY).redact(text.replace("S3!", "tr0ub4dor"))

    assert actual == text.replace("S3!", "[REDACTED:password:1]")


@pytest.mark.parametrize("rule", DEFAULT_POLICY.rules, ids=lambda rule: rule.kind)
def test_no_rule_reads_a_marker_as_a_secret(rule: Rule) -> None:
    """Our own markers, alone or with text after them, are never found again."""
    for kind in {each.kind for each in DEFAULT_POLICY.rules}:
        text = f"[REDACTED:{kind}:12]tr0ub4dor-A1b2C3d4E5f6G7h8"

        assert not [
            found
            for found in rule.compiled.finditer(text)
            if found.end(rule.group) > len(f"[REDACTED:{kind}:")
        ]


def test_characters_outside_ascii_hide_no_password() -> None:
    """The gate counts bytes and a pattern characters; the longest password in any script is found."""
    text = "smb://" + "ü" * 128 + ":" + "pä55wört" * 64 + "@host"

    assert Redactor(DEFAULT_POLICY).redact(text) == "smb://" + "ü" * 128 + ":[REDACTED:url-password:1]@host"


def test_a_key_cut_off_by_the_tool_is_replaced() -> None:
    """A private key without its end line loses everything that looks like key."""
    body = "\n".join(f"   {n}\u2192" + "Ab9+/x" * 10 for n in range(1, 6))

    actual = Redactor(DEFAULT_POLICY).redact("-----BEGIN PRIVATE " + f"KEY-----\n{body}\n... (truncated)")

    assert actual == "[REDACTED:private-key:1]... (truncated)"


def test_naming_a_key_block_is_no_secret() -> None:
    """Talk about key blocks stays."""
    text = "It starts with -----BEGIN RSA PRIVATE KEY----- and ends with -----END RSA PRIVATE KEY-----."

    assert Redactor(DEFAULT_POLICY).redact(text) == text


@pytest.mark.needs_samples
def test_real_sessions_hold_no_find() -> None:
    """The published samples were cleaned of secrets: whatever is found in them is a false alarm."""
    counts: dict[str, int] = {}

    for tool in ("claude-code", "codex"):
        for path in sorted(Path(os.environ["AUTOCODE_SAMPLES"], tool).rglob("*.jsonl")):
            redactor = Redactor(DEFAULT_POLICY)
            for seq, line in enumerate(path.read_bytes().split(b"\n")):
                if line.startswith(b"{") and line.endswith(b"}") and b"}{" not in line:
                    redactor.redact_record(seq, json.loads(line))
            counts.update(redactor.report.counts)

    assert counts == {}
