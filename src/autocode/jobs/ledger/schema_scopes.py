"""The table by which a token for some sessions finds the jobs that it may see."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from autocode.jobs.ledger.schema import metadata

__all__ = ["job_sessions"]

job_sessions: Final = sa.Table(
    "job_sessions",
    metadata,
    sa.Column("job_id", sa.String(128), sa.ForeignKey("jobs.job_id"), primary_key=True),
    sa.Column("session_id", sa.Text, primary_key=True),
    sa.Index("ix_job_sessions_session_id", "session_id", "job_id"),
)
