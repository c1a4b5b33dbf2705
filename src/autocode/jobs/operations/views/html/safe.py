"""Text of a transcript into HTML that nothing in it can leave."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from autocode.jobs.operations.views.html.highlight import Highlighter
from autocode.jobs.operations.views.wording import readable

__all__ = ["MarkdownRenderer", "escaped"]

_LONGEST: Final = 100_000
"""Characters of one message that are rendered; a longer one is shown as plain text."""

_MARK: Final = re.compile(r"\[REDACTED:([a-z0-9-]{1,40}):([0-9]{1,9})\]")
_URL: Final = r"https?://(?:(?!&(?:lt|gt|quot);)[^\s<>\"'\[\]])+"
_PIECES: Final = re.compile(rf"{_MARK.pattern}|(<[^>]*>)|({_URL})")
_LINK: Final = re.compile(r"(?:https?://|mailto:)[^\s<>\"']+", re.IGNORECASE)
_BLOCKS: Final = (
    "blockquote",
    "div",
    "hr",
    "li",
    "ol",
    "p",
    "pre",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "tr",
)
_TAGS: Final = frozenset((*_BLOCKS, "a", "br", "code", "del", "em", "s", "span", "strong", "ul"))
_RULES: Final = ("code_block", "fence", "heading_close", "heading_open", "image", "table_close", "table_open")
_ATTRIBUTES: Final = {
    "a": {"href"},
    "code": {"class"},
    "div": {"class", "role", "tabindex", "aria-label"},
    "ol": {"start"},
    "p": {"class"},
    "span": {"class"},
    "td": {"class"},
    "th": {"class"},
}


def escaped(text: str) -> Markup:
    """Return *text* for the content of an element, with marks of redaction marked.

    Quotes stay: they mean nothing in there, and JSON would grow to twice its size. Never use it in an
    attribute.
    """
    plain = readable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return Markup(_MARK.sub(_marked, plain))  # noqa: S704 - escaped in the line above


class MarkdownRenderer:
    """Renders Markdown: CommonMark with tables and strikethrough; HTML in it is text.

    Images become links to them, headings don't enter the page's outline, and links keep their address only
    where it is http, https or mailto.

    Args:
        highlighter: colours the code.
    """

    def __init__(self, highlighter: Highlighter) -> None:
        self._highlighter = highlighter
        self._parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
        rules = {name: getattr(self, f"_{name}") for name in _RULES}
        # not add_render_rule: it binds what it is given to the renderer
        self._parser.renderer.rules.update(rules)  # type: ignore[attr-defined]

    def render(self, text: str, *, breaks: bool = False) -> Markup:
        """Return *text* rendered and sanitised; what is too long for that as it is.

        Args:
            text: Markdown.
            breaks: keep line ends within paragraphs, which CommonMark makes spaces: people type them.
        """
        self._parser.options["breaks"] = breaks
        text = readable(text)
        if len(text) > _LONGEST:
            return Markup('<div class="plain">{}</div>').format(escaped(text))
        html = nh3.clean(
            self._parser.render(text),
            tags=set(_TAGS),
            attributes={tag: set(names) for tag, names in _ATTRIBUTES.items()},
            attribute_filter=_kept,
            link_rel="noreferrer noopener",
            url_schemes={"http", "https", "mailto"},
            strip_comments=True,
        )
        # a tag of nh3's output has no > in its attributes: addresses are percent-encoded, classes are ours
        return Markup(_PIECES.sub(_Linked(), html))  # noqa: S704 - sanitised in the lines above

    def _code(self, text: str, language: str) -> str:
        return f"<pre><code>{self._highlighter.code(text, language)}</code></pre>\n"

    # rules of a renderer get the tokens, the place of theirs, the options and the environment

    def _fence(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        return self._code(tokens[at].content, tokens[at].info.strip().partition(" ")[0])

    def _code_block(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        return self._code(tokens[at].content, "")

    def _heading_open(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        return f'<p class="hd {tokens[at].tag}"><strong>'

    def _heading_close(self, *_: Any) -> str:
        return "</strong></p>\n"

    def _table_open(self, *_: Any) -> str:
        # wide tables scroll in a box of their own, which the keyboard has to reach
        return '<div class="wide" role="group" tabindex="0" aria-label="Table"><table>\n'

    def _table_close(self, *_: Any) -> str:
        return "</table></div>\n"

    def _image(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        source = str(tokens[at].attrs.get("src") or "")
        words = escape(tokens[at].content or source[:80] or "no address")
        if _LINK.fullmatch(source) is None:
            return f"<em>[image: {words}]</em>"
        return f'<a href="{escape(source)}">[image: {words}]</a>'


class _Linked:
    """Marks redactions, and makes links of bare addresses outside of links and code."""

    def __init__(self) -> None:
        self._inside = 0

    def __call__(self, match: re.Match[str]) -> str:
        if match[3] is not None:
            if match[3].startswith(("<a ", "<code")):
                self._inside += 1
            elif match[3] in {"</a>", "</code>"}:
                self._inside -= 1
            return match[3]
        if match[4] is None:
            return _marked(match)
        if self._inside:
            return match[4]
        # what ends a sentence doesn't belong to an address in it
        address = match[4].rstrip(".,;:!?)*_")
        return f'<a href="{address}" rel="noreferrer noopener">{address}</a>{match[4][len(address) :]}'


def _kept(tag: str, name: str, value: str) -> str | None:
    if name == "href":
        return value if _LINK.fullmatch(value) else None
    if name == "class" and re.fullmatch(r"[a-z0-9 ]{1,20}", value) is None:
        return None
    del tag
    return value


def _marked(match: re.Match[str]) -> str:
    return f'<mark class="gone" title="Redacted: {match[1]}, number {match[2]}">{match[0]}</mark>'
