r"""A pattern over text turned into a coarser one over the JSON that the text becomes.

A sieve matches in the encoded line wherever its pattern matches in a string of the record, and seldom
elsewhere. It is derived, not written by hand: each set of characters becomes the forms in which JSON may
write them (RFC 8259, section 7: ``"`` as ``\"``, a line feed as ``\n``, what lies outside ASCII raw or as
``\uXXXX``), look-arounds and anchors are dropped, long repetitions lose their upper bound. RE2 runs it.
"""

from __future__ import annotations

import re
from re import _constants as ops  # type: ignore[attr-defined, unused-ignore]  # the only parser of this syntax; tested on each Python
from re import _parser as parser  # type: ignore[attr-defined, unused-ignore]
from typing import Any, Final

__all__ = ["NOTHING_SAID", "entry_sieve", "field_sieve", "sieve_of"]

NOTHING_SAID: Final = ""
"""The sieve of a pattern that can't be translated: it matches everywhere, which is slow and safe."""

_SHORT: Final = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 92: r"\\"}
_FEW: Final = 8
_ENOUGH: Final = 48
_SPECIFIC: Final = 5
_ASCII: Final = frozenset(range(128))
_SPACE: Final = frozenset(b" \t\n\r\f\v")
_VERTICAL_TAB: Final = frozenset(b"\v")
_DIGIT: Final = frozenset(b"0123456789")
_WORD: Final = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")
_CATEGORIES: Final = {
    ops.CATEGORY_SPACE: (_SPACE, False),
    ops.CATEGORY_NOT_SPACE: (_ASCII - _SPACE, True),
    ops.CATEGORY_DIGIT: (_DIGIT, False),
    ops.CATEGORY_NOT_DIGIT: (_ASCII - _DIGIT, True),
    ops.CATEGORY_WORD: (_WORD, False),
    ops.CATEGORY_NOT_WORD: (_ASCII - _WORD, True),
}
_REPEATS: Final = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)
_WIDTHLESS: Final = (ops.AT, ops.ASSERT, ops.ASSERT_NOT)

_Chars = tuple[frozenset[int], bool]
"""The ASCII characters of a set, and whether it has any others."""


class _Untranslatable(Exception):
    pass


def sieve_of(pattern: str, *, re2: bool = False) -> str:
    r"""Return the sieve of *pattern*, in RE2's syntax over bytes, or :data:`NOTHING_SAID`.

    Args:
        pattern: in the syntax of :mod:`re`, read with ``re.ASCII``.
        re2: RE2 runs the pattern. Its ``(?i)`` reaches beyond ASCII (``k`` is the Kelvin sign, too), and its
            ``\s`` has no vertical tab.
    """
    return _translated(pattern, re2=re2, trim=True)


def field_sieve(field: str, shortest: int, *, re2: bool = False) -> str:
    """Return the sieve of a key that matches *field* before a string value.

    Args:
        field: pattern of the whole key.
        shortest: characters that the value has at least; it has no space.
        re2: as in :func:`sieve_of`.
    """
    # what a key may begin with besides doesn't matter: the sieve isn't tied to its start
    key = _translated(field, re2=re2, trim=False)
    value = rf'(?:[^\x00-\x20"\\]|\\[^\x00-\x20]){{{max(1, min(shortest, _ENOUGH))}}}'
    return f'(?:{key})":"{value}'


def entry_sieve(field: str, *, re2: bool = False) -> str:
    """Return the sieve of an object that has a name which matches *field* as its member ``name`` or ``key``.

    Where the value stands in the object is left open: before it, behind it, or with others between.

    Args:
        field: pattern of the whole name.
        re2: as in :func:`sieve_of`.
    """
    name = _translated(field, re2=re2, trim=False)
    return rf'"(?:[Nn]ame|[Kk]ey)":"(?:[^"\\]|\\.)*(?:{name})"'


def _translated(pattern: str, *, re2: bool, trim: bool) -> str:
    try:
        tree = parser.parse(pattern, re.ASCII)
        nodes = _beheaded(list(tree))
        if trim:
            nodes = _trimmed(nodes)
        return _Translator(re2=re2).sequence(nodes, fold=bool(tree.state.flags & re.IGNORECASE))
    except (_Untranslatable, RecursionError):
        return NOTHING_SAID


def _beheaded(nodes: list[Any]) -> list[Any]:
    """Drop what may match nothing from the front, and a run with which a match would begin anywhere.

    Less in front only widens a sieve; the automaton of a counted run at every place would be large.
    """
    while nodes and (
        _is_nullable(nodes[0]) or (nodes[0][0] in _REPEATS and sum(map(_width, nodes[1:])) >= _SPECIFIC)
    ):
        nodes = nodes[1:]
    return nodes


def _width(node: Any) -> int:
    op, value = node
    if op in _WIDTHLESS:
        return 0
    if op in _REPEATS:
        return int(value[0] * value[2].getwidth()[0])
    if op is ops.SUBPATTERN:
        return int(value[3].getwidth()[0])
    if op is ops.BRANCH:
        return min(int(branch.getwidth()[0]) for branch in value[1])
    return 1


def _trimmed(nodes: list[Any]) -> list[Any]:
    """Drop what may match nothing from the end: whoever asks only whether there is a match needs none."""
    while nodes and _is_nullable(nodes[-1]):
        nodes = nodes[:-1]
    if nodes and nodes[-1][0] in _REPEATS:
        op, (low, _high, inner) = nodes[-1]
        nodes[-1] = (op, (low, low, inner))
    elif nodes and nodes[-1][0] is ops.SUBPATTERN:
        op, (group, added, removed, inner) = nodes[-1]
        nodes[-1] = (op, (group, added, removed, _trimmed(list(inner))))
    return nodes


def _is_nullable(node: Any) -> bool:
    return _width(node) == 0


class _Translator:
    def __init__(self, *, re2: bool) -> None:
        self._re2 = re2

    def sequence(self, nodes: Any, *, fold: bool) -> str:
        return "".join(self._node(op, value, fold=fold) for op, value in nodes)

    def _node(self, op: Any, value: Any, *, fold: bool) -> str:
        if op in _WIDTHLESS:
            return ""
        if op in _REPEATS:
            return self._repeat(*value, fold=fold)
        if op is ops.SUBPATTERN:
            _group, added, removed, inner = value
            if (added | removed) & ~(re.IGNORECASE | re.DOTALL | re.ASCII | re.MULTILINE):
                raise _Untranslatable
            folds = (fold or bool(added & re.IGNORECASE)) and not removed & re.IGNORECASE
            return f"(?:{self.sequence(inner, fold=folds)})"
        if op is ops.BRANCH:
            branches = [self.sequence(branch, fold=fold) for branch in value[1]]
            return f"(?:{'|'.join(branches)})" if any(branches) else ""
        if op is ops.ATOMIC_GROUP:
            return f"(?:{self.sequence(value, fold=fold)})"
        return _encoded(self._chars(op, value, fold=fold))

    def _repeat(self, low: int, high: Any, inner: Any, *, fold: bool) -> str:
        text = f"(?:{self.sequence(inner, fold=fold)})"
        if low > _ENOUGH:
            return f"{text}{{{_ENOUGH}}}{text}*"
        if high is ops.MAXREPEAT or high > max(_FEW, low):
            return f"{text}{{{low}}}{text}*" if low else f"{text}*"
        return f"{text}{{{low},{high}}}"

    def _chars(self, op: Any, value: Any, *, fold: bool) -> _Chars:
        if op is ops.LITERAL:
            return self._folded(_one(value), fold=fold)
        if op is ops.NOT_LITERAL:
            chars, others = _one(value)
            return _negated((chars | _swapped(chars) if fold else chars, others))
        if op is ops.ANY:
            return _ASCII, True
        if op is ops.IN:
            return self._set(value, fold=fold)
        raise _Untranslatable

    def _set(self, members: Any, *, fold: bool) -> _Chars:
        chars: frozenset[int] = frozenset()
        others = False
        negate = False
        for op, value in members:
            if op is ops.NEGATE:
                negate = True
                continue
            if op is ops.RANGE:
                more = frozenset(range(value[0], min(value[1], 127) + 1)), value[1] > 127
            elif op is ops.CATEGORY and value in _CATEGORIES:
                more = self._category(value)
            elif op is ops.LITERAL:
                more = _one(value)
            else:
                raise _Untranslatable
            chars, others = chars | more[0], others or more[1]
        if negate:
            # of what is taken away, only what is so beyond doubt: a set may grow here, never shrink
            return _negated((chars | _swapped(chars) if fold else chars, others))
        return self._folded((chars, others), fold=fold)

    def _category(self, category: Any) -> _Chars:
        chars, others = _CATEGORIES[category]
        if self._re2 and category is ops.CATEGORY_SPACE:
            return chars - _VERTICAL_TAB, others
        if self._re2 and category is ops.CATEGORY_NOT_SPACE:
            return chars | _VERTICAL_TAB, others
        return chars, others

    def _folded(self, chars: _Chars, *, fold: bool) -> _Chars:
        if not fold:
            return chars
        both = chars[0] | _swapped(chars[0])
        others = chars[1] or (self._re2 and not both.isdisjoint(b"kKsS"))
        # A letter outside ASCII may stand for one inside it; that only ever widens a set.
        return (both | frozenset(b"kKsS") if self._re2 and chars[1] else both), others


def _swapped(chars: frozenset[int]) -> frozenset[int]:
    return frozenset(ord(chr(c).swapcase()) for c in chars)


def _one(code: int) -> _Chars:
    return (frozenset({code}), False) if code < 128 else (frozenset(), True)


def _negated(chars: _Chars) -> _Chars:
    return _ASCII - chars[0], True


def _encoded(chars: _Chars) -> str:
    """Return every form in which JSON may write one of *chars*."""
    ascii_chars, others = chars
    plain = sorted(c for c in ascii_chars if c >= 32 and c not in {34, 92})
    short = "".join(_SHORT[c] for c in sorted(ascii_chars) if c in _SHORT)
    forms = ["[" + "".join(_ranges(plain)) + "]"] if plain else []
    if short:
        forms.append(rf"\\[{short}]")
    if others:
        # one character may be several bytes, or two escapes
        forms += [r"[\x80-\xff]+", r"(?:\\u[0-9a-fA-F]{4})+"]
    elif any(c < 32 and c not in _SHORT for c in ascii_chars):
        forms.append(r"\\u00[01][0-9a-fA-F]")
    if 127 in ascii_chars and not others:
        forms.append(r"\\u007[fF]")
    if not forms:
        raise _Untranslatable
    if not others and len(ascii_chars) == 1 and chr(*ascii_chars).isalnum():
        return chr(*ascii_chars)
    return forms[0] if len(forms) == 1 else f"(?:{'|'.join(forms)})"


def _ranges(codes: list[int]) -> list[str]:
    parts: list[str] = []
    start = previous = codes[0]
    for code in [*codes[1:], 1 << 10]:
        if code != previous + 1:
            parts.append(_shown(start) if start == previous else f"{_shown(start)}-{_shown(previous)}")
            start = code
        previous = code
    return parts


def _shown(code: int) -> str:
    return chr(code) if chr(code).isalnum() else rf"\x{code:02x}"
