"""Second looks at what a pattern found: is this value really a secret?

A check sees the matched value alone, so its answer can't depend on where a window ended. It looks at the
first :data:`LOOK` characters only, which bounds its cost whatever the value's length.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from typing import Final

__all__ = ["CHECKS", "CHECKS_REVISION", "LOOK", "PLACEHOLDER_PARTS", "PLACEHOLDER_WORDS", "SHORTEST"]

CHECKS_REVISION: Final = 2
"""Raise it when a check answers differently for some value: it is part of every policy's digest."""

LOOK: Final = 4096

PLACEHOLDER_PARTS: Final = (
    "password", "changeme", "change-me", "change_me", "change_this", "dummy", "example", "placeholder",
    "redacted", "replace", "sample", "xxxx", "your-", "your_", "yourp", "yours", "yourt", "yourk",
    "youra", "****", "....", "${", "{{", "my-", "my_", "not-a-", "not_a_", "insert", "todo",
    "process.env", "os.environ", "getenv",
)  # fmt: skip
"""A value that contains one of these, in any case, stands for a secret and isn't one."""

PLACEHOLDER_WORDS: Final = frozenset({
    "admin", "boolean", "default", "enabled", "disabled", "false", "hidden", "invalid", "masked",
    "missing", "none", "null", "number", "object", "optional", "passphrase", "passwd", "password",
    "password1", "postgres", "required", "secret", "string", "text", "token", "true", "undefined",
    "unknown", "user", "username", "value", "root", "test", "testing", "pass", "guest", "mysql", "redis",
    "foobar", "abc123", "secret123", "password123", "test123",
})  # fmt: skip
"""Values that are words about a secret, types, or the well-known defaults of local servers."""

_SHELL: Final = frozenset("$<%{(*")
_NAME: Final = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|(?:[A-Za-z_]\w*[.:]{1,2})+[A-Za-z_]\w*", re.ASCII)


def _real(value: str) -> bool:
    """A value that could be a password: not a placeholder, not a variable, not one character repeated."""
    lowered = value[:LOOK].lower()
    if lowered in PLACEHOLDER_WORDS or lowered[:1] in _SHELL:
        return False
    if len(set(lowered)) < 4 or any(part in lowered for part in PLACEHOLDER_PARTS):
        return False
    return not value.isspace()


def _mixed(value: str) -> bool:
    """A real value with letters and digits that isn't a name in code (``SOME_NAME``, ``module.name``)."""
    head = value[:LOOK]
    letters = any(c.isalpha() for c in head)
    digits = any(c.isdigit() for c in head)
    return letters and digits and _NAME.fullmatch(head) is None and _real(value)


def _opaque(value: str) -> bool:
    """A mixed value that looks drawn at random: long, many different characters, several digits."""
    head = value[:LOOK]
    if len(head) < 16 or len(set(head)) < 10 or not _mixed(value):
        return False
    cased = head != head.lower() and head != head.upper()
    return sum(c.isdigit() for c in head) >= 3 or (cased and len(head) >= 24)


def _jwt(value: str) -> bool:
    """A token whose first part decodes to a JSON object with ``alg`` (RFC 7519)."""
    head = value.split(".", 1)[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return False
    return isinstance(header, dict) and "alg" in header


def _cookie(value: str) -> bool:
    """A list of cookies of which one looks drawn at random (RFC 6265, section 4.2.1)."""
    values = [pair.partition("=")[2].strip() for pair in value[:LOOK].split(";")]
    # neither a space nor a comma may be part of a cookie: those are dates
    return any(_opaque(each) for each in values if " " not in each and "," not in each)


def _basic(value: str) -> bool:
    """A user and a password, joined and encoded as HTTP's basic scheme does (RFC 7617)."""
    try:
        decoded = base64.b64decode(value[:LOOK], validate=True).decode("utf-8")
    except ValueError:
        return False
    user, colon, password = decoded.partition(":")
    return bool(user and colon and decoded.isprintable()) and _real(password)


CHECKS: Final[dict[str, Callable[[str], bool]]] = {
    "basic": _basic,
    "cookie": _cookie,
    "": lambda _value: True,
    "digit": lambda value: any(c.isdigit() for c in value[:LOOK]),
    "jwt": _jwt,
    "mixed": _mixed,
    "opaque": _opaque,
    "real": _real,
}
"""Every check by the name that a rule uses; the empty name accepts everything."""

SHORTEST: Final = {"": 1, "basic": 8, "cookie": 16, "digit": 1, "jwt": 1, "mixed": 4, "opaque": 16, "real": 4}
"""Characters that a value has at least which passes a check; what the gate may take for granted."""
