"""Sample sessions for tests, lessons and the demo: invented, seeded, in the layouts that the tools use.

``python -m autocode.jobs.testing.samples FOLDER`` writes a set and prints what it planted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from autocode.jobs.errors import UsageError
from autocode.jobs.testing.fake_secrets import SECRETS, fake_secret
from autocode.jobs.testing.sample_layouts import ClaudeCode, Codex, Ticker, gemini_document, identifier
from autocode.jobs.testing.sample_story import Exchange, secret_exchange, story

__all__ = ["QUIRKS", "PlantedSecret", "SampleFile", "SampleSet", "main", "write_samples"]

QUIRKS: Final = (
    "glued-line", "truncated-line", "nul-padding", "lone-surrogate", "line-separator", "no-final-newline",
)  # fmt: skip
"""Damage and oddities that real files have; each is planted once, in a session of Claude Code."""

_CWD: Final = "/home/ada/src/parser"
_PROJECT: Final = "-home-ada-src-parser"
_TRUNCATED_AFTER: Final = 8


@dataclass(frozen=True, slots=True)
class PlantedSecret:
    """A fake secret: the file it is in, its form (see :data:`SECRETS`) and the text that must disappear."""

    relative: str
    form: str
    text: str


@dataclass(frozen=True, slots=True)
class SampleFile:
    """A written file.

    Args:
        relative: path below the folder, with ``/``.
        tool: the tool that writes such files.
        size: size in bytes.
        sha256: digest of its bytes, 64 hex digits.
        records: complete JSON records in it, glued ones counted one by one.
        damaged: spans that no reader can use.
        quirks: names from :data:`QUIRKS`.
    """

    relative: str
    tool: str
    size: int
    sha256: str
    records: int
    damaged: int
    quirks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SampleSet:
    """What :func:`write_samples` wrote and planted."""

    folder: Path
    files: tuple[SampleFile, ...]
    secrets: tuple[PlantedSecret, ...]

    def to_json(self) -> dict[str, Any]:
        """Return counts as a JSON object: files, bytes, records, damage, quirks by file, secrets by form."""
        return {
            "files": dict(sorted(Counter(file.tool for file in self.files).items())),
            "bytes": sum(file.size for file in self.files),
            "records": sum(file.records for file in self.files),
            "damaged": sum(file.damaged for file in self.files),
            "quirks": {quirk: file.relative for file in self.files for quirk in file.quirks},
            "secrets": dict(sorted(Counter(secret.form for secret in self.secrets).items())),
        }


@dataclass(slots=True)
class _Plan:
    """One file to write: who writes it, and what is planted in it."""

    relative: str
    tool: str
    rng: random.Random
    clock: Ticker
    session: str
    size: int
    forms: list[str] = field(default_factory=list)
    quirks: tuple[str, ...] = ()
    agent: str = ""


def write_samples(folder: Path, *, seed: int = 0, sessions: int = 6, megabytes: float = 1.0) -> SampleSet:
    """Write sample sessions below *folder* and return what was planted in them.

    The same arguments give the same bytes, names and modification times on every machine. Sessions are
    streamed, so memory doesn't grow with *megabytes*. Not atomic: files are written one by one.

    Args:
        folder: where to write; made if missing, must be empty otherwise.
        seed: the seed of everything that is drawn.
        sessions: sessions of Claude Code and Codex together, about two to one, at least 2; a session of
            Gemini CLI comes on top, and the first session of Claude Code has a subagent's file beside it.
        megabytes: about how much to write in all, in units of 1,000,000 bytes; every session has a few
            exchanges in any case.

    Raises:
        UsageError: *folder* holds something, or *sessions* or *megabytes* are out of range.
    """
    if sessions < 2 or not 0 <= megabytes <= 100_000:
        raise UsageError("samples need at least 2 sessions and 0 to 100,000 megabytes")
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UsageError(f"{folder} isn't empty", hint="Name a new folder: samples never overwrite files.")
    files: list[SampleFile] = []
    secrets: list[PlantedSecret] = []
    for plan in _plans(seed, sessions, int(megabytes * 1_000_000)):
        planted = [PlantedSecret(plan.relative, form, text) for form, _shape, text in _shapes(plan)]
        files.append(_write(folder, plan))
        secrets += planted
    return SampleSet(folder, tuple(files), tuple(secrets))


def _plans(seed: int, sessions: int, size: int) -> list[_Plan]:
    codex = max(1, sessions // 3)
    plans: list[_Plan] = []
    for number in range(sessions):
        rng = random.Random(f"{seed}/{number}")  # noqa: S311 - sample text, reproducible on purpose
        day, session = 5 + number % 20, identifier(rng)
        clock = Ticker(rng, day)
        if number < sessions - codex:
            relative, tool = f"claude-code/projects/{_PROJECT}/{session}.jsonl", "claude-code"
        else:
            stamp = clock()[:19].replace(":", "-")
            relative, tool = f"codex/sessions/2026/01/{day:02}/rollout-{stamp}-{session}.jsonl", "codex"
        plans.append(_Plan(relative, tool, rng, clock, session, size // sessions))
    for number, form in enumerate(SECRETS):
        plans[number % sessions].forms.append(form)
    claude = sessions - codex
    for number, quirk in enumerate(QUIRKS):
        plans[number % claude].quirks += (quirk,)
    return [*plans, _subagent(plans[0], seed), _gemini(seed)]


def _subagent(parent: _Plan, seed: int) -> _Plan:
    rng = random.Random(f"{seed}/subagent")  # noqa: S311 - sample text, reproducible on purpose
    parent.agent = f"a{rng.getrandbits(24):06x}"
    relative = parent.relative.removesuffix(".jsonl") + f"/subagents/agent-{parent.agent}.jsonl"
    return _Plan(relative, "claude-code", rng, Ticker(rng, 5), parent.session, 0, agent=parent.agent)


def _gemini(seed: int) -> _Plan:
    rng = random.Random(f"{seed}/gemini")  # noqa: S311 - sample text, reproducible on purpose
    session = identifier(rng)
    relative = f"gemini-cli/tmp/{rng.getrandbits(256):064x}/chats/session-2026-01-10T20-00-{session[:8]}.json"
    return _Plan(relative, "gemini-cli", rng, Ticker(rng, 10), session, 0)


def _shapes(plan: _Plan) -> list[tuple[str, str, str]]:
    """Return form, text in its surroundings and text of each secret of the plan; the same on each call."""
    return [
        (form, *fake_secret(form, random.Random(f"{plan.relative}/{form}")))  # noqa: S311 - fake on purpose
        for form in plan.forms
    ]


def _write(folder: Path, plan: _Plan) -> SampleFile:
    path = folder / plan.relative
    path.parent.mkdir(parents=True, exist_ok=True)
    tally = {"records": 0, "damaged": 0}
    digest, size = hashlib.sha256(), 0
    with path.open("xb") as stream:
        for piece in _document(plan, tally) if plan.tool == "gemini-cli" else _pieces(plan, tally):
            stream.write(piece)
            digest.update(piece)
            size += len(piece)
    path.chmod(0o600)
    os.utime(path, (plan.clock.seconds, plan.clock.seconds))
    return SampleFile(plan.relative, plan.tool, size, digest.hexdigest(), **tally, quirks=plan.quirks)


def _document(plan: _Plan, tally: dict[str, int]) -> Iterator[bytes]:
    tales = story(plan.rng, _CWD)
    document = gemini_document(plan.rng, plan.clock, plan.session, [next(tales), next(tales)])
    tally["records"] = 1
    yield json.dumps(document, indent=2).encode("ascii")


def _pieces(plan: _Plan, tally: dict[str, int]) -> Iterator[bytes]:
    """Yield the file's bytes; line ends are separate, so that quirks can leave them out."""
    lines = (_line(record) for record in _records(plan))
    pending = b""
    for number, line in enumerate(_until(lines, plan)):
        tally["records"] += 1
        if not (number == 6 and "glued-line" in plan.quirks):
            yield pending
        if number == 4 and "nul-padding" in plan.quirks:
            yield b"\0" * 311
        yield line
        pending = b"\n"
        if number == _TRUNCATED_AFTER and "truncated-line" in plan.quirks:
            tally["damaged"] += 1
            yield b"\n" + line[: len(line) // 2]
    if "no-final-newline" not in plan.quirks:
        yield pending


def _until(lines: Iterable[tuple[bytes, bool]], plan: _Plan) -> Iterator[bytes]:
    """Pass lines on until the planned size is reached, but never leave an exchange half told."""
    written = 0
    for line, is_end in lines:
        yield line
        written += len(line) + 1
        if is_end and written >= plan.size:
            return


def _line(item: tuple[dict[str, Any], bool]) -> tuple[bytes, bool]:
    record, is_end = item
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        text = json.dumps(record, separators=(",", ":"))
    return text.encode("utf-8"), is_end


def _records(plan: _Plan) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield records without end, each with whether the session may stop after it."""
    writer: ClaudeCode | Codex
    if plan.tool == "codex":
        writer = Codex(plan.rng, plan.clock, plan.session, _CWD)
    else:
        sidechain = plan.agent if "/subagents/" in plan.relative else ""
        writer = ClaudeCode(plan.rng, plan.clock, plan.session, _CWD, sidechain)
    for record in writer.opening():
        yield record, False
    for number, exchange in enumerate(_exchanges(plan)):
        records = list(writer.exchange(exchange))
        if (
            number == 0
            and plan.agent
            and isinstance(writer, ClaudeCode)
            and "/subagents/" not in plan.relative
        ):
            records += writer.handed_over(
                plan.agent, "Review the change to the scanner.", "The change is sound."
            )
        for record in records[:-1]:
            yield record, False
        yield records[-1], number >= 2


def _exchanges(plan: _Plan) -> Iterator[Exchange]:
    odd = {"lone-surrogate": " A stray byte: \udcb2.", "line-separator": " Two lines\u2028in one."}
    shapes = [shape for _form, shape, _text in _shapes(plan)]
    for number, exchange in enumerate(story(plan.rng, _CWD)):
        if number == 1:
            added = "".join(text for quirk, text in odd.items() if quirk in plan.quirks)
            yield replace(exchange, prompt=exchange.prompt + added)
            if shapes:
                yield secret_exchange(shapes, _CWD)
        else:
            yield exchange


def main(arguments: list[str] | None = None) -> None:
    """Write samples as the command line says and print what was planted, as JSON."""
    parser = argparse.ArgumentParser(prog="python -m autocode.jobs.testing.samples", description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder that is empty or doesn't exist")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sessions", type=int, default=6, help="at least 2")
    parser.add_argument("--megabytes", type=float, default=1.0, help="about how much to write in all")
    options = parser.parse_args(arguments)
    try:
        written = write_samples(
            options.folder, seed=options.seed, sessions=options.sessions, megabytes=options.megabytes
        )
    except UsageError as error:
        parser.error(f"{error.detail}. {error.hint}")
    print(json.dumps(written.to_json(), indent=2))  # noqa: T201 - the command's output


if __name__ == "__main__":
    main()
