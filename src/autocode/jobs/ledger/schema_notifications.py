"""The tables of notifications: who wants to be told of which endings, and what was told to whom."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from autocode.jobs.ledger.schema import metadata
from autocode.jobs.ledger.types import Json, UtcTime

__all__ = ["deliveries", "subscriptions"]

subscriptions: Final = sa.Table(
    "subscriptions",
    metadata,
    sa.Column("subscription_id", sa.String(36), primary_key=True),
    sa.Column("channel", sa.String(16), nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    # what signs a webhook has to be known as it is; removed with the subscription
    sa.Column("secret", sa.Text),
    sa.Column("kind", sa.String(128)),
    sa.Column("session_id", sa.Text),
    sa.Column("events", Json, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    # the token of the owner, whose end is the subscription's; nothing for a command on the data folder
    sa.Column("token_id", sa.String(32)),
    # the sessions whose jobs the owner may see; nothing: all
    sa.Column("sessions", Json),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("disabled_at", UtcTime),
    sa.Column("disabled_why", sa.Text),
    sa.Column("removed_at", UtcTime),
)

deliveries: Final = sa.Table(
    "deliveries",
    metadata,
    sa.Column("delivery_id", sa.String(36), primary_key=True),
    sa.Column(
        "subscription_id",
        sa.String(36),
        sa.ForeignKey("subscriptions.subscription_id"),
        nullable=False,
    ),
    # a test is about no job and no event
    sa.Column("job_id", sa.String(128), sa.ForeignKey("jobs.job_id")),
    sa.Column("cursor", sa.BigInteger),
    sa.Column("type", sa.String(32), nullable=False),
    sa.Column("rev", sa.BigInteger),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("next_at", UtcTime),
    sa.Column("last_error", sa.Text),
    sa.Column("intent_at", UtcTime),
    sa.Column("ended_at", UtcTime),
    sa.UniqueConstraint("subscription_id", "job_id", "cursor"),
    sa.Index("ix_deliveries_job_id", "job_id"),
    sa.Index("ix_deliveries_created_at", "created_at", "delivery_id"),
)

# finds what is due among all that was ever sent
sa.Index(
    "ix_deliveries_open",
    deliveries.c.subscription_id,
    deliveries.c.next_at,
    postgresql_where=deliveries.c.next_at.is_not(None),
    sqlite_where=deliveries.c.next_at.is_not(None),
)
