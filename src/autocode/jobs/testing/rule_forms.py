"""Templates of secrets, and texts made from them: what a rule finds, without a secret in the source.

``{w40}`` stands for 40 drawn letters and digits, ``{h32}`` for hex digits, ``{u16}`` for upper-case letters
and digits, ``{d11}`` for digits, ``{s20}`` for letters, digits, ``_`` and ``-``, ``{a34}`` for letters; what
lies between ``«`` and ``»`` is the secret. They are drawn when a test runs: nothing here looks like a secret
to a scanner.
"""

from __future__ import annotations

import base64
import json
import random
import re
import string
from typing import Final

__all__ = ["drawn", "shown"]

_ALPHABETS: Final = {
    "w": string.ascii_letters + string.digits,
    "h": "0123456789abcdef",
    "u": string.ascii_uppercase + "234567",
    "d": string.digits,
    "s": string.ascii_letters + string.digits + "_-",
    "a": string.ascii_letters,
}
_HOLE: Final = re.compile(r"\{([whudsa])([0-9]{1,3})\}|\{(pem|pemn|jwt|basic|pem64)\}")


def drawn(form: str, rng: random.Random) -> tuple[str, str]:
    """Return a text made from a template, and the secret in it; the same state gives the same text."""
    text = _HOLE.sub(lambda hole: _filled(hole, rng), form)
    before, _, rest = text.partition("«")
    secret, _, after = rest.partition("»")
    return before + secret + after, secret


def shown(form: str) -> str:
    """Return a template as code in a table of Markdown, dots for what is drawn."""
    return _code(_HOLE.sub(_dots, form))


def _dots(hole: re.Match[str]) -> str:
    shown = {
        "pem": "-----BEGIN RSA PRIVATE KEY----- …",
        "pemn": r"-----BEGIN PRIVATE KEY-----\n…",
        "pem64": "LS0tLS1CRUdJTiBSU0Eg…",
        "jwt": "eyJ….eyJ….…",
        "basic": "base64 of user:password",
    }
    return shown.get(hole[3] or "", "…")


def _code(text: str) -> str:
    shown = text.replace("«", "").replace("»", "").replace("\n", "⏎").replace("\x1b", "␛").replace("|", "\\|")
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def _filled(hole: re.Match[str], rng: random.Random) -> str:
    letter, size, special = hole.groups()
    if special == "pem":
        return _pem(rng)
    if special == "pemn":
        return _pem(rng).replace("\n", "\\n")
    if special == "pem64":
        return base64.b64encode(_pem(rng).encode()).decode()
    if special == "jwt":
        parts = [json.dumps({"alg": "HS256", "typ": "JWT"}), json.dumps({"sub": str(rng.random())})]
        encoded = [base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts]
        return ".".join([*encoded, _run(rng, "w", 43)])
    if special == "basic":
        return base64.b64encode(f"deploy:{_run(rng, 'w', 12)}".encode()).decode()
    return _run(rng, letter, int(size))


def _run(rng: random.Random, letter: str, size: int) -> str:
    # digits at the front of what has any: checks ask for some, and a draw may lack them
    front = {"w": "7k4Q2", "s": "7k4Q2", "u": "7K4Q2", "h": "7a4f2"}.get(letter, "")[: size // 2]
    return front + "".join(rng.choice(_ALPHABETS[letter]) for _ in range(size - len(front)))


def _pem(rng: random.Random) -> str:
    lines = [_run(rng, "w", 64) for _ in range(4)]
    return "\n".join(["-----BEGIN RSA PRIVATE " + "KEY-----", *lines, "-----END RSA PRIVATE " + "KEY-----"])
