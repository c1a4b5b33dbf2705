"""What is said in the sample sessions: somebody mends a small parser with an agent, exchange by exchange."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Call", "Exchange", "secret_exchange", "story"]

_TOPICS: Final = (
    "string literals", "nested comments", "unary minus", "hex numbers", "trailing commas", "raw strings",
    "operator precedence", "error recovery", "line continuations", "unicode names", "empty blocks",
    "byte order marks",
)  # fmt: skip
_VERBS: Final = ("accept", "reject", "report", "skip", "fold", "split", "rewind", "collect")
_PROMPTS: Final = (
    "The parser fails on {topic}. Find out why and mend it.",
    "Add a test for {topic}, please, then make it pass.",
    "{topic} are slow in big files: measure first, then change as little as possible.",
    "Why does the parser {verb} {topic}? Don't change anything yet.",
    "Refactor how we {verb} {topic}; the tests must stay green.",
)
_THOUGHTS: Final = (
    "The scanner decides about {topic} before the parser sees them, so the cause is likely in the scanner.",
    "I should read the module first. If we {verb} too early, the position is off by one.",
    "A test that fails today comes first; otherwise I can't show that {topic} work afterwards.",
)
_REPLIES: Final = (
    "Done: {topic} are handled in `{name}`, and the new test covers the case from the report.",
    "The cause was in `{name}`: it did {verb} {topic} one character too late. All tests pass now.",
    "Nothing is changed. `{name}` is where we {verb} {topic}; I'd start with a test there.",
)
_LINES: Final = (
    "    if self.peek() == {quote}{mark}{quote}:",
    "        self.advance({n})",
    "    start = self.position + {n}",
    "    while not self.at_end() and self.peek() != {quote}{mark}{quote}:",
    "        self.{verb}(start, kind={n})",
    "    # {topic}: the position is that of the first character",
    "    return Node({quote}{verb}{quote}, start, self.position)",
    "    raise ParseError(f{quote}line {{self.line}}: can't {verb} {topic}{quote})",
    "",
)


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call and what came back: ``Read``, ``Edit`` or ``Bash``."""

    name: str
    inputs: dict[str, str]
    output: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Exchange:
    """A prompt and everything until the agent's last word on it."""

    prompt: str
    thinking: str
    calls: list[Call] = field(default_factory=list)
    reply: str = ""


def story(rng: random.Random, cwd: str) -> Iterator[Exchange]:
    """Yield exchanges without end; the same state of *rng* gives the same story."""
    while True:
        topic, verb = rng.choice(_TOPICS), rng.choice(_VERBS)
        name = f"{verb}_{topic.replace(' ', '_')}"
        path = f"{cwd}/src/parser/{name}.py"
        words = {"topic": topic, "verb": verb, "name": name}
        code = _code(rng, words, rng.randint(8, 120))
        old, new = code[1], code[1] + "  # mended"
        numbered = "\n".join(f"{number:6}\u2192{line}" for number, line in enumerate(code, 1))
        failed = rng.random() < 0.3
        yield Exchange(
            rng.choice(_PROMPTS).format(**words),
            rng.choice(_THOUGHTS).format(**words),
            [
                Call("Read", {"file_path": path}, numbered),
                Call(
                    "Edit",
                    {"file_path": path, "old_string": old, "new_string": new},
                    f"{path} has been updated.",
                ),
                Call(
                    "Bash",
                    {"command": f"pytest -q tests/test_{name}.py"},
                    _test_run(rng, name, failed=failed),
                    failed,
                ),
            ],
            rng.choice(_REPLIES).format(**words),
        )


def secret_exchange(shapes: list[str], cwd: str) -> Exchange:
    """Return an exchange in whose tool output *shapes* appear, as secrets do: nobody asked for them."""
    listing = "\n".join(["# local settings, not committed", "DEBUG=1", *shapes, "LANG=C.UTF-8"])
    return Exchange(
        "The deployment can't reach its services. What does it get from the environment?",
        "The settings file is the quickest way to see what the process gets.",
        [
            Call(
                "Bash",
                {"command": f"cat {cwd}/.env.local", "description": "Show the local settings"},
                listing,
            )
        ],
        f"It sets {len(shapes)} credentials. The first one reads:\n\n    {shapes[0]}\n\nIs it still valid?",
    )


def _code(rng: random.Random, words: dict[str, str], size: int) -> list[str]:
    lines = [f"def {words['name']}(self) -> Node:", f'    """{words["verb"].title()} {words["topic"]}."""']
    for _ in range(size):
        line = rng.choice(_LINES)
        lines.append(line.format(**words, quote='"', mark=rng.choice("(){}[];,'#é→"), n=rng.randint(1, 400)))
    return lines


def _test_run(rng: random.Random, name: str, *, failed: bool) -> str:
    count, seconds = rng.randint(1, 40), rng.randint(1, 300) / 100
    if not failed:
        return f"\x1b[32m{count} passed\x1b[0m in {seconds:.2f}s"
    return (
        f"    def test_{name}():\n>       assert parse(text) == expected\n"
        f"E       AssertionError: position {count}\n"
        f"\x1b[31m1 failed, {count} passed\x1b[0m in {seconds:.2f}s"
    )
