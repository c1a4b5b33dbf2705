"""The description that Datasette shows with the SQLite file: titles, meanings, units, queries."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from autocode.jobs.operations.views.sqlite_schema import SQL_VIEWS
from autocode.jobs.operations.views.tables import TABLES, Kind

__all__ = ["QUERIES", "metadata"]

QUERIES: Final[dict[str, dict[str, str]]] = {
    "search_everything": {
        "title": "Search everything",
        "description": "Messages, thinking, tool inputs and results; the best match first. "
        'Words are joined by AND; "several words" in quotes are a phrase; a* finds what begins so.',
        "sql": """SELECT s.title, s.project, r.at, r.type, coalesce(m.role, r.name) AS who,
  snippet(search, 0, '→ ', ' ←', ' … ', 24) AS found, r.session, r.record
FROM search
JOIN records AS r ON r.record = search.rowid
JOIN sessions AS s USING (session)
LEFT JOIN messages AS m ON m.record = r.record
WHERE search MATCH :words
ORDER BY rank LIMIT 100""",
    },
    "one_session": {
        "title": "One session as it went",
        "description": "Every record of a session in order; long texts are cut.",
        "sql": "SELECT * FROM timeline WHERE session = :session",
    },
    "calls_of_a_tool": {
        "title": "Calls of a tool",
        "description": "The newest calls of one tool, such as Bash or Read, with input and result.",
        "sql": """SELECT c.at, s.project, c.duration_ms, c.is_error, c.input,
  substr(c.output, 1, 2000) AS output, c.record
FROM tool_calls AS c JOIN sessions AS s USING (session)
WHERE c.name = :tool ORDER BY c.at DESC LIMIT 200""",
    },
    "errors_by_tool_and_project": {
        "title": "Errors by tool and project",
        "description": "Where tools fail: calls, failures and the rate of those whose tool says so.",
        "sql": """SELECT c.name, s.project, count(*) AS calls, sum(c.is_error) AS errors,
  round(1.0 * sum(c.is_error) / count(c.is_error), 4) AS error_rate
FROM tool_calls AS c JOIN sessions AS s USING (session)
WHERE c.name IS NOT NULL GROUP BY 1, 2 HAVING errors > 0 ORDER BY errors DESC""",
    },
    "agents_of_a_session": {
        "title": "Subagents with their sessions",
        "description": "Transcripts of subagents beside the session that started them.",
        "sql": """SELECT p.session, p.title, a.session AS agent_session, a.agent_id, a.first_at, a.duration_s,
  a.messages, a.tool_calls, a.output_tokens
FROM sessions AS a
LEFT JOIN sessions AS p ON p.session_id = a.parent_session_id AND p.agent_id IS NULL
WHERE a.agent_id IS NOT NULL ORDER BY p.session, a.first_at""",
    },
}
"""Queries with a page of their own; words that begin with a colon become fields to fill in."""

# Datasette lists the meanings above the rows: all of them would fill the screen. The others are in the schema
# that each page shows at its end.
_WORTH_SAYING: Final = re.compile(r";|null|second|byte|token|character")
_FACETS: Final = {
    "sessions": ["tool", "project"],
    "records": ["type"],
    "messages": ["type", "role", "model"],
    "tool_calls": ["name", "is_error"],
    "usage": ["model"],
    "losses": ["name"],
    "damage": ["reason"],
    "redactions": ["kind"],
}
_SORTED: Final = {"sessions": ("sort_desc", "first_at"), "usage": ("sort_desc", "at")}
_LABELS: Final = {"sessions": "title", "sources": "path", "records": "type"}
_SEARCHED: Final = ("records", "messages", "tool_calls", "timeline")


def metadata(digest: str, database: str) -> bytes:
    """Return ``metadata.json`` for the file *database* (its name without the ending) of the export *digest*.

    The form is that of Datasette's metadata (docs.datasette.io, "Metadata"), which version 1.0 still reads.
    """
    tables: dict[str, Any] = {}
    for table in TABLES.values():
        about: dict[str, Any] = {
            "title": table.name.replace("_", " ").capitalize(),
            "description": table.about,
            "columns": {
                column.name: _told(column.about, column.kind)
                for column in table.columns
                if _WORTH_SAYING.search(column.about)
            },
        }
        about |= {"facets": _FACETS[table.name]} if table.name in _FACETS else {}
        about |= {"label_column": _LABELS[table.name]} if table.name in _LABELS else {}
        if table.name in _SORTED:
            how, column = _SORTED[table.name]
            about[how] = column
        tables[table.name] = about
    for view in SQL_VIEWS:
        tables[view.name] = {"title": view.name.replace("_", " ").capitalize(), "description": view.about}
        worth = {name: about for name, about in view.columns.items() if _WORTH_SAYING.search(about)}
        tables[view.name]["columns"] = worth
    tables["texts"] = {"hidden": True}
    for name in _SEARCHED:
        tables[name] |= {"fts_table": "search", "fts_pk": "record"}
    described = {
        "title": "Sessions of coding agents",
        "description": f"The export {digest}.",
        "databases": {
            database: {
                "title": "Sessions of coding agents",
                "description": f"The export {digest}; what is in it is described at each table.",
                "tables": tables,
                "queries": QUERIES,
            }
        },
    }
    return (json.dumps(described, indent=1, ensure_ascii=False) + "\n").encode()


def _told(about: str, kind: Kind) -> str:
    if kind is Kind.FLAG:
        return f"{about}; 1 is true"
    return f"{about}, in UTC" if kind is Kind.TIME else about
