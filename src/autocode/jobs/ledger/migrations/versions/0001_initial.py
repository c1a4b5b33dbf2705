"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from autocode.jobs.ledger.types import Json, UtcTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("outcome", sa.String(length=64), nullable=False),
        sa.Column("data", Json(), nullable=False),
        sa.Column("previous", sa.String(length=71), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_audit")),
    )
    op.create_index("ix_audit_target", "audit", ["target"], unique=False)
    op.create_table(
        "counters",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_counters")),
    )
    op.create_table(
        "effects",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("intent_at", UtcTime(), nullable=False),
        sa.Column("done_at", UtcTime(), nullable=True),
        sa.Column("result", Json(), nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_effects")),
    )
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("kind", sa.String(length=128), nullable=False),
        sa.Column("payload", Json(), nullable=False),
        sa.Column("fingerprint", sa.String(length=71), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=True),
        sa.Column("origin", sa.String(length=32), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("backoff", Json(), nullable=False),
        sa.Column("time_limit", sa.Float(), nullable=False),
        sa.Column("file_saved_at", UtcTime(), nullable=True),
        sa.Column("enqueued_at", UtcTime(), nullable=False),
        sa.Column("cancel_requested_at", UtcTime(), nullable=True),
        sa.Column("cancel_event", sa.BigInteger(), nullable=True),
        sa.Column("result_digest", sa.String(length=71), nullable=True),
        sa.Column("result_size", sa.BigInteger(), nullable=True),
        sa.Column("result_media_type", sa.String(length=128), nullable=True),
        sa.Column("result_attempt", sa.Integer(), nullable=True),
        sa.Column("result_at", UtcTime(), nullable=True),
        sa.Column("result_verified_at", UtcTime(), nullable=True),
        sa.Column("result_expired_at", UtcTime(), nullable=True),
        sa.Column("progress_done", sa.BigInteger(), nullable=True),
        sa.Column("progress_total", sa.BigInteger(), nullable=True),
        sa.Column("progress_unit", sa.String(length=32), nullable=True),
        sa.Column("progress_at", UtcTime(), nullable=True),
        sa.Column("progress_retry_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_jobs")),
    )
    op.create_index("ix_jobs_enqueued_at", "jobs", ["enqueued_at", "job_id"], unique=False)
    op.create_index("ix_jobs_fingerprint", "jobs", ["kind", "fingerprint"], unique=False)
    op.create_table(
        "memo",
        sa.Column("kind", sa.String(length=128), nullable=False),
        sa.Column("step", sa.String(length=128), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("inputs", sa.String(length=71), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("media_type", sa.String(length=128), nullable=False),
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "step", "revision", "inputs", name=op.f("pk_memo")),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_meta")),
    )
    op.create_table(
        "objects",
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_objects")),
    )
    op.create_table(
        "attempts",
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("n", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("due_at", UtcTime(), nullable=False),
        sa.Column("flow_run_id", sa.String(length=36), nullable=True),
        sa.Column("token", sa.String(length=36), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=True),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("begun_at", UtcTime(), nullable=True),
        sa.Column("renewals", sa.BigInteger(), nullable=False),
        sa.Column("renewed_at", UtcTime(), nullable=True),
        sa.Column("ended_at", UtcTime(), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("counts", sa.Boolean(), nullable=False),
        sa.Column("error", Json(), nullable=True),
        sa.Column("begun_event", sa.BigInteger(), nullable=True),
        sa.Column("ended_event", sa.BigInteger(), nullable=True),
        sa.Column("run_closed", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name=op.f("fk_attempts_job_id")),
        sa.PrimaryKeyConstraint("job_id", "n", name=op.f("pk_attempts")),
        sa.UniqueConstraint("fence", name=op.f("uq_attempts_fence")),
        sa.UniqueConstraint("flow_run_id", name=op.f("uq_attempts_flow_run_id")),
        sa.UniqueConstraint("token", name=op.f("uq_attempts_token")),
    )
    op.create_index(
        "ix_attempts_unclosed",
        "attempts",
        ["job_id"],
        unique=False,
        postgresql_where=sa.text("run_closed IS false"),
        sqlite_where=sa.text("run_closed IS 0"),
    )
    op.create_table(
        "checkpoints",
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("reused", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name=op.f("fk_checkpoints_job_id")),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_checkpoints")),
    )
    op.create_index("ix_checkpoints_step", "checkpoints", ["job_id", "step"], unique=False)
    op.create_table(
        "events",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("fact", sa.String(length=32), nullable=False),
        sa.Column("detail", Json(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=True),
        sa.Column("type", sa.String(length=32), nullable=True),
        sa.Column("rev", sa.BigInteger(), nullable=True),
        sa.Column("data", Json(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name=op.f("fk_events_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sa.UniqueConstraint("cursor", name=op.f("uq_events_cursor")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_job_id", "events", ["job_id", "id"], unique=False)
    op.create_index(
        "ix_events_unstamped",
        "events",
        ["id"],
        unique=False,
        postgresql_where=sa.text("cursor IS NULL"),
        sqlite_where=sa.text("cursor IS NULL"),
    )
    op.create_table(
        "object_references",
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["digest"], ["objects.digest"], name=op.f("fk_object_references_digest")),
        sa.PrimaryKeyConstraint("digest", "holder", name=op.f("pk_object_references")),
    )
    op.create_index("ix_object_references_holder", "object_references", ["holder"], unique=False)
    op.create_table(
        "statuses",
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=16), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", UtcTime(), nullable=True),
        sa.Column("error", Json(), nullable=True),
        sa.Column("started_at", UtcTime(), nullable=True),
        sa.Column("checkpoint_at", UtcTime(), nullable=True),
        sa.Column("completed_at", UtcTime(), nullable=True),
        sa.Column("checkpoint_seq", sa.Integer(), nullable=False),
        sa.Column("progress", Json(), nullable=True),
        sa.Column("possible_double_run", sa.Boolean(), nullable=False),
        sa.Column("rev", sa.BigInteger(), nullable=False),
        sa.Column("as_of", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name=op.f("fk_statuses_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_statuses")),
    )
    op.create_index("ix_statuses_status", "statuses", ["status"], unique=False)
