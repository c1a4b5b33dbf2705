"""The redactor: walks the records of one session and replaces what the policy calls secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from autocode.jobs.errors import RedactionFailed
from autocode.jobs.redaction.gate import Gate
from autocode.jobs.redaction.policy import Policy, Rule, marker
from autocode.jobs.redaction.report import Place, RedactionReport
from autocode.jobs.redaction.scan import WINDOW, Span, find_spans

__all__ = ["Redactor"]

_SCALARS: Final = frozenset({int, float, bool, type(None)})
_REMEMBERED: Final = 64 * 1024 * 1024
_ROUNDS: Final = 16


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
    """

    def __init__(
        self, policy: Policy, *, window: int = WINDOW, state: Mapping[str, Any] | None = None
    ) -> None:
        self.policy = policy
        self.report = RedactionReport.from_json(state["report"]) if state else RedactionReport()
        self._window = window
        self._gate = Gate(policy.rules)
        self._numbers: dict[tuple[str, str], int] = {}
        self._last: dict[str, int] = dict(state["numbers"]) if state else {}
        self._room = _REMEMBERED

    def redact_record(self, seq: int, record: Any) -> Any:
        """Return a copy of *record* with its secrets replaced, and report them under number *seq*.

        Raises:
            RedactionFailed: a rule raised, or the record isn't made of JSON values; the detail names the
                rule and the record, never the text.
        """
        return self._redact(record, "", seq)

    def redact(self, value: Any, pointer_prefix: str = "") -> Any:
        """Return a copy of the JSON value *value* with its secrets replaced; *value* is not changed.

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
            copy, keys, texts = _copied(value)
            rules = self._gate.candidates(_joined(keys, texts))
            if not rules:
                return copy
            return _Walk(self, rules, seq).run(copy, prefix)
        except RedactionFailed as failure:
            failed = failure
        raise RedactionFailed(f"record {seq}: {failed.detail}", record=seq, **failed.data)

    def clean(
        self, text: str, rules: tuple[Rule, ...], whole: tuple[Rule, ...], seq: int, pointer: str
    ) -> str:
        """Return *text* with its secrets replaced and reported; the walk's inner step.

        It looks again after each replacement: what a check refused beside a secret may pass without it.
        """
        for _round in range(_ROUNDS):
            spans = find_spans(text, rules, window=self._window, whole=whole)
            if not spans:
                return text
            text = self._replaced(text, spans, seq, pointer)
        raise RedactionFailed(f"a text did not settle in {_ROUNDS} rounds", cause="rounds")

    def _replaced(self, text: str, spans: list[Span], seq: int, pointer: str) -> str:
        parts: list[str] = []
        done = 0
        for span in spans:
            secret = text[span.start : span.end]
            n = self._number(span.kind, secret)
            parts += (text[done : span.start], marker(span.kind, n))
            done = span.end
            self.report.add(Place(seq, pointer, span.kind, n, len(secret)))
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
    """One pass over a record in document order; *rules* are those that its text as a whole called for."""

    def __init__(self, redactor: Redactor, rules: tuple[Rule, ...], seq: int) -> None:
        self._redactor = redactor
        self._rules = rules
        self._gate = Gate(rules) if len(rules) > 1 else None
        self._fields = tuple(rule for rule in rules if rule.field)
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
            for key, item in members:
                name = self._key(key, pointer, taken)
                place = f"{pointer}/{_escaped(name)}"
                node[name] = self._text(item, place, key) if isinstance(item, str) else item
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

    def _text(self, text: str, pointer: str, key: str = "") -> str:
        whole = tuple(rule for rule in self._fields if _names(rule, key)) if key and " " not in text else ()
        rules = self._candidates(text)
        if whole:
            rules = tuple(rule for rule in self._rules if rule in rules or rule in whole)
        return self._redactor.clean(text, rules, whole, self._seq, pointer) if rules else text

    def _candidates(self, text: str) -> tuple[Rule, ...]:
        return self._gate.candidates(text) if self._gate is not None else self._rules


def _names(rule: Rule, key: str) -> bool:
    return rule.compiled_field is not None and rule.compiled_field.fullmatch(key) is not None


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _copied(value: Any) -> tuple[Any, list[str], list[str]]:
    """Return a deep copy of a JSON value, its object keys and its other strings, without recursion."""
    root = [value]
    keys: list[str] = []
    texts: list[str] = []
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        if node.__class__ is dict:
            keys.extend(node)
        for key, child in node.items() if node.__class__ is dict else enumerate(node):
            kind = child.__class__
            if kind is str:
                texts.append(child)
            elif kind is dict or kind is list:
                node[key] = mine = child.copy()
                stack.append(mine)
            elif kind not in _SCALARS:
                raise RedactionFailed(
                    f"a value of type {kind.__name__} is no JSON value", cause=kind.__name__
                )
    return root[0], keys, texts


def _joined(keys: list[str], texts: list[str]) -> str:
    """Return all strings as one text; a key reads like a name that is assigned to, which it is."""
    try:
        return "=\n".join([*keys, ""]) + "\n".join(texts)
    except TypeError:
        failed = RedactionFailed("an object key is no string", cause="TypeError")
    raise failed
