"""How aider, SWE-agent, mini-SWE-agent and OpenHands write a session down: one story each, invented."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Final

from autocode.jobs.testing.sample_story import Call, Exchange

__all__ = ["aider_history"]

_MODEL: Final = "claude-3-5-sonnet-20241022"


def aider_history(rng: random.Random, sessions: Iterable[Iterable[Exchange]], day: int = 5) -> bytes:
    """Return a chat history with one session after another, as aider appends them.

    Args:
        rng: where numbers come from.
        sessions: the exchanges of each session.
        day: day of January 2026 on which all of them began, in local time.
    """
    return "".join(
        piece
        for number, exchanges in enumerate(sessions)
        for piece in _aider_session(rng, exchanges, f"2026-01-{day:02} {9 + number % 12:02}:30:05")
    ).encode("utf-8", "surrogatepass")


def _aider_session(rng: random.Random, exchanges: Iterable[Exchange], began: str) -> Iterator[str]:
    yield f"\n# aider chat started at {began}\n\n"
    for line in (
        "/home/ada/.venv/bin/aider --model sonnet",
        "Aider v0.86.1",
        f"Main model: {_MODEL} with diff edit format, prompt cache",
        "Weak model: claude-3-5-haiku-20241022",
        "Git repo: .git with 42 files",
        "Repo-map: using 4096 tokens, auto refresh",
    ):
        yield _printed(line)
    spent = 0.0
    for exchange in exchanges:
        yield _typed(exchange.prompt)
        answer = exchange.thinking + "\n\n#### What I'll do\n\n> as small as possible\n\n"
        answer += "\n".join(_edited(call) for call in exchange.calls if call.name == "Edit")
        yield f"\n{answer}{exchange.reply}\n\n"
        sent, received, cost = rng.randint(900, 90_000), rng.randint(20, 2000), rng.randint(1, 90) / 100
        spent += cost
        yield _printed(
            f"Tokens: {_rounded(sent)} sent, {_rounded(received)} received. "
            f"Cost: ${cost:.2f} message, ${spent:.2f} session."
        )
        for call in exchange.calls:
            if call.name == "Edit":
                yield _printed(f"Applied edit to {call.inputs['file_path']}")
                yield _printed(f"Commit {rng.getrandbits(28):07x} fix: Mend the scanner")
            elif call.name == "Bash":
                yield _typed("/run " + call.inputs["command"])
                yield _printed(call.output)


def _typed(text: str) -> str:
    lines = "  \n#### ".join(text.splitlines() or ["<blank>"])
    return f"\n#### {lines}  \n"


def _printed(text: str) -> str:
    return f"> {text.strip()}  \n"


def _edited(call: Call) -> str:
    path, old, new = (call.inputs[name] for name in ("file_path", "old_string", "new_string"))
    return f"{path}\n```python\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```\n\n"


def _rounded(count: int) -> str:
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 10_000 else f"{round(count / 1000)}k"
