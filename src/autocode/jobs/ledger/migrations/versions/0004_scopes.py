"""Which sessions each job belongs to or reads, so that a token for some sessions sees no other job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_sessions",
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name=op.f("fk_job_sessions_job_id")),
        sa.PrimaryKeyConstraint("job_id", "session_id", name=op.f("pk_job_sessions")),
    )
    op.create_index("ix_job_sessions_session_id", "job_sessions", ["session_id", "job_id"], unique=False)
    op.execute(
        "INSERT INTO job_sessions (job_id, session_id)"
        " SELECT job_id, session_id FROM jobs WHERE session_id IS NOT NULL"
    )
    # no kind said yet what its payloads read, and "*" stands for everything
    op.execute(
        "INSERT INTO job_sessions (job_id, session_id)"
        " SELECT job_id, '*' FROM jobs WHERE session_id IS NOT NULL AND session_id <> '*'"
    )
