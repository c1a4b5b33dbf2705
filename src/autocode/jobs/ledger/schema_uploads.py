"""The table of snapshots: which sets of uploaded objects have a name, and who may use it."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from autocode.jobs.ledger.schema import metadata
from autocode.jobs.ledger.types import UtcTime

__all__ = ["snapshots"]

# the same files make the same digest whoever sends them, and each sender's naming is a row of its own
snapshots: Final = sa.Table(
    "snapshots",
    metadata,
    sa.Column("digest", sa.String(71), sa.ForeignKey("objects.digest"), primary_key=True),
    sa.Column("owner", sa.String(32), primary_key=True),
    # empty where it belongs to no session: a key takes no NULL
    sa.Column("session_id", sa.Text, primary_key=True),
    sa.Column("created_at", UtcTime, nullable=False),
)
