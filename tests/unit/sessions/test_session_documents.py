"""What holds for every reader of documents, whatever the document."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocode.jobs.errors import UsageError
from autocode.jobs.sessions import HEAD_BYTES, READERS, Reader, sniff
from autocode.jobs.testing.sample_documents import write_documents
from unit.sessions.session_documents import read_document

DOCUMENTS = [reader for reader in READERS if reader.name in {"gemini-cli", "chatgpt", "claude-ai", "atif"}]
EVERY = pytest.mark.parametrize("reader", DOCUMENTS, ids=lambda reader: reader.name)
MARK = "a mark that nothing else has"
MARKS: list[Any] = [MARK, {"a": MARK}, [MARK], {MARK: 1}, [{"type": "text", "text": MARK}], 717171717171]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bytes]]:
    """Sample documents by the name of their reader."""
    found: dict[str, list[bytes]] = {reader.name: [] for reader in DOCUMENTS}
    for path in write_documents(tmp_path_factory.mktemp("documents")).values():
        reader = sniff(path.read_bytes()[:HEAD_BYTES])
        assert reader is not None
        if path.suffix == ".json":
            found[reader.name].append(path.read_bytes())
    return found


def planted(value: Any, rng: random.Random, mark: Any) -> Any:
    """Return *value* with *mark* somewhere in it: in place of a value, behind it or under a new name."""
    if not isinstance(value, dict | list) or rng.random() < 0.1:
        return mark
    if isinstance(value, list):
        at = rng.randrange(len(value) + 1)
        return [*value[:at], planted(value[at], rng, mark) if at < len(value) else mark, *value[at + 1 :]]
    if not value or rng.random() < 0.15:
        return {**value, "new": mark}
    name = rng.choice(list(value))
    return {**value, name: planted(value[name], rng, mark)}


@EVERY
@given(seed=st.integers(0, 1 << 40), mark=st.sampled_from(MARKS))
def test_nothing_valid_is_dropped_unseen(
    reader: Reader, documents: dict[str, list[bytes]], seed: int, mark: Any
) -> None:
    """Whatever stands wherever in a document is in a record or in the report."""
    rng = random.Random(seed)
    document = json.loads(rng.choice(documents[reader.name]))
    inner = rng.choice(list(document)) if isinstance(document, dict) else rng.randrange(len(document))
    document[inner] = planted(document[inner], rng, mark)

    records, report = read_document(document, reader)

    told = json.dumps([records, report.to_json()])
    assert (str(mark) if isinstance(mark, int) else MARK) in told


BREAKS = st.tuples(
    st.floats(0, 1),
    st.integers(0, 300),
    st.sampled_from(
        [b"", b'"', b"}", b"]", b"{", b"[", b"\0\0", b"\\", b",", b"\n", b":", b"\xff", b'{"a":1}', b"NaN"]
    ),
)


@EVERY
@given(
    draw=st.randoms(use_true_random=False),
    breaks=st.lists(BREAKS, max_size=4),
    indent=st.sampled_from([None, 2]),
)
def test_no_byte_of_a_broken_document_is_lost(
    reader: Reader,
    documents: dict[str, list[bytes]],
    draw: random.Random,
    breaks: list[Any],
    indent: int | None,
) -> None:
    """A broken document raises nothing, and each of its bytes is a record's, damaged, or padding."""
    data = json.dumps(json.loads(draw.choice(documents[reader.name])), indent=indent).encode()
    for place, length, put in breaks:
        at = int(place * len(data))
        data = data[:at] + put + data[at + length :]

    records, _ = read_document(data, reader)

    assert records[0]["type"] == "session"


@EVERY
@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"null", b"7", b"[[1]]", b'{"a": 1}', b"[{}, 5]", b"\xff\xfe", b"\0"]
)
def test_any_other_document_gives_an_empty_session(reader: Reader, data: bytes) -> None:
    """A reader that is given something else tells a session of which nothing is known, and what there is."""
    records, _ = read_document(data, reader)

    assert (records[0]["type"], records[0]["session_id"], records[0]["title"]) == ("session", None, None)


@EVERY
def test_a_document_has_no_parts(reader: Reader) -> None:
    """It is read whole: no state is given or taken."""
    reading = reader.read(io.BytesIO(b"{}"))
    list(reading)

    with pytest.raises(UsageError, match="one document"):
        reading.state()
    with pytest.raises(UsageError, match="one document"):
        reader.read(io.BytesIO(b"{}"), b"{}")


def test_a_long_session_is_told_while_it_is_read(tmp_path: Path) -> None:
    """The first records come when a small part of the document was read."""
    message = {"id": "m", "type": "user", "timestamp": "2026-01-10T20:00:21Z", "content": "x" * 5000}
    whole = json.dumps({"sessionId": "s", "projectHash": "p", "messages": [message] * 2000}).encode()
    stream = io.BytesIO(whole)
    reader = next(each for each in READERS if each.name == "gemini-cli")

    records = reader.read(stream)
    first = [next(records) for _ in range(3)]

    assert [record["type"] for record in first] == ["session", "message", "message"]
    assert stream.tell() <= 2 * 1024 * 1024 < len(whole)
