"""The templates, style and scripts of the pages, and the policy that allows these scripts and no others."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from autocode.jobs.operations.views.overview import Prompt
from autocode.jobs.operations.views.wording import clock_text, gap_text, plural

__all__ = ["Assets", "environment", "load_assets"]

_PACKAGE: Final = "autocode.jobs.operations.views.html"


@dataclass(frozen=True, slots=True)
class Assets:
    """What every page carries inside it, and the Content-Security-Policy that names its digests."""

    style: Markup
    theme: Markup
    theme_switch: Markup
    session: Markup
    index: Markup
    policy: str


@cache
def load_assets() -> Assets:
    """Return style, scripts and policy. They are files of this package, and nothing else."""
    style = _file("style.css")
    scripts = {name: _file(f"{name}.js") for name in ("theme", "theme_switch", "session", "index")}
    return Assets(style=Markup(style), policy=_policy(style, list(scripts.values())), **_marked(scripts))  # noqa: S704 - our own files


def _marked(scripts: dict[str, str]) -> dict[str, Markup]:
    return {name: Markup(text) for name, text in scripts.items()}  # noqa: S704 - our own files


@cache
def environment() -> Environment:
    """Return the templates; every value is escaped unless it is Markup."""
    made = Environment(
        loader=PackageLoader(_PACKAGE, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["plural"] = plural
    made.filters["prompt_facts"] = _prompt_facts
    return made


def _prompt_facts(prompt: Prompt) -> str:
    parts = [clock_text(prompt.at)]
    if prompt.calls:
        parts.append(plural(prompt.calls, "tool call"))
    if prompt.seconds is not None and prompt.seconds >= 1:
        parts.append(gap_text(prompt.seconds))
    return " · ".join(part for part in parts if part)


def _policy(style: str, scripts: Sequence[str]) -> str:
    # CSP level 2: the digest is over the element's text, exactly as it stands in the page
    hashed = " ".join(f"'{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src {hashed}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _file(name: str) -> str:
    return (resources.files(_PACKAGE) / "static" / name).read_text("utf-8")
