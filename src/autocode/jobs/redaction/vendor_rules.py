"""Tokens that name their vendor: a fixed prefix and a run of a known alphabet."""

from __future__ import annotations

from typing import Final

from autocode.jobs.redaction.policy import Rule

__all__ = ["VENDOR_RULES"]

_WORD: Final = "[A-Za-z0-9_-]"
_PATH: Final = "[A-Za-z0-9_/]"


def _free(literal: str, rest: str, *, before: str = "[A-Za-z0-9_]", ahead: str = "") -> str:
    r"""Return a pattern for *literal* and *rest* that no character of *before* precedes.

    An escape written out is no part of a word: ``\n``, ``%0A``, ``\u0022``, the end of an ANSI
    colour, a diff's mark behind any of them or at the very beginning.
    The literal comes first and the look-behind after it, because the engine then searches for the literal;
    *ahead* is a cheaper look at what follows, for literals that are frequent.
    """
    escapes = (
        r"\\[nrt]", "%[0-9A-F]{2}", r"\\u00[0-9a-fA-F]{2}", r"[0-9;\[]m", r"[\nnm][+-]", r"\A[+-]",
    )  # fmt: skip
    allowed = "|".join(rf"(?<={escape}{literal})" for escape in escapes)
    return rf"{literal}{ahead}(?:(?<!{before}{literal})|{allowed}){rest}"


def _token(name: str, literal: str, rest: str, *, check: str = "", rule: str = "") -> Rule:
    return Rule(name, _free(literal, rest), check=check, id=rule)


VENDOR_RULES: Final = (
    Rule("aws-access-key", _free("AKIA", "[A-Z0-9]{16}[A-Za-z0-9]*", before=_PATH)),
    Rule(
        "aws-access-key",
        _free("ASIA", "[A-Z0-9]{16}[A-Za-z0-9]*", before=_PATH),
        check="digit",
        id="aws-temporary-key",
    ),
    _token("aws-bedrock-key", "ABSK", "[A-Za-z0-9+/=]{100,}", check="digit"),
    _token("github-token", "gh[pousr]_", "[A-Za-z0-9]{36,}"),
    _token("github-token", "github_pat_", "[A-Za-z0-9_]{50,}", rule="github-fine-grained"),
    Rule(
        "gitlab-token",
        r"gl(?:pat|ptt|dt|rt|cbt|ft|soat|agent|imt|oas)-[A-Za-z0-9_-]{20,}",
        check="digit",
    ),
    _token("slack-token", "xox[abeoprs]-", "[A-Za-z0-9-]{10,}", check="digit"),
    Rule("slack-token", r"xapp-[0-9]-[A-Za-z0-9-]{20,}", id="slack-app-token"),
    Rule(
        "slack-webhook",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_-]{20,})",
        group=1,
        check="digit",
    ),
    Rule(
        "discord-webhook",
        r"discord(?:app)?\.com/api/webhooks/[0-9]{16,20}/([A-Za-z0-9_-]{60,})",
        group=1,
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
    _token("groq-key", "gsk_", "[A-Za-z0-9]{48,}", check="digit"),
    _token("xai-key", "xai-", "[A-Za-z0-9]{70,}", check="digit"),
    _token("perplexity-key", "pplx-", "[A-Za-z0-9]{40,}", check="digit"),
    _token("replicate-token", "r8_", "[A-Za-z0-9]{37,}", check="digit"),
    _token("huggingface-token", "hf_", r"[A-Za-z]{34}[A-Za-z0-9]*"),
    Rule("google-api-key", _free("AIza", r"[A-Za-z0-9_-]{35,}", before=_PATH)),
    Rule("google-oauth", r"GOCSPX-[A-Za-z0-9_-]{20,}"),
    Rule("google-oauth", _free(r"ya29\.", r"[A-Za-z0-9_-]{30,}"), id="google-access-token"),
    Rule(
        "google-oauth",
        _free("1//0", r"[A-Za-z0-9_-]{40,}", before="[A-Za-z0-9_/.]"),
        id="google-refresh-token",
    ),
    Rule(
        "azure-key",
        r"(?i:account|sharedaccess)[kK][eE][yY]=([A-Za-z0-9+/=]{40,})",
        group=1,
    ),
    Rule("azure-key", r"[?&]sig=([A-Za-z0-9%+/=]{40,})", group=1, check="digit", id="azure-signature"),
    Rule(
        "azure-key",
        r"[A-Za-z0-9_~.]{3}[78]Q~[A-Za-z0-9_~.-]{31,}",
        id="azure-client-secret",
    ),
    _token("stripe-key", "[sr]k_(?:live|test)_", "[A-Za-z0-9]{16,}", check="digit"),
    _token("stripe-key", "whsec_", r"[A-Za-z0-9+/=]{24,}", check="digit", rule="webhook-secret"),
    Rule("sendgrid-key", _free(r"SG\.", r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,}")),
    Rule("twilio-key", _free("SK", r"[0-9a-f]{32}[A-Za-z0-9]*"), ("twilio",)),
    _token("mailgun-key", "key-", "[0-9a-f]{32}[A-Za-z0-9]*", check="digit"),
    Rule("telegram-token", r"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33,}"),
    _token("npm-token", "npm_", "[A-Za-z0-9]{36,}", check="digit"),
    Rule("pypi-token", r"pypi-AgE[A-Za-z0-9_-]{40,}"),
    _token("prefect-key", "pn[ub]_", "[A-Za-z0-9]{36,}", check="digit"),
    _token("rubygems-token", "rubygems_", "[0-9a-f]{48}[A-Za-z0-9]*"),
    _token("docker-token", "dckr_[po]at_", "[A-Za-z0-9_-]{27,}", check="digit"),
    _token("digitalocean-token", "do[opr]_v1_", "[0-9a-f]{64}[A-Za-z0-9]*"),
    _token("heroku-key", "HRKU-", "[A-Za-z0-9_-]{36,}", check="digit"),
    _token("fly-token", "fm2_", "[A-Za-z0-9+/=_-]{80,}", check="digit"),
    _token("supabase-key", "sb", "(?:p|_secret)_[A-Za-z0-9_-]{30,}", check="digit"),
    _token("databricks-token", "dapi", "[0-9a-f]{32}[A-Za-z0-9-]*"),
    _token("vault-token", r"hv[sbr]\.", "[A-Za-z0-9_-]{24,}", check="digit"),
    Rule("terraform-token", r"(?:(?<![A-Za-z0-9])[A-Za-z0-9]{14})?\.atlasv1\.[A-Za-z0-9_=-]{60,}"),
    _token("pulumi-token", "pul-", "[0-9a-f]{40}[A-Za-z0-9]*"),
    _token("grafana-token", "glsa_", "[A-Za-z0-9]{32}_[A-Za-z0-9]{8,}"),
    _token("sentry-token", "sntry[su]_", "[A-Za-z0-9+/=_-]{40,}", check="digit"),
    _token("new-relic-key", "NRAK-", "[A-Z0-9]{27}[A-Za-z0-9]*"),
    _token("dynatrace-token", r"dt0[a-z][0-9]{2}\.", r"[A-Za-z0-9]{24}\.[A-Za-z0-9]{64,}"),
    _token("atlassian-token", "AT(?:ATT|CTT)3", "[A-Za-z0-9_=-]{100,}", check="digit"),
    _token("linear-key", "lin_", "(?:api|oauth)_[A-Za-z0-9]{40,}", check="digit"),
    _token("notion-token", "ntn_", "[A-Za-z0-9]{40,}", check="digit"),
    _token("figma-token", "figd_", "[A-Za-z0-9_-]{40,}", check="digit"),
    _token("postman-key", "PMAK-", "[0-9a-f]{24}-[0-9a-f]{34}[A-Za-z0-9]*"),
    _token("shopify-token", "shp(?:at|ca|pa|ss)_", "[0-9a-fA-F]{32}[A-Za-z0-9]*", check="digit"),
    _token("square-token", "sq0[a-z]{3}-", "[A-Za-z0-9_-]{22,}", check="digit"),
    _token(
        "doppler-token",
        r"dp\.",
        r"(?:pt|ct|sa|st(?:\.[A-Za-z0-9_-]{2,35})?|scim|audit)\.[A-Za-z0-9]{40,}",
        check="digit",
    ),
    # The run is written in two, because a sieve drops the first: it would begin anywhere.
    Rule("mailchimp-key", "[0-9a-f]{27}[0-9a-f]{5}-us[0-9]{1,2}(?![A-Za-z0-9-])", check="digit"),
    Rule(
        "password-hash",
        r"\$(?:apr1|[156])\\{0,7}\${1,2}(?:rounds=[0-9]{1,9}\\{0,7}\${1,2})?[./0-9A-Za-z]{1,16}\\{0,7}\${1,2}"
        r"[./0-9A-Za-z]{22,}",
        check="digit",
    ),
    Rule(
        "password-hash",
        r"\$2[abxy]?\\{0,7}\${1,2}[0-9]{2}\\{0,7}\${1,2}[./0-9A-Za-z]{53,}",
        id="bcrypt-hash",
    ),
    _token("age-key", "AGE-SECRET-KEY-1", "[0-9A-Z]{58}[A-Za-z0-9]*"),
)
"""Rules for tokens with a prefix of their vendor's."""
