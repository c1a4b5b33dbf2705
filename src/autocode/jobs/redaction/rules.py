"""The default policy: forms of secrets that are specific enough to be replaced without asking.

Each form comes from its vendor's documentation or from secrets seen in tool output; e-mail addresses, names
and paths are personal data, not credentials, and no part of it.
"""

from __future__ import annotations

from typing import Final

from autocode.jobs.redaction.assignments import assigned
from autocode.jobs.redaction.policy import Policy, Rule

__all__ = ["DEFAULT_POLICY"]

_PASSWORD: Final = ("password", "passwd", "passphrase", "pwd")
_WORD: Final = "[A-Za-z0-9_-]"


def _free(literal: str, rest: str, *, before: str = "[A-Za-z0-9_]", ahead: str = "") -> str:
    r"""Return a pattern for *literal* and *rest* that no character of *before* precedes.

    An escape written out is no part of a word: ``\n``, ``%0A``, ``\u0022``, the end of an ANSI
    colour, a diff's mark.
    The literal comes first and the look-behind after it, because the engine then searches for the literal;
    *ahead* is a cheaper look at what follows, for literals that are frequent.
    """
    escapes = (r"\\[nrt]", "%[0-9A-F]{2}", r"\\u00[0-9a-fA-F]{2}", r"[0-9;\[]m", r"\n[+-]")
    allowed = "|".join(rf"(?<={escape}{literal})" for escape in escapes)
    return rf"{literal}{ahead}(?:(?<!{before}{literal})|{allowed}){rest}"


_KEY_BODY: Final = (
    # Headers, escaped line ends, diff marks and line numbers may come before the first run of base64.
    r"(?:[^-]|-(?!----)){0,400}?[A-Za-z0-9+/]{24}"
    r"(?:[^-]{0,20000}+(?:-(?!----)[^-]{0,2000}+){0,400}+-----END[A-Z ]{1,40}-----[A-Za-z0-9_-]*"
    # Text is often cut off inside a key: then the key is what looks like base64, with its line ends.
    r"|[\s\\+>|A-Za-z0-9/=\u2192]*)"
)

_RULES: Final = (
    Rule(
        "private-key",
        r"-----BEGIN(?: [A-Z0-9]{1,16}){0,3} PRIVATE KEY(?: BLOCK)?-----" + _KEY_BODY
    ),
    Rule("aws-access-key", _free("AKIA", "[A-Z0-9]{16}[A-Za-z0-9]*", before="[A-Za-z0-9_/]")),
    Rule(
        "aws-access-key",
        _free("ASIA", "[A-Z0-9]{16}[A-Za-z0-9]*", before="[A-Za-z0-9_/]"),
        check="digit",
    ),
    assigned(
        "aws-secret-key",
        ("secret_?access_?key", "secret_?key"),
        r"""[\\"'`]{0,8}([A-Za-z0-9/+]{40,})""",
        check="digit",
    ),
    Rule("github-token", _free("gh[pousr]_", "[A-Za-z0-9]{36,}")),
    Rule("github-token", _free("github_pat_", "[A-Za-z0-9_]{50,}")),
    Rule(
        "gitlab-token",
        r"gl(?:pat|ptt|dt|rt|cbt|ft|soat|agent|imt|oas)-[A-Za-z0-9_-]{20,}",
        check="digit",
    ),
    Rule(
        "slack-token",
        _free("xox[abeoprs]-", "[A-Za-z0-9-]{10,}"),
        check="digit",
    ),
    Rule("slack-token", r"xapp-[0-9]-[A-Za-z0-9-]{20,}"),
    Rule(
        "slack-webhook",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_-]{20,})",
        group=1,
        check="digit",
    ),
    Rule("anthropic-key", _free("sk-", r"ant-[A-Za-z0-9_-]{20,}", before=_WORD), check="digit"),
    Rule(
        "openai-key",
        _free(
            "sk-",
            r"(?:(?:proj|svcacct|admin|or-v1|None)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{32,}[A-Za-z0-9_-]*)",
            before=_WORD,
            ahead="(?=[A-Za-z0-9]{3}|or-)",
        ),
        check="digit",
    ),
    Rule("google-api-key", _free("AIza", r"[A-Za-z0-9_-]{35,}", before="[A-Za-z0-9_/]")),
    Rule("google-oauth", r"GOCSPX-[A-Za-z0-9_-]{20,}"),
    Rule("google-oauth", _free(r"ya29\.", r"[A-Za-z0-9_-]{30,}")),
    Rule(
        "stripe-key",
        _free("[sr]k_(?:live|test)_", "[A-Za-z0-9]{16,}"),
        check="digit",
    ),
    Rule("stripe-key", _free("whsec_", r"[A-Za-z0-9+/=]{24,}"), check="digit"),
    Rule("sendgrid-key", _free(r"SG\.", r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,}")),
    Rule("twilio-key", _free("SK", r"[0-9a-f]{32}[A-Za-z0-9]*"), ("twilio",)),
    Rule("npm-token", _free("npm_", "[A-Za-z0-9]{36,}"), check="digit"),
    Rule("pypi-token", r"pypi-AgE[A-Za-z0-9_-]{40,}"),
    Rule("huggingface-token", _free("hf_", r"[A-Za-z]{34}[A-Za-z0-9]*")),
    Rule(
        "azure-key",
        r"(?i:account|sharedaccess)[kK][eE][yY]=([A-Za-z0-9+/=]{40,})",
        group=1,
    ),
    Rule("azure-key", r"[?&]sig=([A-Za-z0-9%+/=]{40,})", group=1, check="digit"),
    Rule(
        "jwt",
        _free("eyJ", r"[A-Za-z0-9_-]{8,512}\.eyJ[A-Za-z0-9_-]{8,6000}\.[A-Za-z0-9_-]{8,}", before=_WORD),
        check="jwt",
    ),
    Rule(
        "authorization",
        r"(?i:authorization)[\\\"'`]{0,4}[ \t]{0,4}[:=][ \t]{0,4}[\\\"'`]{0,4}"
        r"(?i:bearer|basic|token)[ \t]{1,4}([A-Za-z0-9_.~+/=-]{12,})",
        group=1,
        check="mixed",
    ),
    Rule(
        "url-password",
        r"://[^\x09-\x0d\x20/:@\"'`<>\\]{0,128}:([^\x09-\x0d\x20/@\"'`<>\\]{3,512})@[A-Za-z0-9\[]",
        group=1,
        check="real",
    ),
    assigned(
        "password",
        _PASSWORD,
        r"""\\{0,7}["'`]([^\x09-\x0d\x20"'`\\<>]{6,})""",
        check="real",
        keys=True,
    ),
    assigned(
        "password",
        _PASSWORD,
        r"""([^\x09-\x0d\x20"'`\\,;&|<>(){}\[\]$:=]{6,}[^\x09-\x0d\x20"'`\\,;&|<>(){}\[\]$]*)""",
        check="mixed",
    ),
    assigned(
        "named-secret",
        ("secret", "token", "api_?key", "access_?key", "secret_?key", "private_?key", "auth_?key"),
        r"""[\\"'`]{0,8}([A-Za-z0-9_./+~-]{16,}[A-Za-z0-9_./+~=-]*)""",
        check="opaque",
        keys=True,
    ),
)  # fmt: skip

DEFAULT_POLICY: Final = Policy("default", 1, _RULES)
"""The policy of every export unless another is asked for, or redaction is switched off."""
