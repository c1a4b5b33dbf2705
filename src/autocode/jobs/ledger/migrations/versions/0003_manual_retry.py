"""What a manual retry needs: where the attempts since begin, and a budget that belongs to a revision."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("retried_after", sa.Integer(), server_default="0", nullable=False))
    op.add_column("statuses", sa.Column("max_attempts", sa.Integer(), server_default="0", nullable=False))
    op.execute(
        "UPDATE statuses SET max_attempts ="
        " (SELECT jobs.max_attempts FROM jobs WHERE jobs.job_id = statuses.job_id)"
    )
