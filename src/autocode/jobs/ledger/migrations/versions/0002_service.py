"""What the service needs: leaders, tokens and log-ins, keys of requests, retries from the start."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from autocode.jobs.ledger.types import Json, UtcTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("idempotency_key", sa.Text(), nullable=True))
    op.add_column("jobs", sa.Column("fresh_fence", sa.BigInteger(), nullable=True))
    op.create_index("ix_jobs_session_id", "jobs", ["session_id"], unique=False)
    op.create_index("uq_jobs_idempotency_key", "jobs", ["idempotency_key"], unique=True)
    op.add_column("memo", sa.Column("fence", sa.BigInteger(), server_default="0", nullable=False))
    op.create_table(
        "leaders",
        sa.Column("role", sa.String(length=64), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("renewals", sa.BigInteger(), nullable=False),
        sa.Column("since", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("role", name=op.f("pk_leaders")),
    )
    op.create_table(
        "tokens",
        sa.Column("token_id", sa.String(length=32), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("sessions", Json(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=True),
        sa.Column("revoked_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("token_id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
    )
    op.create_table(
        "logins",
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=False),
        sa.Column("used_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_logins")),
    )
