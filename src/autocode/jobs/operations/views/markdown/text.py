"""Text of a transcript into Markdown that stays what it was meant to be: no HTML, no fence left open."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

import orjson
from markdown_it import MarkdownIt

from autocode.jobs.operations.views.wording import plural, readable

__all__ = ["fenced", "front_matter", "inline", "prose"]

_TICKS: Final = re.compile(r"`{3,}")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_MEANT: Final = re.compile(r"([\\`*_{}\[\]<>#|~$^])")
# a tag, comment or entity that a renderer could take for HTML begins with one of these
_HTML: Final = re.compile(r"<(?=[A-Za-z/!?])|&(?=#?\w{1,32};)")
_CODE: Final = re.compile(r"(?<!`)(`{1,2})(?!`)([^`\n]{1,2000})\1(?!`)")
_LOADED: Final = re.compile(r"!(?=\[)")
# where an address can begin: in a link, in a definition of one, or on the line after either
_ACTIVE: Final = re.compile(
    r"(\]\(\s{0,9}|\]:\s{0,9}|^\s{0,9})(?=(?:javascript|vbscript|data|file)[\s\\]{0,9}:)", re.IGNORECASE
)
_SUSPECT: Final = re.compile(r"<[A-Za-z/!?]|!\[|(?:script|data|file)[\s\\]*+(?::|&)", re.IGNORECASE)
_PROGRAM: Final = re.compile(r"\s*+(?:javascript|vbscript|data|file)\s*+(?::|%3a)", re.IGNORECASE)
_HEAD: Final = 400
_HEAD_CHARACTERS: Final = 20_000


def inline(text: str) -> str:
    """Return *text* on one line, with every mark of Markdown and HTML made harmless."""
    return _MEANT.sub(r"\\\1", " ".join(readable(text).split()))


def prose(text: str) -> str:
    """Return Markdown that a person or a model wrote, fit to stand in a larger file.

    Headings become bold lines, so that the file's outline is its own; HTML outside code is shown instead of
    obeyed; images become links, links with an address that runs or holds a program lose it; a fence that was
    left open is closed. Where a parser of CommonMark still finds HTML, an image or such an address, the whole
    text is shown as code.
    """
    lines = []
    fence = ""
    for line in readable(text).split("\n"):
        mark = _FENCE.match(line)
        if fence:
            lines.append(line)
            if mark is not None and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif mark is not None and not (mark[1][0] == "`" and "`" in mark[2]):
            fence = mark[1]
            lines.append(line)
        else:
            lines.append(_harmless(_heading(line)))
    if fence:
        lines.append(fence)
    done = "\n".join(lines).strip("\n")
    return done if _is_harmless(done) else fenced(text, whole=True)


def _is_harmless(markdown: str) -> bool:
    """Ask a parser of CommonMark, which may see the end of code elsewhere than we do."""
    if not _SUSPECT.search(markdown):
        return True
    pending = list(_parser().parse(markdown))
    while pending:
        token = pending.pop()
        address = str(token.attrGet("href") or "")
        if token.type in {"html_block", "html_inline", "image"} or _PROGRAM.match(address):
            return False
        pending += token.children or ()
    return True


class _Candid(MarkdownIt):
    """Shows every address, also one that the library would hide."""

    def validateLink(self, url: str) -> bool:  # noqa: ARG002, N802 - the library's names
        """Accept *url*."""
        return True


@cache
def _parser() -> MarkdownIt:
    return _Candid("commonmark", {"html": True})


def fenced(text: str, language: str = "", *, whole: bool = False) -> str:
    """Return *text* as a code block whose fence is longer than any inside; the end of a long one is left out.

    Args:
        text: what to show.
        language: the fence's info string; used where it is a plain word.
        whole: leave nothing out.
    """
    text = readable(text).strip("\n")
    shown = text if whole else _cut(text)
    ticks = "`" * max([3, *(len(run) + 1 for run in _TICKS.findall(shown))])
    info = language if re.fullmatch(r"[\w+#.-]{1,30}", language) else ""
    block = f"{ticks}{info}\n{shown}\n{ticks}"
    if len(shown) < len(text):
        left = text[len(shown) :].lstrip("\n")
        lines, characters = left.count("\n") + 1, len(left)
        block += f"\n\n*{plural(lines, 'line')} ({plural(characters, 'character')}) more in the bundle.*"
    return block


def front_matter(facts: dict[str, Any]) -> str:
    """Return YAML front matter; values are JSON, which YAML 1.2 reads as it is."""
    lines = [
        f"{name}: {orjson.dumps(value).decode()}"
        for name, value in facts.items()
        if value not in (None, "", [])
    ]
    return "\n".join(["---", *lines, "---"])


def _cut(text: str) -> str:
    lines = text.split("\n", _HEAD)
    shown = "\n".join(lines[:_HEAD]) if len(lines) > _HEAD else text
    return shown[:_HEAD_CHARACTERS]


def _heading(line: str) -> str:
    bare = line.lstrip(" ")
    hashes = len(bare) - len(bare.lstrip("#"))
    if 1 <= hashes <= 6 and len(line) - len(bare) < 4 and bare[hashes : hashes + 1] in {" ", "\t", ""}:
        words = bare[hashes:].strip().rstrip("#").strip()
        return f"**{words}**" if words and "**" not in words else words
    if re.fullmatch(r" {0,3}(=+|-+) *", line):
        # under a paragraph it would make that a heading, and at the top of a file front matter
        return "***" if bare.startswith("---") else f"\\{bare}"
    return line


def _harmless(line: str) -> str:
    done = []
    at = 0
    for code in _CODE.finditer(line):
        done += [_outside(line[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*done, _outside(line[at:])])


def _outside(text: str) -> str:
    text = _HTML.sub(lambda match: "&lt;" if match[0] == "<" else "&amp;", text)
    # an image would be loaded by whoever opens the file
    text = _LOADED.sub("", text)
    return _ACTIVE.sub(r"\1unsafe:", text)
