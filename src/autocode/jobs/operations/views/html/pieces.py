"""The smallest models of the templates: text and diffs with their ends folded, images, remarks."""

from __future__ import annotations

import re
from typing import Any, Final

from markupsafe import Markup

from autocode.jobs.operations.views.blocks import Part
from autocode.jobs.operations.views.diffs import Hunk
from autocode.jobs.operations.views.html.safe import escaped
from autocode.jobs.operations.views.wording import plural, readable, shortened

__all__ = ["View", "folded_diff", "folded_text", "image", "line_count", "note", "safe_html"]

View = dict[str, Any]
"""What a template is given for one thing."""

_HEAD_LINES: Final = 24
_HEAD_CHARACTERS: Final = 4000
_HEAD_DIFF: Final = 60
_RASTER: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]++[=\s]*+")
_WEB: Final = re.compile(r"https?://[^\s<>\"']+", re.IGNORECASE)
_IMAGE_LIMIT: Final = 12_000_000


def folded_diff(hunks: list[Hunk]) -> View:
    """Part a long diff into what is seen at once and what is folded."""
    head: list[Hunk] = []
    rest: list[Hunk] = []
    lines = 0
    total = sum(len(each) for _, each in hunks)
    limit = total if total <= _HEAD_DIFF + 8 else _HEAD_DIFF
    for kind, each in hunks:
        left = max(limit - lines, 0)
        head += [(kind, each[:left])] if left else []
        rest += [(kind, each[left:])] if len(each) > left else []
        lines += len(each)
    return {"kind": "diff", "label": "", "head": _diff(head), "rest": _diff(rest), "lines": total}


def _diff(hunks: list[Hunk]) -> Markup:
    tags = {"same": "span", "removed": "del", "added": "ins", "place": "span"}
    signs = {"same": " ", "removed": "-", "added": "+", "place": ""}
    made = []
    for kind, lines in hunks:
        text = escaped("\n".join(f"{signs[kind]}{line}" for line in lines))
        css = Markup(' class="place"') if kind == "place" else ""
        made.append(Markup("<{0}{1}>{2}</{0}>").format(tags[kind], css, text))
    return Markup("").join(made)


def folded_text(text: str) -> View:
    """Part *text* into what is seen at once and what is folded."""
    text = readable(text).rstrip("\n")
    lines = text.count("\n") + 1
    if lines <= _HEAD_LINES + 8 and len(text) <= _HEAD_CHARACTERS:
        return {"kind": "long", "label": "", "long": {"head": escaped(text), "rest": "", "lines": lines}}
    cut = min(_after_line(text, _HEAD_LINES), _HEAD_CHARACTERS)
    # at the end of a line where one is near
    cut = max(text.rfind("\n", cut // 2, cut), 0) or cut
    head, rest = text[:cut], text[cut:].removeprefix("\n")
    return {
        "kind": "long",
        "label": "",
        "long": {"head": escaped(head), "rest": escaped(rest), "lines": lines},
    }


def _after_line(text: str, count: int) -> int:
    at = -1
    for _ in range(count):
        at = text.find("\n", at + 1)
        if at < 0:
            return len(text)
    return at + 1


def image(part: Part) -> View:
    """Return the model of an image: shown where it is a raster image in base64, else told."""
    data = part.data
    if isinstance(data, str) and data and part.label in _RASTER and len(data) <= _IMAGE_LIMIT:
        if _BASE64.fullmatch(data):
            return {
                "kind": "image",
                "label": "",
                "src": f"data:{part.label};base64,{data}",
                "alt": "Image in the transcript",
            }
        return note(f"An image ({part.label}) whose data isn't base64.")
    if part.text and _WEB.fullmatch(part.text):
        return {
            "kind": "link",
            "label": "",
            "src": part.text,
            "alt": f"Image, not loaded: {shortened(part.text, 120)}",
        }
    size = f", {plural(len(data), 'character')} of data" if isinstance(data, str) else ""
    return note(f"An image that isn't shown ({shortened(part.label or part.text or 'no type', 80)}{size}).")


def safe_html(html: Markup) -> View:
    """Return the model of *html*, which is safe."""
    return {"kind": "html", "label": "", "html": html}


def note(text: str) -> View:
    """Return the model of a remark of ours."""
    return {"kind": "note", "label": "", "alt": text}


def line_count(text: str) -> str:
    """Return how many lines *text* has, in words."""
    return plural(text.rstrip("\n").count("\n") + 1, "line")
