"""What the default policy finds where there is nothing to find: finds by rule, and how many are false alarms.

    python -m bench.redaction [FOLDER ...]

Without folders: the real transcripts that AUTOCODE_SAMPLES names, and the source of Python's own standard
library, whose code and tests are full of words about passwords. Each find is looked up in
``redaction_labels.json``, where a person has judged it: ``credential``, ``example`` (a credential in form,
invented for a test or a page) or ``false`` (none at all). The list holds digests, no text. What nobody has
judged yet is counted as such; ``--unjudged`` prints where it is.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from autocode.jobs.redaction import DEFAULT_POLICY, Place, Redactor, digest_of_value
from autocode.jobs.sessions import HEAD_BYTES, sniff

say = Console(highlight=False, markup=False, soft_wrap=True).print
LABELS = Path(__file__).with_name("redaction_labels.json")
TEXT = {".cfg", ".html", ".js", ".md", ".py", ".pyi", ".rst", ".sh", ".toml", ".ts", ".txt", ".yaml"}
SESSIONS = {".json", ".jsonl", ".md", ".traj"}
LARGEST = 1 << 23
JUDGEMENTS = ("credential", "example", "false", "unjudged")


def main() -> None:
    """Print a table for each folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--unjudged", action="store_true")
    asked = parser.parse_args()
    labels: dict[str, str] = json.loads(LABELS.read_text("utf-8"))
    for folder in asked.folders or usual():
        measure(folder, labels, unjudged=asked.unjudged)


def usual() -> list[Path]:
    """Return the samples, where there are any, and the standard library."""
    samples = os.environ.get("AUTOCODE_SAMPLES")
    return [*([Path(samples)] if samples else []), Path(sysconfig.get_paths()["stdlib"])]


def measure(folder: Path, labels: dict[str, str], *, unjudged: bool) -> None:
    """Redact everything below *folder* and print what was found."""
    Redactor(DEFAULT_POLICY).suspects([b"{}"])
    finds: Counter[tuple[str, str]] = Counter()
    different: set[tuple[str, str]] = set()
    size = lines = suspects = files = 0
    seconds = 0.0
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or "site-packages" in path.relative_to(folder).parts:
            continue

        def found(place: Place, value: str, path: Path = path) -> None:
            judged = labels.get(digest_of_value(value), "unjudged")
            finds[place.rule, judged] += 1
            different.add((digest_of_value(value), judged))
            if unjudged and judged == "unjudged":
                say(f"{path}: {place.rule} in record {place.record} at {place.pointer}")

        redactor = Redactor(DEFAULT_POLICY, found=found)
        records = list(records_of(path))
        encoded = [encode(record) for record in records]
        begin = time.perf_counter()
        hits = redactor.suspects(encoded)
        seconds += time.perf_counter() - begin
        for number, record in enumerate(records):
            redactor.redact_record(number, record)
        files += bool(records)
        size += sum(map(len, encoded))
        lines += len(encoded)
        suspects += len(hits)
    show(folder.name, size / 1e6, finds, Counter(judged for _, judged in different))
    speed = size / 1e6 / seconds
    say(f"{files:,} files, {lines:,} records; the gate let {suspects:,} through, at {speed:.0f} MB/s\n")


def show(name: str, megabytes: float, finds: Counter[tuple[str, str]], different: Counter[str]) -> None:
    """Print the table of one folder."""
    rules = sorted({rule for rule, _ in finds})
    say(f"{name}, {megabytes:.1f} MB, policy {DEFAULT_POLICY.digest[:19]}")
    say(f"{'rule':24}{'per MB':>9}" + "".join(f"{each:>12}" for each in JUDGEMENTS))
    for rule in rules:
        counts = [finds[rule, each] for each in JUDGEMENTS]
        say(f"{rule:24}{sum(counts) / megabytes:9.3f}" + "".join(f"{count:12}" for count in counts))
    totals = [sum(finds[rule, each] for rule in rules) for each in JUDGEMENTS]
    say(f"{'all':24}{sum(totals) / megabytes:9.3f}" + "".join(f"{count:12}" for count in totals))
    say(f"{'different texts':33}" + "".join(f"{different[each]:12}" for each in JUDGEMENTS))
    alarms = totals[2]
    # with none seen, three in all is the upper end of a 95 % interval
    told = f"{alarms / megabytes:.3f}" if alarms else f"none; at most {3 / megabytes:.2f} (95 %)"
    say(f"false alarms per MB: {told}")


def records_of(path: Path) -> Iterator[Any]:
    """Yield the records of a session, the elements of a JSON file, or a text as one record."""
    if path.suffix not in TEXT | SESSIONS or path.stat().st_size > LARGEST:
        return
    data = path.read_bytes()
    reader = sniff(data[:HEAD_BYTES]) if path.suffix in SESSIONS else None
    if reader is not None:
        yield from reader.read(io.BufferedReader(io.BytesIO(data)))
    elif path.suffix in SESSIONS and path.suffix != ".md":
        with suppress(ValueError):
            value = json.loads(data)
            yield from value if isinstance(value, list) else [value]
    else:
        yield {"text": data.decode("utf-8", "replace")}


def encode(record: Any) -> bytes:
    """Return a record as an export writes it; with escapes where it holds lone surrogates."""
    try:
        return orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return json.dumps(record, separators=(",", ":")).encode("ascii")


if __name__ == "__main__":
    main()
