"""Code in colours, made when the page is written; within limits that keep a page light."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from autocode.jobs.operations.views.wording import readable

__all__ = ["Highlighter"]

_BLOCK: Final = 12_000
"""Characters of one block in colours; each token of them is an element of the page."""

_PAGE: Final = 240_000
"""Characters of a page in colours; what comes later is shown without."""


class Highlighter:
    """Colours the code of one page."""

    def __init__(self) -> None:
        self._left = _PAGE
        self._formatter: HtmlFormatter[str] = HtmlFormatter(nowrap=True)

    def code(self, text: str, language: str) -> Markup:
        """Return *text* for a ``<pre>``; in colours where *language* is known and the limits leave room."""
        text = readable(text)
        lexer = _lexer(language[:40]) if language else None
        if lexer is None or len(text) > min(_BLOCK, self._left):
            plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            return Markup(plain)  # noqa: S704 - escaped in the line above
        self._left -= len(text)
        html = highlight(text, lexer, self._formatter)
        # in an element, quotes mean nothing
        return Markup(html.replace("&quot;", '"').replace("&#39;", "'"))  # noqa: S704 - pygments escapes


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
