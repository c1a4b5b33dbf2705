"""Column types that mean the same on SQLite and PostgreSQL. Frozen migrations use them: change none."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from autocode.jobs.canonical import canonical_json

__all__ = ["Json", "UtcTime"]


class UtcTime(TypeDecorator[datetime]):
    """An aware UTC time in whole milliseconds: ``timestamptz`` on PostgreSQL, sortable ISO text on SQLite."""

    impl = sa.String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose the column type for *dialect*."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.DateTime(timezone=True))
        return dialect.type_descriptor(sa.String(32))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Refuse naive times; write UTC, cut to whole milliseconds."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("the ledger takes aware times only")
        moment = value.astimezone(UTC)
        if dialect.name == "postgresql":
            return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        return moment.isoformat(timespec="milliseconds")

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - signature is SQLAlchemy's
        """Read back an aware UTC time."""
        if value is None:
            return None
        moment: datetime = datetime.fromisoformat(value) if isinstance(value, str) else value
        return moment.astimezone(UTC)


class Json(TypeDecorator[Any]):
    """A JSON value as canonical ASCII text: the same on both databases, and safe for lone surrogates."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 - signature is SQLAlchemy's
        """Write canonical JSON."""
        return None if value is None else canonical_json(value).decode("ascii")

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002 - signature is SQLAlchemy's
        """Parse the text."""
        return None if value is None else json.loads(value)
