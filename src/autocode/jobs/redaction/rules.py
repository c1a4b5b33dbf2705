"""The default policy: forms of secrets that are specific enough to be replaced without asking.

Each form comes from its vendor's documentation or from secrets seen in tool output; e-mail addresses, names
and paths are personal data, not credentials, and no part of it. ``docs/redaction.md`` lists every rule with
its source and examples; a test compares the two.
"""

from __future__ import annotations

from typing import Final

from autocode.jobs.redaction.assignments import assigned, named, option
from autocode.jobs.redaction.policy import Policy, Rule
from autocode.jobs.redaction.vendor_rules import VENDOR_RULES

__all__ = ["DEFAULT_POLICY"]

_PASSWORD: Final = (
    "password", "passwd", "passphrase", "passcode", "pwd", "[_-]pass", "passwort", "kennwort",
)  # fmt: skip
_SECRET: Final = (
    "secret", "token", "credentials?",
    "(?:api|access|secret|private|auth|encryption|signing|master|session|app|client)_?key",
    # a pattern is called `pat`, too: only in upper case, or behind a host of repositories
    "(?-i:_PAT)", "(?:github|gitlab|azure|devops)[_-]pat",
)  # fmt: skip
_QUOTE: Final = r"""[\\"'`]{0,8}"""
_PLAIN: Final = r"""([^\x09-\x0d\x20"'`\\,;&|<>(){}\[\]$:=]{6,}[^\x09-\x0d\x20"'`\\,;&|<>(){}\[\]$]*)"""
_OPAQUE: Final = r"([A-Za-z0-9_./+~-]{16,}=*)"
_ARGUMENT: Final = r"""([^\x09-\x0d\x20"'`\\<>|;&]{4,})"""

_KEY_BODY: Final = (
    # Headers, escaped line ends, diff marks and line numbers may come before the first run of base64.
    r"(?:[^-]|-(?!----)){0,400}?[A-Za-z0-9+/]{24}"
    r"(?:[^-]{0,20000}+(?:-(?!----)[^-]{0,2000}+){0,400}+-----END[A-Z ]{1,40}-----[A-Za-z0-9_-]*"
    # Text is often cut off inside a key: then the key is what looks like base64, with its line ends.
    r"|[\s\\+>|A-Za-z0-9/=\u2192]*)"
)

_KEYS: Final = (
    Rule(
        "private-key",
        r"-----BEGIN(?: [A-Z0-9]{1,16}){0,3} PRIVATE KEY(?: BLOCK)?-----" + _KEY_BODY,
    ),
    Rule(
        "private-key",
        # "-----BEGIN " and the first letters of what a private key may be, encoded as a whole
        r"LS0tLS1CRUdJTi(?:BQUklWQ|BSU0EgU|BFQyBQU|BEU0EgU|BPUEVOU|BFTkNSW)[A-Za-z0-9+/=]{24,}"
        r"(?:(?:\\n|\r?\n)[ \t]{0,12}[A-Za-z0-9+/=]{24,}){0,60}[A-Za-z0-9+/=]*",
        id="private-key-base64",
    ),
    assigned(
        "private-key",
        ("client_?key_?data",),
        _QUOTE + "([A-Za-z0-9+/=]{40,})",
        check="digit",
        rule="kubeconfig-key",
    ),
)

_HEADERS: Final = (
    Rule(
        "jwt",
        r"eyJ(?:(?<![A-Za-z0-9_-]eyJ)|(?<=\\[nrt]eyJ)|(?<=%[0-9A-F]{2}eyJ)|(?<=\\u00[0-9a-fA-F]{2}eyJ)"
        r"|(?<=[0-9;\[]meyJ)|(?<=[\nnm][+-]eyJ)|(?<=\A[+-]eyJ))"
        r"[A-Za-z0-9_-]{8,512}\.eyJ[A-Za-z0-9_-]{8,6000}\.[A-Za-z0-9_-]{8,}",
        check="jwt",
    ),
    Rule(
        "authorization",
        rf"(?i:authorization){_QUOTE}[ \t]{{0,4}}[:=][ \t]{{0,4}}{_QUOTE}"
        r"(?i:bearer|basic|token|apikey|bot|splunk)[ \t]{1,4}([A-Za-z0-9_.~+/=-]{12,})",
        group=1,
        check="mixed",
    ),
    Rule(
        "authorization",
        r"(?i:bearer)[ \t]{1,4}([A-Za-z0-9_.~+/=-]{20,})",
        group=1,
        check="opaque",
        id="bearer-token",
    ),
    Rule(
        "api-key-header",
        r"(?i:x-(?:api|functions|goog-api)-key|x-(?:auth|access|vault|amz-security)-token|private-token"
        rf"|ocp-apim-subscription-key){_QUOTE}[ \t]{{0,4}}[:=][ \t]{{0,4}}{_QUOTE}([A-Za-z0-9_.~+/=-]{{8,}})",
        group=1,
        check="mixed",
        field=r"(?i:x-api-key|x-auth-token|x-access-token|private-token)",
    ),
    Rule(
        "cookie",
        rf"(?i:cookie){_QUOTE}[ \t]{{0,4}}:[ \t]{{0,4}}{_QUOTE}"
        r"""([A-Za-z0-9_.$-]{1,64}=[^\x00-\x1f"'`\\<>]{16,})""",
        group=1,
        check="cookie",
        field=r"(?i:(?:set-)?cookie)",
    ),
)

_COMMANDS: Final = (
    option(
        ("password", "passwd", "passphrase", "pwd", "pass"), _ARGUMENT, check="mixed", rule="password-option"
    ),
    option(
        ("secret", "token", "(?:api|access|secret|private|auth|account|master)-?key"),
        _OPAQUE,
        check="opaque",
        rule="secret-option",
    ),
    Rule(
        "command-password",
        r"(?:(?:docker|podman|nerdctl|buildah|oras|az|registry)[ \t]{1,4}login[^\n;|&]{0,200}?[ \t]-p"
        r"|redis-cli[^\n;|&]{0,200}?[ \t]-a|mongo(?:sh|dump|restore|export|import)?[^\n;|&]{0,200}?[ \t]-p)"
        rf"[ \t=]{{1,4}}{_QUOTE}{_ARGUMENT}",
        group=1,
        check="mixed",
        id="login-password",
    ),
    Rule(
        "command-password",
        rf"curl[^\n;|&]{{0,400}}?[ \t](?:-[a-zA-Z]{{0,8}}u|--user|--proxy-user)[ \t=]{{0,4}}{_QUOTE}"
        rf"""[^\x09-\x0d\x20"'`\\:$]{{1,64}}:{_ARGUMENT}""",
        group=1,
        check="real",
        id="curl-user",
    ),
    Rule(
        "command-password",
        r"(?:sshpass[ \t]{1,4}-p|mysql(?:dump|admin)?[^\n;|&]{0,200}?[ \t]-p)"
        rf"[ \t]{{0,1}}{_QUOTE}{_ARGUMENT}",
        group=1,
        check="mixed",
        id="client-password",
    ),
)

_FILES: Final = (
    Rule(
        "url-password",
        r"://[^\x09-\x0d\x20/:@\"'`<>\\]{0,128}:([^\x09-\x0d\x20/@\"'`<>\\]{3,512})@[A-Za-z0-9\[]",
        group=1,
        check="real",
    ),
    Rule(
        "url-password",
        r""":([^\x09-\x0d\x20/@"'`<>\\]{4,128})@(?:tcp|unix)\(""",
        group=1,
        check="real",
        id="go-dsn-password",
    ),
    Rule(
        "password",
        r"(?:machine[ \t]{1,4}[^\s]{1,256}|default)(?:\s|\\n){1,8}login(?:\s|\\n){1,4}[^\s]{1,128}"
        rf"(?:\s|\\n){{1,8}}password(?:\s|\\n){{1,4}}{_ARGUMENT}",
        group=1,
        check="real",
        id="netrc-password",
    ),
    Rule(
        "password",
        rf":5432:[^\s:]{{1,63}}:[^\s:]{{1,63}}:{_ARGUMENT}",
        group=1,
        check="mixed",
        id="pgpass-password",
    ),
    Rule(
        "registry-auth",
        rf"_auth(?:Token)?[ \t]{{0,4}}=[ \t]{{0,4}}{_QUOTE}([A-Za-z0-9+/_.-]{{8,}}={{0,2}})",
        group=1,
        check="mixed",
        id="npmrc-auth",
    ),
    Rule(
        "registry-auth",
        rf"""["']auth\\{{0,7}}["'][ \t]{{0,4}}:[ \t]{{0,4}}{_QUOTE}([A-Za-z0-9+/]{{8,}}={{0,2}})""",
        group=1,
        check="basic",
        field="auth",
        id="docker-auth",
    ),
)

_SQL_VALUE: Final = r"""\\{0,7}['"]([^\x09-\x0d\x20"'`\\<>]{4,})"""
_SQL: Final = (
    Rule(
        "password",
        # prose says that things are identified by a name, in lower case
        r"(?:IDENTIFIED|(?i:user)\s{1,4}[^\s]{1,128}\s{1,4}identified)\s{1,4}(?i:with\s{1,4}[^\s]{1,40}\s{1,4})?(?i:by\s{1,4}(?:password\s{1,4})?)"
        + _SQL_VALUE,
        group=1,
        check="real",
        id="sql-identified-by",
    ),
    Rule(
        "password",
        r"(?i:create|alter)\s{1,4}(?i:user|role|group)\s[^;]{1,200}?(?i:password)\s{1,4}" + _SQL_VALUE,
        group=1,
        check="real",
        id="sql-role-password",
    ),
)

_URLS: Final = (
    Rule(
        "url-token",
        # the key in the address of a Sentry project is public
        r"://([A-Za-z0-9_.~%+-]{20,512})@(?![A-Za-z0-9.-]{0,64}sentry)[A-Za-z0-9\[]",
        group=1,
        check="opaque",
    ),
    Rule(
        "url-signature",
        r"(?i:x-(?:amz|goog)-(?:signature|security-token))=([A-Za-z0-9_.~%+/=-]{40,})",
        group=1,
        check="opaque",
        field="(?i:x-(?:amz|goog)-(?:signature|security-token))",
    ),
    Rule(
        "url-signature",
        r"(?:[?&;]|%26|\\u0026)Signature=([A-Za-z0-9_.~%+/=-]{24,})",
        group=1,
        check="opaque",
        id="url-signature-plain",
    ),
)

_NAMES: Final = (
    Rule(
        "password",
        # PASS in upper case comes before the name of a test
        r"[pP]ass(?:(?<![A-Za-z0-9_-]....)|(?<=\\[nrt]....)|(?<=[\n][+-]....))"
        rf"{_QUOTE}[ \t]{{0,4}}[:=][ \t]{{0,4}}{_QUOTE}{_PLAIN}",
        group=1,
        check="opaque",
        field="(?i:pass)",
        id="password-short-name",
    ),
    assigned(
        "aws-secret-key",
        ("secret[ _-]?access[ _-]?key(?: \\[[^\\]]{0,24}\\])?", "secret_?key"),
        _QUOTE + "([A-Za-z0-9/+]{40,})",
        check="digit",
    ),
    assigned(
        "password",
        _PASSWORD,
        r"""\\{0,7}["'`]([^\x09-\x0d\x20"'`\\<>]{6,})""",
        check="real",
        keys=True,
    ),
    assigned("password", _PASSWORD, _PLAIN, check="mixed", rule="password-unquoted"),
    named("password", _PASSWORD, _PLAIN, check="real", rule="password-entry"),
    assigned("named-secret", _SECRET, _QUOTE + _OPAQUE, check="opaque", keys=True),
    assigned(
        "named-secret",
        _SECRET,
        r"""\\{0,7}["'`]([^\x09-\x0d\x20"'`\\<>(){}\[\]]{16,})""",
        check="opaque",
        rule="named-secret-quoted",
    ),
    named("named-secret", _SECRET, _OPAQUE, check="opaque", rule="named-secret-entry"),
)

DEFAULT_POLICY: Final = Policy(
    "default", 3, (*_KEYS, *VENDOR_RULES, *_HEADERS, *_COMMANDS, *_FILES, *_SQL, *_URLS, *_NAMES)
)
"""The policy of every export unless another is asked for, or redaction is switched off."""
