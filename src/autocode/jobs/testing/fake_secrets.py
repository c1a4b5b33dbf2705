"""Secrets in every form that the default policy knows; invented, put together at run time, valid nowhere."""

from __future__ import annotations

import base64
import json
import random
import string
from typing import Final

__all__ = ["SECRETS", "fake_secret", "ordinary_text"]

_LETTERS: Final = string.ascii_letters
_WORD: Final = string.ascii_letters + string.digits


def _drawn(rng: random.Random, alphabet: str, size: int) -> str:
    # A digit and a letter at the front: checks ask for both, and a short draw may lack one.
    return "7k" + "".join(rng.choice(alphabet) for _ in range(size - 2))


def _upper(rng: random.Random, size: int) -> str:
    return "7K" + "".join(rng.choice(string.ascii_uppercase + "234567") for _ in range(size - 2))


def _jwt(rng: random.Random) -> str:
    parts = [json.dumps({"alg": "HS256", "typ": "JWT"}), json.dumps({"sub": _drawn(rng, _WORD, 8)})]
    encoded = [base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, _drawn(rng, _WORD, 43)])


def _pem(rng: random.Random) -> str:
    lines = ["".join(rng.choice(_WORD + "+/") for _ in range(64)) for _ in range(4)]
    return "\n".join(["-----BEGIN RSA PRIVATE " + "KEY-----", *lines, "-----END RSA PRIVATE " + "KEY-----"])


def fake_secret(kind: str, rng: random.Random) -> tuple[str, str]:
    """Return a text as it stands in tool output, and the part of it that must disappear.

    Args:
        kind: a name from :data:`SECRETS`.
        rng: where the invented part comes from; the same state gives the same secret.
    """
    word = _drawn(rng, _WORD, 40)
    hexed = "".join(rng.choice("0123456789abcdef") for _ in range(32))
    forms = {
        "aws-access-key": ("{}", "AKIA" + _upper(rng, 16)),
        "aws-secret-key": ("aws_secret_access_key = {}", word),
        "github-token": ("{}", rng.choice(["ghp_", "gho_", "ghs_", "ghu_", "ghr_"]) + _drawn(rng, _WORD, 36)),
        "github-fine": ("{}", "github_pat_" + _drawn(rng, _WORD + "_", 70)),
        "gitlab-token": ("{}", "glpat-" + _drawn(rng, _WORD + "_-", 20)),
        "slack-token": ("{}", "xoxb-" + _drawn(rng, string.digits, 11) + "-" + word),
        "slack-webhook": (
            "https://hooks.slack.com/services/{}",
            f"T{_upper(rng, 8)}/B{_upper(rng, 8)}/{word}",
        ),
        "anthropic-key": ("{}", "sk-" + "ant-api03-" + _drawn(rng, _WORD + "_-", 60)),
        "openai-key": ("{}", "sk-" + "proj-" + _drawn(rng, _WORD + "_-", 60)),
        "openai-old": ("{}", "sk-" + _drawn(rng, _WORD, 48)),
        "google-api-key": ("{}", "AIza" + _drawn(rng, _WORD + "_-", 35)),
        "stripe-key": ("{}", "sk_" + "live_" + _drawn(rng, _WORD, 24)),
        "sendgrid-key": ("{}", f"SG.{_drawn(rng, _WORD, 22)}.{_drawn(rng, _WORD, 43)}"),
        "twilio-key": ("TWILIO_SID={}", "SK" + hexed),
        "npm-token": ("{}", "npm_" + _drawn(rng, _WORD, 36)),
        "pypi-token": ("{}", "pypi-" + "AgEIcHlwaS5vcmc" + _drawn(rng, _WORD + "_-", 60)),
        "huggingface-token": ("{}", "hf_" + "".join(rng.choice(_LETTERS) for _ in range(34))),
        "azure-key": ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};x", word + word + "=="),
        "jwt": ("{}", _jwt(rng)),
        "private-key": ("{}", _pem(rng)),
        "private-key-escaped": ("{}", _pem(rng).replace("\n", "\\n")),
        "authorization": ('curl -H "Authorization: Bearer {}"', word),
        "authorization-basic": ("authorization: basic {}", base64.b64encode(word.encode()).decode()),
        "url-password": ("postgresql://app:{}@db.internal:5432/app", _drawn(rng, _WORD + "!-", 9)),
        "password": ('"password": "{}"', _drawn(rng, _WORD + "!#-", 9)),
        "password-escaped": ('{{\\"db_password\\": \\"{}\\"}}', _drawn(rng, _WORD + "!#-", 9)),
        "password-env": ("DB_PASSWORD={}", _drawn(rng, _WORD, 9)),
        "named-secret": ("API_KEY={}", word),
        "named-secret-yaml": ("  client_secret: '{}'", word),
    }
    shape, value = forms[kind]
    return shape.format(value), value


SECRETS: Final = (
    "aws-access-key", "aws-secret-key", "github-token", "github-fine", "gitlab-token", "slack-token",
    "slack-webhook", "anthropic-key", "openai-key", "openai-old", "google-api-key", "stripe-key",
    "sendgrid-key", "twilio-key", "npm-token", "pypi-token", "huggingface-token", "azure-key", "jwt",
    "private-key", "private-key-escaped", "authorization", "authorization-basic", "url-password",
    "password", "password-escaped", "password-env", "named-secret", "named-secret-yaml",
)  # fmt: skip
"""Names of the forms; each is a kind of the default policy or a variant of one."""

_ORDINARY: Final = (
    "def parse(tokens: list[Token]) -> Node:",
    "    password = getpass.getpass()",
    "token = self.next_token()",
    "input_tokens: 1532, output_tokens: 88",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "123e4567-e89b-12d3-a456-426614174000",
    "PASSWORD=${DB_PASSWORD} API_KEY=<your-api-key> SECRET=$SECRET",
    'api_key: str = os.environ["API_KEY"]',
    '"password": "changeme", "token": "string"',
    "https://example.org:8443/path?x=1 ada@example.org git@github.com:ada/parser.git",
    "postgres://postgres:postgres@localhost:5432/test",
    "task-list risk-free desk-top eyJ AKIA sk- ghp_ -----BEGIN CERTIFICATE-----",
    "password: required|min:8|confirmed",
    "if token == expected_token: return secret_name",
    "Authorization: Bearer $TOKEN",
    "password=secret token: abc, secret=value",
)  # fmt: skip


def ordinary_text() -> tuple[str, ...]:
    """Return lines of code and output that look a little like secrets and are none."""
    return _ORDINARY
