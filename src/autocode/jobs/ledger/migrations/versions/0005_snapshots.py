"""What uploads need: named sets of uploaded objects."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from autocode.jobs.ledger.types import UtcTime

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "snapshots",
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("owner", sa.String(length=32), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["digest"], ["objects.digest"], name=op.f("fk_snapshots_digest")),
        sa.PrimaryKeyConstraint("digest", "owner", "session_id", name=op.f("pk_snapshots")),
    )
