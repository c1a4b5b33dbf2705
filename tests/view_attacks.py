"""Texts that try to be more than text, and a parser that says what a page would do."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Final
from urllib.parse import urlsplit

__all__ = ["ATTACKS", "Page"]

ATTACKS: Final = (
    "<script>window.ran=1</script>",
    "</script><script>window.ran=1</script>",
    "</style></title></textarea><script>window.ran=1</script>",
    "<img src=x onerror=window.ran=1>",
    "<svg/onload=window.ran=1>",
    "<svg><animate onbegin=window.ran=1 attributeName=x></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.ran=1>",
    "<iframe srcdoc='<script>parent.ran=1</script>'></iframe>",
    "<object data='data:text/html,<script>window.ran=1</script>'></object>",
    "<link rel=stylesheet href=https://attack.invalid/x.css>",
    "<meta http-equiv=refresh content='0;url=https://attack.invalid/'>",
    "<base href=https://attack.invalid/>",
    "<form action=https://attack.invalid/><button>press</button></form>",
    "<a href=javascript:window.ran=1>press</a>",
    "[press](javascript:window.ran=1)",
    "[press](JaVaScRiPt:window.ran=1)",
    "[press](java&#115;cript:window.ran=1)",
    "[press](\njavascript:window.ran=1)",
    "[press](javascript\\:window.ran=1)",
    "[press](data:text/html,<script>window.ran=1</script>)",
    "[press](vbscript:window.ran=1)",
    "[press](file:///etc/passwd)",
    "[press][1]\n\n[1]: javascript:window.ran=1",
    "<javascript:window.ran=1>",
    "![alt](https://attack.invalid/pixel.png)",
    '![alt](x.png "title\' onerror=window.ran=1")',
    "![<img src=x onerror=window.ran=1>](https://attack.invalid/a.png)",
    '[a](https://example.org/"onmouseover=window.ran=1)',
    "[a](https://example.org/?q=[REDACTED:jwt:1])",
    "```html\n<script>window.ran=1</script>\n```",
    '```"><script>window.ran=1</script>\ncode\n```',
    "`<script>window.ran=1</script>`",
    "    <script>window.ran=1</script>",
    "<!-- --><script>window.ran=1</script><!-- -->",
    "<!--><script>window.ran=1</script>-->",
    "<![CDATA[<script>window.ran=1</script>]]>",
    "<?php echo 1 ?><script>window.ran=1</script>",
    "{{ 7 * 7 }}{% raw %}<script>window.ran=1</script>",
    "\x00<scr\x00ipt>window.ran=1</script>",
    "\u202e<script>window.ran=1</script>",
    "\x1b]8;;javascript:window.ran=1\x07press\x1b]8;;\x07",
    "</pre></div></details></article><script>window.ran=1</script>",
    '" onmouseover="window.ran=1" x="',
    "' autofocus onfocus='window.ran=1",
    "| a |\n|---|\n| <img src=x onerror=window.ran=1> |",
    "# <script>window.ran=1</script>",
    "> <script>window.ran=1</script>",
    "~~<script>window.ran=1</script>~~",
    "[REDACTED:<script>window.ran=1</script>:1]",
    "&lt;script&gt;window.ran=1&lt;/script&gt;",
)

_TAGS: Final = frozenset(
    {
        "a",
        "article",
        "b",
        "blockquote",
        "body",
        "br",
        "button",
        "caption",
        "code",
        "dd",
        "del",
        "details",
        "dialog",
    }
    | {
        "div",
        "dl",
        "dt",
        "em",
        "form",
        "h1",
        "h2",
        "h3",
        "head",
        "header",
        "hr",
        "html",
        "img",
        "input",
        "ins",
        "kbd",
    }
    | {
        "label",
        "li",
        "main",
        "mark",
        "meta",
        "nav",
        "ol",
        "option",
        "output",
        "p",
        "pre",
        "s",
        "script",
        "section",
    }
    | {
        "select",
        "small",
        "span",
        "strong",
        "style",
        "summary",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "time",
        "title",
    }
    | {"tr", "ul"}
)


class Page(HTMLParser):
    """What stands in a page: its ids, links, sources, scripts and text, and all that is forbidden in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.scripts: list[str] = []
        self.forbidden: list[str] = []
        self._pieces: list[str] = []
        self._raw = ""
        self.feed(text)

    @property
    def text(self) -> str:
        """The text of the page, without scripts and style."""
        return "".join(self._pieces)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of an element."""
        values = dict(attrs)
        if tag not in _TAGS:
            self.forbidden.append(f"<{tag}>")
        self.forbidden += [
            name for name in values if name.startswith("on") or name in {"style", "srcset", "action"}
        ]
        if tag == "meta" and (values.get("http-equiv") or "").casefold() == "refresh":
            self.forbidden.append("refresh")
        self.ids += [values["id"] or ""] if "id" in values else []
        if "href" in values:
            self._link(values["href"] or "")
        if "src" in values:
            self.sources.append(values["src"] or "")
        self._raw = tag if tag in {"script", "style"} else ""
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, _tag: str) -> None:
        """Leave a script or a style."""
        self._raw = ""

    def handle_data(self, data: str) -> None:
        """Take note of text."""
        if self._raw == "script":
            self.scripts[-1] += data
        elif not self._raw:
            self._pieces.append(data)

    def _link(self, address: str) -> None:
        self.links.append(address)
        if urlsplit(address).scheme not in {"", "http", "https", "mailto"}:
            self.forbidden.append(address)
