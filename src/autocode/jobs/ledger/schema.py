"""The ledger's tables: facts, and ``statuses``, which is derived from them and written by reconcile alone."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from autocode.jobs.ledger.types import Json, UtcTime

__all__ = [
    "attempts",
    "audit",
    "checkpoints",
    "counters",
    "effects",
    "events",
    "jobs",
    "leaders",
    "logins",
    "memo",
    "meta",
    "metadata",
    "objects",
    "references",
    "statuses",
    "tokens",
]


metadata: Final = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

# Names that people or paths give are Text: PostgreSQL enforces a length and SQLite doesn't.
# SQLite numbers rows by itself only in a column that is exactly INTEGER
_Serial: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _job_id(**options: Any) -> sa.Column[str]:
    return sa.Column("job_id", sa.String(128), sa.ForeignKey("jobs.job_id"), **options)


meta: Final = sa.Table(
    "meta",
    metadata,
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

counters: Final = sa.Table(
    "counters",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)

jobs: Final = sa.Table(
    "jobs",
    metadata,
    sa.Column("job_id", sa.String(128), primary_key=True),
    sa.Column("kind", sa.String(128), nullable=False),
    sa.Column("payload", Json, nullable=False),
    sa.Column("fingerprint", sa.String(71), nullable=False),
    sa.Column("session_id", sa.Text),
    sa.Column("origin", sa.String(32), nullable=False),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("backoff", Json, nullable=False),
    sa.Column("time_limit", sa.Float, nullable=False),
    sa.Column("file_saved_at", UtcTime),
    sa.Column("enqueued_at", UtcTime, nullable=False),
    sa.Column("cancel_requested_at", UtcTime),
    sa.Column("cancel_event", sa.BigInteger),
    # set by a retry from the start: what was remembered at or below this fence doesn't count for this job
    sa.Column("fresh_fence", sa.BigInteger),
    # the last attempt before the latest manual retry: what follows is judged by itself
    sa.Column("retried_after", sa.Integer, nullable=False, server_default="0"),
    sa.Column("result_digest", sa.String(71)),
    sa.Column("result_size", sa.BigInteger),
    sa.Column("result_media_type", sa.String(128)),
    sa.Column("result_attempt", sa.Integer),
    sa.Column("result_at", UtcTime),
    sa.Column("result_verified_at", UtcTime),
    sa.Column("result_expired_at", UtcTime),
    sa.Column("progress_done", sa.BigInteger),
    sa.Column("progress_total", sa.BigInteger),
    sa.Column("progress_unit", sa.String(32)),
    sa.Column("progress_at", UtcTime),
    sa.Column("progress_retry_at", UtcTime),
    sa.Index("ix_jobs_fingerprint", "kind", "fingerprint"),
    sa.Index("ix_jobs_enqueued_at", "enqueued_at", "job_id"),
    sa.Index("ix_jobs_session_id", "session_id"),
    sa.Index("uq_jobs_idempotency_key", "idempotency_key", unique=True),
)

statuses: Final = sa.Table(
    "statuses",
    metadata,
    _job_id(primary_key=True),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("reason", sa.String(16)),
    sa.Column("note", sa.Text),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("max_attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("next_attempt_at", UtcTime),
    sa.Column("error", Json),
    sa.Column("started_at", UtcTime),
    sa.Column("checkpoint_at", UtcTime),
    sa.Column("completed_at", UtcTime),
    sa.Column("checkpoint_seq", sa.Integer, nullable=False),
    sa.Column("progress", Json),
    sa.Column("possible_double_run", sa.Boolean, nullable=False),
    sa.Column("rev", sa.BigInteger, nullable=False),
    sa.Column("as_of", UtcTime, nullable=False),
    sa.Index("ix_statuses_status", "status"),
)

attempts: Final = sa.Table(
    "attempts",
    metadata,
    _job_id(primary_key=True),
    sa.Column("n", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("due_at", UtcTime, nullable=False),
    sa.Column("flow_run_id", sa.String(36), unique=True),
    sa.Column("token", sa.String(36), unique=True),
    sa.Column("fence", sa.BigInteger, unique=True),
    sa.Column("holder", sa.Text),
    sa.Column("begun_at", UtcTime),
    sa.Column("renewals", sa.BigInteger, nullable=False),
    sa.Column("renewed_at", UtcTime),
    sa.Column("ended_at", UtcTime),
    sa.Column("outcome", sa.String(16)),
    sa.Column("counts", sa.Boolean, nullable=False),
    sa.Column("error", Json),
    sa.Column("begun_event", sa.BigInteger),
    sa.Column("ended_event", sa.BigInteger),
    sa.Column("run_closed", sa.Boolean, nullable=False),
)

# finds the few attempts that a sweep must look at among all that ever ended
sa.Index(
    "ix_attempts_unclosed",
    attempts.c.job_id,
    postgresql_where=attempts.c.run_closed.is_(False),
    sqlite_where=attempts.c.run_closed.is_(False),
)

checkpoints: Final = sa.Table(
    "checkpoints",
    metadata,
    _job_id(primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("step", sa.Text, nullable=False),
    sa.Column("digest", sa.String(71), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("reused", sa.Boolean, nullable=False),
    sa.Index("ix_checkpoints_step", "job_id", "step"),
)

memo: Final = sa.Table(
    "memo",
    metadata,
    sa.Column("kind", sa.String(128), primary_key=True),
    sa.Column("step", sa.String(128), primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("inputs", sa.String(71), primary_key=True),
    sa.Column("digest", sa.String(71), nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("media_type", sa.String(128), nullable=False),
    sa.Column("job_id", sa.String(128), nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("at", UtcTime, nullable=False),
)

effects: Final = sa.Table(
    "effects",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("job_id", sa.String(128), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("intent_at", UtcTime, nullable=False),
    sa.Column("done_at", UtcTime),
    sa.Column("result", Json),
)

objects: Final = sa.Table(
    "objects",
    metadata,
    sa.Column("digest", sa.String(71), primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
)

references: Final = sa.Table(
    "object_references",
    metadata,
    sa.Column("digest", sa.String(71), sa.ForeignKey("objects.digest"), primary_key=True),
    sa.Column("holder", sa.Text, primary_key=True),
    sa.Column("at", UtcTime, nullable=False),
    sa.Index("ix_object_references_holder", "holder"),
)

events: Final = sa.Table(
    "events",
    metadata,
    sa.Column("id", _Serial, primary_key=True, autoincrement=True),
    _job_id(nullable=False),
    sa.Column("fact", sa.String(32), nullable=False),
    sa.Column("detail", Json, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("cursor", sa.BigInteger, unique=True),
    sa.Column("type", sa.String(32)),
    sa.Column("rev", sa.BigInteger),
    sa.Column("data", Json),
    sa.Index("ix_events_job_id", "job_id", "id"),
    sqlite_autoincrement=True,
)

sa.Index(
    "ix_events_unstamped",
    events.c.id,
    postgresql_where=events.c.cursor.is_(None),
    sqlite_where=events.c.cursor.is_(None),
)

audit: Final = sa.Table(
    "audit",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("action", sa.String(64), nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("outcome", sa.String(64), nullable=False),
    sa.Column("data", Json, nullable=False),
    sa.Column("previous", sa.String(71), nullable=False),
    sa.Column("digest", sa.String(71), nullable=False),
    sa.Index("ix_audit_target", "target"),
)

leaders: Final = sa.Table(
    "leaders",
    metadata,
    sa.Column("role", sa.String(64), primary_key=True),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("renewals", sa.BigInteger, nullable=False),
    sa.Column("since", UtcTime, nullable=False),
)

tokens: Final = sa.Table(
    "tokens",
    metadata,
    sa.Column("token_id", sa.String(32), primary_key=True),
    sa.Column("digest", sa.String(71), nullable=False, unique=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("sessions", Json),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime),
    sa.Column("revoked_at", UtcTime),
)

logins: Final = sa.Table(
    "logins",
    metadata,
    sa.Column("digest", sa.String(71), primary_key=True),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime, nullable=False),
    sa.Column("used_at", UtcTime),
)
