"""What the SQLite file of an export is made of: tables, an index, and views that answer questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autocode.jobs.operations.views.tables import TABLES, Column, Kind, Table

__all__ = ["APPLICATION_ID", "SEARCH", "SQL_VIEWS", "SqlView", "index_statements", "table_statement"]

APPLICATION_ID: Final = 0x41436A62
"""``PRAGMA application_id`` of these files: the letters ACjb."""

_TYPES: Final = {
    Kind.INTEGER: "INTEGER",
    Kind.REAL: "REAL",
    Kind.TEXT: "TEXT",
    Kind.WORD: "TEXT",
    Kind.TIME: "TEXT",
    Kind.FLAG: "INTEGER",
    Kind.JSON: "TEXT",
}


@dataclass(frozen=True, slots=True)
class SqlView:
    """A view inside the SQLite file.

    Args:
        name: its name.
        about: the question that it answers.
        sql: the query.
        columns: what the columns that aren't a table's mean.
    """

    name: str
    about: str
    sql: str
    columns: dict[str, str]


SEARCH: Final = (
    # of an input's JSON without its escapes, or the n of a newline would stick to the word behind it;
    # json_tree would do better, but FTS5 takes no virtual table as content
    r"""CREATE VIEW texts AS
SELECT record, text FROM messages
UNION ALL
SELECT record,
  coalesce(name, '') || char(10)
  || coalesce(replace(replace(replace(replace(input, '\\', ' '), '\n', char(10)), '\t', ' '), '\r', ' '), '')
  || char(10) || coalesce(output, '') AS text
FROM tool_calls""",
    """CREATE VIRTUAL TABLE search USING fts5(
  text, content='texts', content_rowid='record', tokenize="unicode61 remove_diacritics 2 tokenchars '_'"
)""",
)
"""The full-text index: one over all that was said, called and answered; its rowid is the record."""

_TOKENS: Final = """sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
  sum(cache_read_tokens) AS cache_read_tokens, sum(cache_write_tokens) AS cache_write_tokens,
  sum(cost_usd) AS cost_usd"""

SQL_VIEWS: Final = (
    SqlView(
        "tokens_by_day",
        "Tokens per day (UTC) and model.",
        f"""SELECT date(at) AS day, model, count(*) AS messages, {_TOKENS}
FROM usage GROUP BY 1, 2 ORDER BY 1, 2""",  # noqa: S608 - no value in it
        {"day": "day in UTC; null: the time isn't known", "messages": "messages with counts"},
    ),
    SqlView(
        "tokens_by_model",
        "Tokens per model.",
        f"""SELECT model, count(*) AS messages, {_TOKENS}
FROM usage GROUP BY 1 ORDER BY output_tokens DESC, 1""",  # noqa: S608 - no value in it
        {"messages": "messages with counts"},
    ),
    SqlView(
        "tools",
        "How often each tool was called, failed, and how long it took.",
        """WITH ranked AS (
  SELECT name, is_error, duration_ms, result_record,
    row_number() OVER (PARTITION BY name, duration_ms IS NULL ORDER BY duration_ms) AS place,
    count(duration_ms) OVER (PARTITION BY name) AS timed
  FROM tool_calls WHERE name IS NOT NULL
)
SELECT name, count(*) AS calls, coalesce(sum(is_error), 0) AS errors,
  round(1.0 * sum(is_error) / count(is_error), 4) AS error_rate,
  sum(result_record IS NULL) AS unanswered,
  max(CASE WHEN place = (timed + 1) / 2 THEN duration_ms END) AS median_ms,
  max(CASE WHEN place = (timed * 19 + 19) / 20 THEN duration_ms END) AS p95_ms,
  max(duration_ms) AS max_ms, sum(duration_ms) AS total_ms
FROM ranked GROUP BY name ORDER BY calls DESC, name""",
        {
            "calls": "calls",
            "errors": "calls that failed",
            "error_rate": "failed calls per call whose tool says so; null: it never says",
            "unanswered": "calls without a result",
            "median_ms": "milliseconds: half of the calls took no longer",
            "p95_ms": "milliseconds: 95 of 100 calls took no longer",
            "max_ms": "milliseconds of the slowest call",
            "total_ms": "milliseconds of all calls together",
        },
    ),
    SqlView(
        "slowest_calls",
        "Tool calls, the slowest first.",
        """SELECT c.duration_ms, c.name, s.project, s.title, c.at, c.is_error,
  substr(c.input, 1, 200) AS input, c.session, c.record
FROM tool_calls AS c JOIN sessions AS s USING (session)
WHERE c.duration_ms IS NOT NULL ORDER BY c.duration_ms DESC, c.record""",
        {"input": "beginning of the input"},
    ),
    SqlView(
        "tool_errors",
        "Tool calls that failed, the newest first.",
        """SELECT c.at, c.name, s.project, substr(c.input, 1, 200) AS input,
  substr(c.output, 1, 400) AS output, c.session, c.record
FROM tool_calls AS c JOIN sessions AS s USING (session)
WHERE c.is_error ORDER BY c.at DESC, c.record""",
        {"input": "beginning of the input", "output": "beginning of the result"},
    ),
    SqlView(
        "projects",
        "Sessions and tokens per project folder.",
        f"""SELECT project, count(*) AS sessions, sum(agent_id IS NOT NULL) AS agents,
  min(first_at) AS first_at, max(last_at) AS last_at,
  sum(messages) AS messages, sum(tool_calls) AS tool_calls, {_TOKENS}
FROM sessions GROUP BY project ORDER BY last_at DESC, project""",  # noqa: S608 - no value in it
        {"sessions": "sessions, transcripts of subagents included", "agents": "transcripts of subagents"},
    ),
    SqlView(
        "timeline",
        "A session as it went: filter by session.",
        """SELECT r.session, r.seq, r.at, r.type, coalesce(m.role, r.name) AS who,
  substr(coalesce(m.text, c.input, o.output, r.data), 1, 500) AS text, r.record
FROM records AS r
LEFT JOIN messages AS m ON m.record = r.record
LEFT JOIN tool_calls AS c ON c.record = r.record AND r.type = 'tool_call'
LEFT JOIN tool_calls AS o ON o.result_record = r.record
ORDER BY r.record""",
        {"who": "the role, or the name of the tool or the event", "text": "its first 500 characters"},
    ),
)
"""The common questions, as views of the file."""


def table_statement(table: Table) -> str:
    """Return the statement that makes *table*; each column's meaning is a comment in it."""
    rowid = len(table.key) == 1 and _column(table, table.key[0]).kind is Kind.INTEGER
    lines = [f"CREATE TABLE {table.name} (", f"  -- {table.about}"]
    rows: list[tuple[str, str]] = []
    for column in table.columns:
        text = f"{column.name} {_TYPES[column.kind]}"
        if rowid and column.name == table.key[0]:
            text += " PRIMARY KEY"
        if column.references is not None and (column.references, (column.name,)) != (table.name, table.key):
            # the column's name is needed: Datasette fails where it isn't said
            text += f" REFERENCES {column.references} ({TABLES[column.references].key[0]})"
        rows.append((text, column.about))
    if table.key and not rowid:
        rows.append((f"PRIMARY KEY ({', '.join(table.key)})", ""))
    for number, (text, about) in enumerate(rows, 1):
        comma = "," if number < len(rows) else ""
        lines.append(f"  {text}{comma}" + (f" -- {about}" if about else ""))
    return "\n".join([*lines, ")"])


def index_statements() -> list[str]:
    """Return the statements that make the indexes, which is done when the rows are there."""
    return [
        f"CREATE INDEX {table.name}_{column.name} ON {table.name} ({column.name})"
        for table in TABLES.values()
        for column in table.columns
        if column.index and (column.name,) != table.key[:1]
    ]


def _column(table: Table, name: str) -> Column:
    return next(column for column in table.columns if column.name == name)
