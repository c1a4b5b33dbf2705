"""The samples and the default policy together: what was planted is found, and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from autocode.jobs.redaction import DEFAULT_POLICY, Redactor
from autocode.jobs.testing.samples import write_samples


def records(data: bytes) -> list[Any]:
    """Return the JSON values on the lines of *data* that hold one each."""
    values: list[Any] = []
    for line in data.replace(b"\0", b"").split(b"\n"):
        try:
            values.append(json.loads(line))
        except ValueError:
            continue
    return values


def test_planted_secrets_are_replaced_and_nothing_else(tmp_path: Path) -> None:
    """Each planted secret is gone from every record; a file without any has no find."""
    samples = write_samples(tmp_path / "samples", seed=3, sessions=4, megabytes=0.5)

    for file in samples.files:
        planted = [secret.text for secret in samples.secrets if secret.relative == file.relative]
        redactor = Redactor(DEFAULT_POLICY)
        data = (samples.folder / file.relative).read_bytes()
        found = records(data) if file.tool != "gemini-cli" else [json.loads(data)]
        texts = [json.dumps(redactor.redact_record(seq, record)) for seq, record in enumerate(found)]

        assert not [text for text in texts for secret in planted if json.dumps(secret)[1:-1] in text]
        numbered = Counter((place.kind, place.n) for place in redactor.report.places)
        assert len(numbered) == len(planted)
        # Claude Code writes a tool's output twice: in the message and as its result.
        repeats = 2 if file.tool == "claude-code" else 1
        assert all(count >= repeats for count in numbered.values())
