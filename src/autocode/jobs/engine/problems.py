"""From an exception to the contract's ``error`` object, with nothing in it that must not be shown.

The ledger keeps a problem's detail for the job's own people, and a detail may name a file of theirs.
Prefect's database has other readers, so it gets the title alone.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from autocode.jobs.clock import rfc3339
from autocode.jobs.errors import JobsError, StepTimedOut, UnexpectedError, is_transient
from autocode.jobs.redaction import DEFAULT_POLICY, Redactor

__all__ = ["StepFailed", "presentable", "problem", "title_for_prefect"]

_DETAIL_LIMIT: Final = 2000
"""Characters of an error's detail that are kept: some libraries quote their whole input."""


def presentable(error: Exception) -> JobsError:
    """Return *error* as one of ours, its text redacted and shortened.

    An event shows it to users, and a library's message may quote a transcript.
    """
    if isinstance(error, JobsError):
        return error
    if isinstance(error, TimeoutError):
        return StepTimedOut(_clean(f"{type(error).__name__}: {error}"))
    return UnexpectedError(_clean(f"{type(error).__name__}: {error}"))


class StepFailed(Exception):
    """Ends a task run in Prefect: its text is what Prefect may keep, and *error* is what happened.

    Args:
        error: the step's own error.
    """

    def __init__(self, error: JobsError) -> None:
        super().__init__(title_for_prefect(error))
        self.error = error


def title_for_prefect(error: Exception) -> str:
    """Return what Prefect may keep of *error*: its title, and the class of one that isn't ours."""
    shown = presentable(error)
    if not isinstance(shown, UnexpectedError):
        return shown.title
    name = shown.detail.partition(":")[0]
    return f"{shown.title} ({name})" if name.isidentifier() else shown.title


def problem(error: Exception, *, step: str | None, attempt: int, at: datetime) -> dict[str, Any]:
    """Return the contract's ``error`` object for *error*."""
    shown = presentable(error)
    return {
        "type": shown.type,
        "title": shown.title,
        "detail": _clean(shown.detail),
        "hint": _clean(shown.hint),
        "step": step,
        "attempt": attempt,
        "retryable": is_transient(error),
        "at": rfc3339(at),
    }


def _clean(text: str) -> str:
    redacted = str(Redactor(DEFAULT_POLICY).redact(text[: 4 * _DETAIL_LIMIT]))
    return redacted if len(redacted) <= _DETAIL_LIMIT else redacted[: _DETAIL_LIMIT - 1] + "…"
