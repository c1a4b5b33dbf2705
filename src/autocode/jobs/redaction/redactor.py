"""The redactor: walks the records of one session and replaces what the policy calls secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from autocode.jobs.errors import RedactionFailed
from autocode.jobs.redaction.gate import Gate, gate_of
from autocode.jobs.redaction.pieces import SCALARS, pieces_of
from autocode.jobs.redaction.policy import ENTRY_NAMES, ENTRY_VALUES, Policy, Rule, marker
from autocode.jobs.redaction.report import Place, RedactionReport
from autocode.jobs.redaction.scan import WINDOW, Span, find_spans

__all__ = ["Redactor"]

_REMEMBERED: Final = 64 * 1024 * 1024
_ROUNDS: Final = 16
_LONGEST_NAME: Final = 1024


class Redactor:
    """Applies a policy to the records of one session, in order.

    The number in a marker counts the different secrets of a kind in order of first appearance; the same
    secret gets the same number again. Secrets are held in memory for that, up to 64 Mi characters in all;
    later ones get a new number each time. Nothing of them is stored, hashed or logged. Not for several
    threads at once.

    Args:
        policy: the rules.
        window: characters that one search covers; it changes no output.
        state: what :meth:`state` gave behind the part before, where a session is redacted in parts. Numbers
            and report go on; since secrets aren't part of a state, one that occurs again gets a new number.
        found: told each place with the text that was replaced there; for a look at what rules find.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        window: int = WINDOW,
        state: Mapping[str, Any] | None = None,
        found: Callable[[Place, str], None] | None = None,
    ) -> None:
        self.policy = policy
        self.report = RedactionReport.from_json(state["report"]) if state else RedactionReport()
        self._found = found
        self._window = window
        self._gate = gate_of(policy)
        self._numbers: dict[tuple[str, str], int] = {}
        self._last: dict[str, int] = dict(state["numbers"]) if state else {}
        self._room = _REMEMBERED

    def suspects(self, lines: Sequence[bytes]) -> list[int]:
        """Return the indexes of the lines that may hold a secret; no other record would be changed.

        Args:
            lines: records, each encoded as one line of JSON without spaces between its parts, in UTF-8 or
                ASCII, as ``orjson.dumps`` and ``canonical_json`` write it.
        """
        return self._gate.suspects(lines)

    def redact_record(self, seq: int, record: Any) -> Any:
        """Return *record*, or a copy with its secrets replaced, and report them under number *seq*.

        Raises:
            RedactionFailed: a rule raised, or the record isn't made of JSON values; the detail names the
                rule and the record, never the text.
        """
        return self._redact(record, "", seq)

    def redact(self, value: Any, pointer_prefix: str = "") -> Any:
        """Return *value*, or a copy with its secrets replaced; *value* is not changed.

        Every string counts, object keys too, at any depth; other values are untouched. Running it on its
        own output changes nothing.

        Args:
            value: a JSON value as :func:`json.loads` makes it.
            pointer_prefix: JSON pointer of *value* in its document, for the report.

        Raises:
            RedactionFailed: as in :meth:`redact_record`; the record number is 0.
        """
        return self._redact(value, pointer_prefix, 0)

    def mask(self, value: Any) -> Any:
        """Return what :meth:`redact` does, without a word in the report: for copies that nobody is shown."""
        kept, self.report = self.report, RedactionReport()
        try:
            return self._redact(value, "", 0)
        finally:
            self.report = kept

    def state(self) -> dict[str, Any]:
        """Return what the next part needs: how far the numbers are, and the report. No secret is in it."""
        return {"numbers": dict(sorted(self._last.items())), "report": self.report.to_json()}

    def _redact(self, value: Any, prefix: str, seq: int) -> Any:
        try:
            if not any(self._gate.may_match(piece) for piece in pieces_of(value)):
                return value
            return _Walk(self, self._gate, seq).run(_copied(value), prefix)
        except RedactionFailed as failure:
            failed = failure
        raise RedactionFailed(f"record {seq}: {failed.detail}", record=seq, **failed.data)

    def clean(
        self, text: str, rules: tuple[Rule, ...], whole: tuple[Rule, ...], seq: int, pointer: str
    ) -> str:
        """Return *text* with its secrets replaced and reported; the walk's inner step.

        It looks again after each replacement: what a check refused beside a secret may pass without it.
        """

        def allowed(rule: Rule, value: str) -> bool:
            return self.policy.allows(rule, value, pointer)

        spans: list[Span] = []
        for _round in range(_ROUNDS):
            spans = find_spans(text, rules, window=self._window, whole=whole, allowed=allowed)
            if not spans:
                return text
            text = self._replaced(text, spans, seq, pointer)
        names = sorted({span.rule for span in spans})
        raise RedactionFailed(
            f"rule {names[0]!r} still finds something after {_ROUNDS} rounds", rule=names[0], cause="rounds"
        )

    def _replaced(self, text: str, spans: list[Span], seq: int, pointer: str) -> str:
        parts: list[str] = []
        done = 0
        for span in spans:
            secret = text[span.start : span.end]
            n = self._number(span.kind, secret)
            parts += (text[done : span.start], marker(span.kind, n))
            done = span.end
            place = Place(seq, pointer, span.kind, n, len(secret), span.rule)
            self.report.add(place)
            if self._found is not None:
                self._found(place, secret)
        parts.append(text[done:])
        return "".join(parts)

    def _number(self, kind: str, secret: str) -> int:
        known = self._numbers.get((kind, secret))
        if known is not None:
            return known
        n = self._last[kind] = self._last.get(kind, 0) + 1
        if len(secret) <= self._room:
            self._room -= len(secret)
            self._numbers[kind, secret] = n
        return n


class _Walk:
    """One pass over a record in document order."""

    def __init__(self, redactor: Redactor, gate: Gate, seq: int) -> None:
        self._redactor = redactor
        self._gate = gate
        self._seq = seq

    def run(self, copy: Any, prefix: str) -> Any:
        """Change *copy* (ours alone) in place and return it; a loop of its own, so depth costs no stack."""
        root = [copy]
        if isinstance(copy, str):
            return self._text(copy, prefix)
        stack: list[Iterator[tuple[str, Any]]] = [self._children(copy, prefix)]
        while stack:
            following = next(stack[-1], None)
            if following is None:
                stack.pop()
            else:
                pointer, child = following
                stack.append(self._children(child, pointer))
        return root[0]

    def _children(self, node: Any, pointer: str) -> Iterator[tuple[str, Any]]:
        """Replace the strings directly in *node*, yielding each container in its turn."""
        if isinstance(node, list):
            for index, item in enumerate(node):
                if isinstance(item, str):
                    node[index] = self._text(item, f"{pointer}/{index}")
                elif isinstance(item, (dict, list)):
                    yield f"{pointer}/{index}", item
        elif isinstance(node, dict):
            members = list(node.items())
            node.clear()
            taken = {key for key, _ in members}
            named = _entry_names(members)
            for key, item in members:
                name = self._key(key, pointer, taken)
                place = f"{pointer}/{_escaped(name)}"
                keys = (key, *named) if key in ENTRY_VALUES else (key,)
                node[name] = self._text(item, place, keys) if isinstance(item, str) else item
                if isinstance(item, (dict, list)):
                    yield place, item

    def _key(self, key: str, pointer: str, taken: set[str]) -> str:
        rules = self._candidates(key)
        if not rules:
            return key
        # The pointer of a redacted key is known only once it is redacted: report the object that holds it.
        name = self._redactor.clean(key, rules, (), self._seq, pointer)
        if name != key:
            base, count = name, 1
            while name in taken:
                count += 1
                name = f"{base} ({count})"
            taken.add(name)
        return name

    def _text(self, text: str, pointer: str, keys: tuple[str, ...] = ()) -> str:
        rules = self._candidates(dict.fromkeys(keys, text) if keys else text)
        if not rules:
            return text
        named = keys if " " not in text else ()
        whole = tuple(rule for rule in rules if any(rule.names(key) for key in named))
        return self._redactor.clean(text, rules, whole, self._seq, pointer)

    def _candidates(self, value: str | dict[str, str]) -> tuple[Rule, ...]:
        """Return the rules for a string, alone or with its key."""
        pieces = [self._gate.candidates(piece) for piece in pieces_of(value)]
        if len(pieces) == 1:
            return tuple(pieces[0])
        found = {id(rule) for piece in pieces for rule in piece}
        return tuple(rule for rule in self._redactor.policy.rules if id(rule) in found)


def _entry_names(members: list[tuple[str, Any]]) -> list[str]:
    return [
        item
        for key, item in members
        if key in ENTRY_NAMES and isinstance(item, str) and len(item) <= _LONGEST_NAME
    ]


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _copied(value: Any) -> Any:
    """Return a deep copy of a JSON value, without recursion."""
    root = [value]
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        for key, child in node.items() if node.__class__ is dict else enumerate(node):
            kind = child.__class__
            if kind is dict or kind is list:
                node[key] = mine = child.copy()
                stack.append(mine)
            elif kind is not str and kind not in SCALARS:
                raise RedactionFailed(
                    f"a value of type {kind.__name__} is no JSON value", cause=kind.__name__
                )
    return root[0]
