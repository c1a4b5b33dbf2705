"""The tables that an export can be looked at as: one description for all that shows them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from autocode.jobs.errors import UsageError

__all__ = ["SCHEMA_VERSION", "TABLES", "Column", "Kind", "Table", "table_named"]

SCHEMA_VERSION: Final = 1
"""Grows when a query written for the last version would fail or mean something else."""


class Kind(StrEnum):
    """What a column holds; each writer has its own type for it."""

    INTEGER = "integer"
    REAL = "real"
    TEXT = "text"
    WORD = "word"
    """Text of which there are few different ones."""
    TIME = "time"
    FLAG = "flag"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Args:
        name: its name.
        kind: what it holds.
        about: what it means, with its unit, as half a sentence.
        references: the table whose key it holds.
        index: whether queries look rows up by it.
    """

    name: str
    kind: Kind
    about: str
    references: str | None = None
    index: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Args:
        name: its name.
        about: what a row stands for.
        columns: in their order.
        key: the columns that tell rows apart; empty where nothing does.
        of_records: whether its rows are made from the records, so that all of them must be read.
    """

    name: str
    about: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    of_records: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in order."""
        return tuple(column.name for column in self.columns)


def _integer(name: str, about: str, references: str | None = None, *, index: bool = False) -> Column:
    return Column(name, Kind.INTEGER, about, references, index or references is not None)


def _text(name: str, about: str, *, index: bool = False) -> Column:
    return Column(name, Kind.TEXT, about, index=index)


def _word(name: str, about: str, *, index: bool = False) -> Column:
    return Column(name, Kind.WORD, about, index=index)


def _time(name: str, about: str, *, index: bool = False) -> Column:
    return Column(name, Kind.TIME, about, index=index)


def _json(name: str, about: str) -> Column:
    return Column(name, Kind.JSON, about)


def _flag(name: str, about: str) -> Column:
    return Column(name, Kind.FLAG, about)


_SESSION: Final = _integer("session", "the session", "sessions")
_SOURCE: Final = _integer("source", "the source", "sources")
_MODEL: Final = "the model, where the source names one"
_TOKENS: Final = (
    _integer("input_tokens", "tokens that were neither read from nor written to a cache"),
    _integer("output_tokens", "tokens that the model wrote"),
    _integer("cache_read_tokens", "tokens read from a cache"),
    _integer("cache_write_tokens", "tokens written to a cache"),
    Column("cost_usd", Kind.REAL, "what the tool says that it cost, in US dollars; null: it doesn't say"),
)
_ATTACHMENTS: Final = "images, documents and other parts that aren't text; not copied here"

_ALL: Final = (
    Table(
        "bundle",
        "The export itself: one row.",
        (
            _text("digest", "identity of the export"),
            _word("format", "format of its manifest"),
            _word("policy", "name of the redaction policy; null: nothing was redacted"),
            _integer("policy_revision", "revision of the policy"),
            _text("policy_digest", "digest of the policy"),
            _integer("members", "files of the bundle"),
            _integer("member_bytes", "bytes of these files"),
            _json("left_out", "how many things could not be taken, by reason"),
        ),
        key=("digest",),
    ),
    Table(
        "sources",
        "A file that was exported.",
        (
            _integer("source", "number of the source in this export, from 1"),
            _text("path", "path of its members in the bundle, without their endings"),
            _text("sha256", "digest of the original file"),
            _integer("bytes", "size of the original file in bytes"),
            _word("reader", "who read it; null: only its raw bytes were kept"),
            _integer("revision", "revision of the reader"),
            _integer("records", "records that were read"),
            _integer("lost", "things that the normal form has no place for"),
            _integer("damaged", "spans that could not be read"),
            _integer("damaged_bytes", "bytes in these spans"),
            _integer("redacted", "secrets that were replaced"),
        ),
        key=("source",),
    ),
    Table(
        "sessions",
        "A session, or the transcript of a subagent. What it counts is counted from its records.",
        (
            _integer("session", "number of the session in this export, from 1"),
            _SOURCE,
            _word("tool", "the tool that wrote it", index=True),
            _text("session_id", "the tool's own id", index=True),
            _text("agent_id", "id of the subagent whose transcript it is"),
            _text("parent_session_id", "the session that it was forked from or belongs to", index=True),
            _text("title", "the title, where it has one"),
            _word("project", "the folder that the agent worked in", index=True),
            _word("git_branch", "the branch in it"),
            _word("tool_version", "version of the tool"),
            _word("model_provider", "who serves the model"),
            _json("models", "names of the models, sorted"),
            _time("first_at", "earliest time in it, as in the report", index=True),
            _time("last_at", "latest time in it"),
            Column("duration_s", Kind.REAL, "seconds from first_at to last_at, pauses included"),
            _integer("records", "records"),
            _integer("messages", "message records; a tool that streams writes a message several times"),
            _integer("tool_calls", "tool calls"),
            _integer("tool_errors", "tool calls that failed, as the tool says"),
            *_TOKENS,
        ),
        key=("session",),
        of_records=True,
    ),
    Table(
        "records",
        "A record of the normal form; its text is in messages or tool_calls.",
        (
            _integer("record", "number of the record in this export, from 1"),
            _SESSION,
            _integer("seq", "position in its source, from 0"),
            _text("id", "id in its source"),
            _word("type", "type of the record", index=True),
            _word("name", "name of the event or the tool", index=True),
            _time("at", "time", index=True),
            _text("parent", "the record that it follows, in the tool's own id"),
            _flag("sidechain", "whether it is on a side chain"),
            _word("model", _MODEL),
            _text("message_id", "the provider's id of the message"),
            _text("request_id", "the provider's id of the request"),
            _word("stop_reason", "why the model stopped"),
            _integer("source_offset", "position of the object in the original file, in bytes"),
            _integer("source_length", "length of the object in bytes"),
            _json("data", "fields that have no column in any table, attachments excepted"),
        ),
        key=("record",),
        of_records=True,
    ),
    Table(
        "messages",
        "What was said: messages, thinking, summaries, compactions.",
        (
            _integer("record", "the record", "records"),
            _SESSION,
            _word("type", "message, thinking, summary or compaction", index=True),
            _word("role", "user, assistant, system or developer; null for summaries and compactions"),
            _time("at", "time", index=True),
            _word("model", _MODEL),
            _flag("sidechain", "whether it is on a side chain"),
            _integer("chars", "length of the text in characters"),
            _integer("attachments", _ATTACHMENTS),
            _text("text", "the text"),
        ),
        key=("record",),
        of_records=True,
    ),
    Table(
        "tool_calls",
        "A tool call with its result. A result whose call isn't known has a row without a name.",
        (
            _integer("record", "the record of the call; of the result where no call is known", "records"),
            _SESSION,
            _word("name", "name of the tool", index=True),
            _time("at", "time of the call", index=True),
            _integer("duration_ms", "milliseconds from the call to its result, approval included"),
            _flag("is_error", "whether it failed; null: the tool doesn't say, or there is no result"),
            _integer("result_record", "the record of the result; null: there is none", "records"),
            _time("result_at", "time of the result"),
            _text("call_id", "the tool's own id of the call"),
            _word("model", _MODEL),
            _flag("sidechain", "whether it is on a side chain"),
            _integer("input_chars", "length of the input in characters"),
            _integer("output_chars", "length of the output in characters"),
            _integer("attachments", _ATTACHMENTS),
            _json("input", "the input"),
            _text("output", "the text of the result"),
        ),
        key=("record",),
        of_records=True,
    ),
    Table(
        "usage",
        "Tokens of one message; of several records about it the last one counts. "
        "What a tool tells only for the session as a whole is at the session's own record.",
        (
            _integer("record", "the record that counts", "records"),
            _SESSION,
            _time("at", "time", index=True),
            _word("model", _MODEL, index=True),
            *_TOKENS,
        ),
        key=("record",),
        of_records=True,
    ),
    Table(
        "losses",
        "What the normal form has no place for.",
        (
            _SOURCE,
            _word("name", "what was lost", index=True),
            _integer("count", "how often"),
        ),
        key=("source", "name"),
    ),
    Table(
        "damage",
        "A span of a source that could not be read; the first 1,000 of each source.",
        (
            _SOURCE,
            _integer("offset", "position of its first byte"),
            _integer("length", "its length in bytes"),
            _word("reason", "what is wrong with it"),
            _text("sha256", "digest of its bytes"),
        ),
        key=("source", "offset"),
    ),
    Table(
        "redactions",
        "A place where a secret was replaced; the first 10,000 of each source.",
        (
            _SOURCE,
            _integer("record", "the record; null: it was in the report, such as in the title", "records"),
            _text("pointer", "where in the record, as a JSON pointer"),
            _word("kind", "kind of secret", index=True),
            _integer("number", "which of its kind in the source, from 1; equal secrets are equal"),
            _integer("length", "length of the secret in characters"),
        ),
    ),
    Table(
        "redaction_counts",
        "How many secrets were replaced, all of them.",
        (
            _SOURCE,
            _word("kind", "kind of secret", index=True),
            _integer("count", "how many were replaced"),
        ),
        key=("source", "kind"),
    ),
    Table(
        "unread",
        "A file that no reader understands and that was not exported.",
        (
            _text("sha256", "digest of the file"),
            _word("kind", "what it looks like"),
            _integer("bytes", "its size in bytes"),
        ),
    ),
)

TABLES: Final = MappingProxyType({table.name: table for table in _ALL})
"""Every table by its name, in the order in which they are shown."""


def table_named(name: str) -> Table:
    """Return the table *name*.

    Raises:
        UsageError: there is none of that name.
    """
    table = TABLES.get(name)
    if table is None:
        raise UsageError(f"There is no table {name!r}.", hint=f"The tables are: {', '.join(TABLES)}.")
    return table
