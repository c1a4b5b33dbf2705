"""Small whole sessions of every reader, and strategies that break them as crashes, tools and enemies do."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import strategies as st

from autocode.jobs.sessions import HEAD_BYTES, READERS, Reader, sniff
from autocode.jobs.testing.sample_documents import (
    atif_trajectory,
    chatgpt_conversation,
    claude_ai_conversation,
)
from autocode.jobs.testing.sample_layouts import Ticker, gemini_document
from autocode.jobs.testing.sample_story import Exchange, story
from autocode.jobs.testing.sample_texts import (
    aider_history,
    mini_swe_agent_run,
    openhands_events,
    openhands_output,
    swe_agent_run,
)
from autocode.jobs.testing.samples import write_samples

LONGEST = 12_000
"""Bytes of a seed: enough for every kind of record, few enough for thousands of examples."""

FILLERS = [b"\0", b"\0" * 7, b" ", b"\t\r", b"\xef\xbb\xbf", b"\n", b"\r\n", b"\n\n\n"]
SCRAPS = [
    b"{", b"}", b'"', b"\\", b"[", b"]", b",", b":", b"{}", b"[]", b"null", b"\xff", b"\xc3", b"\xe2\x80\xa8",
    b"\xed\xb2\x80", b'"\\ud800"', b"\\udcb2", b"NaN", b"1e999", b"-", b"9" * 30, b"9" * 400, b"```",
    b"\n~~~~\n", b"> ", b"> x  \n", b"#### ", b"\n#### y  \n",
    b"\n# aider chat started at 2026-01-05 10:00:00\n",
    b'{"a":' * 9, b"[" * 300, b'{"type":"user","message":{', b"</details>",
]  # fmt: skip


def own() -> list[bytes]:
    """Return sessions from the project's own builders."""
    rng = random.Random(7)
    clock = Ticker(rng, 5)
    tales = [[brief(tale) for tale in islice(story(rng, "/src/parser"), 2)] for _ in range(2)]
    with TemporaryDirectory() as folder:
        written = write_samples(Path(folder) / "samples", megabytes=0)
        files = [(written.folder / file.relative).read_bytes() for file in written.files]
    documents = [
        swe_agent_run(rng, tales[0][:1]),
        swe_agent_run(rng, tales[1][:1], functions=False),
        mini_swe_agent_run(rng, tales[0][:1]),
        mini_swe_agent_run(rng, tales[1])["messages"],
        openhands_events(rng, tales[0]),
        gemini_document(rng, clock, "s-1", tales[0]),
        [chatgpt_conversation(rng, clock, "t", tale) for tale in tales],
        claude_ai_conversation(rng, clock, "t", tales[0]),
        atif_trajectory(rng, clock, tales[0]),
    ]
    written_out = [json.dumps(document, indent=2).encode() for document in documents]
    return [*files, aider_history(rng, tales), *written_out, openhands_output(rng, tales)]


def brief(exchange: Exchange) -> Exchange:
    """Return an exchange whose tools say little."""
    return replace(exchange, calls=[replace(call, output=call.output[-160:]) for call in exchange.calls])


def real() -> list[bytes]:
    """Return the beginnings of real sessions, where there are any."""
    folder = os.environ.get("AUTOCODE_SAMPLES")
    paths = sorted(path for path in Path(folder).rglob("*") if path.is_file()) if folder else []
    heads = []
    for path in paths:
        with path.open("rb") as stream:
            heads.append(stream.read(HEAD_BYTES))
    return heads


@cache
def seeds() -> dict[str, list[bytes]]:
    """Return small sessions by the name of the reader that takes them."""
    found: dict[str, list[bytes]] = {reader.name: [] for reader in READERS}
    for data in [*own(), *real()]:
        reader = sniff(data[:HEAD_BYTES])
        if reader is not None and (seed := shortened(data, reader)):
            found[reader.name].append(seed)
    return found


def shortened(data: bytes, reader: Reader) -> bytes:
    """Return the beginning of *data* with short lines alone, or nothing where no reader knows it any more."""
    lines = [line for line in data.split(b"\n") if len(line) < LONGEST // 3]
    text = b""
    for line in lines:
        if len(text) + len(line) > LONGEST:
            break
        text += line + b"\n"
    found = sniff(text)
    if found is not None and found.name == reader.name:
        return text
    return data if len(data) <= LONGEST else b""


def cut(line: bytes, draw: st.DrawFn) -> bytes:
    """Leave the end of a line out, its newline too."""
    return line[: draw(st.integers(0, len(line)))]


def glue(line: bytes, draw: st.DrawFn) -> bytes:
    """Take the newline away."""
    return line.removesuffix(b"\n")


def pad(line: bytes, draw: st.DrawFn) -> bytes:
    """Put filling before, behind or into a line."""
    filler = draw(st.sampled_from(FILLERS))
    at = draw(st.sampled_from([0, len(line), len(line) // 2]))
    return line[:at] + filler + line[at:]


def nest(line: bytes, draw: st.DrawFn) -> bytes:
    """Put a line deep into objects or lists, closed again or not."""
    opening, closing = draw(st.sampled_from([(b'{"a":', b"}"), (b"[", b"]"), (b'{"a":[', b"]}")]))
    depth = draw(st.sampled_from([1, 2, 90, 199, 200, 201, 260]))
    return opening * depth + line.strip() + closing * draw(st.sampled_from([depth, depth - 1, 0])) + b"\n"


def repeat(line: bytes, draw: st.DrawFn) -> bytes:
    """Write a line several times."""
    return line * draw(st.integers(2, 4))


def splice(line: bytes, draw: st.DrawFn) -> bytes:
    """Put bytes that mean something, or anything, into a line, in place of some that were there."""
    scrap = draw(st.sampled_from(SCRAPS) | st.binary(min_size=1, max_size=6))
    at = draw(st.integers(0, len(line)))
    return line[:at] + scrap + line[at + draw(st.integers(0, 3)) :]


def wound(line: bytes, draw: st.DrawFn) -> bytes:
    """Change what stands behind a quote or a colon: strings, names and values alike."""
    mark = draw(st.sampled_from([b'"', b":", b": ", b" "]))
    places = [at for at in range(len(line)) if line.startswith(mark, at)][:400]
    if not places:
        return line
    at = draw(st.sampled_from(places)) + len(mark)
    return line[:at] + draw(st.sampled_from(SCRAPS)) + line[at:]


BREAKS: list[Callable[[bytes, st.DrawFn], bytes]] = [cut, glue, pad, nest, repeat, splice, wound]


@st.composite
def broken(draw: st.DrawFn, reader: Reader) -> bytes:
    """Draw a session of *reader* in which up to six lines are broken or swapped; sometimes it's whole."""
    data = draw(st.sampled_from(seeds()[reader.name]))
    lines = data.splitlines(keepends=True)
    first = draw(st.sampled_from([0, 0, 0, len(lines) // 2]))
    lines = lines[first : first + draw(st.sampled_from([3, 12, len(lines)]))]
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(lines) - 1))
        if draw(st.booleans()):
            lines[at] = draw(st.sampled_from(BREAKS))(lines[at], draw)
        else:
            other = draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
    return b"".join(lines)
