"""What notifications need: subscriptions, and the deliveries that they lead to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from autocode.jobs.ledger.types import Json, UtcTime

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "subscriptions",
        sa.Column("subscription_id", sa.String(length=36), nullable=False),
        sa.Column("channel", sa.String(length=16), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=True),
        sa.Column("kind", sa.String(length=128), nullable=True),
        sa.Column("session_id", sa.Text(), nullable=True),
        sa.Column("events", Json(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("token_id", sa.String(length=32), nullable=True),
        sa.Column("sessions", Json(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("disabled_at", UtcTime(), nullable=True),
        sa.Column("disabled_why", sa.Text(), nullable=True),
        sa.Column("removed_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("subscription_id", name=op.f("pk_subscriptions")),
    )
    op.create_table(
        "deliveries",
        sa.Column("delivery_id", sa.String(length=36), nullable=False),
        sa.Column("subscription_id", sa.String(length=36), nullable=False),
        sa.Column("job_id", sa.String(length=128), nullable=True),
        sa.Column("cursor", sa.BigInteger(), nullable=True),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("rev", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("next_at", UtcTime(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("intent_at", UtcTime(), nullable=True),
        sa.Column("ended_at", UtcTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.subscription_id"],
            name=op.f("fk_deliveries_subscription_id"),
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name=op.f("fk_deliveries_job_id")),
        sa.PrimaryKeyConstraint("delivery_id", name=op.f("pk_deliveries")),
        sa.UniqueConstraint(
            "subscription_id", "job_id", "cursor", name=op.f("uq_deliveries_subscription_id_job_id_cursor")
        ),
    )
    op.create_index("ix_deliveries_job_id", "deliveries", ["job_id"], unique=False)
    op.create_index("ix_deliveries_created_at", "deliveries", ["created_at", "delivery_id"], unique=False)
    op.create_index(
        "ix_deliveries_open",
        "deliveries",
        ["subscription_id", "next_at"],
        unique=False,
        postgresql_where=sa.text("next_at IS NOT NULL"),
        sqlite_where=sa.text("next_at IS NOT NULL"),
    )
