"""Prefect's settings for our processes. Nothing here imports Prefect, which reads them on its import."""

from __future__ import annotations

import os

from autocode.jobs.settings import Home

__all__ = ["child_environment", "configure_client"]

_SERVICES_OFF = (
    "SCHEDULER",
    "LATE_RUNS",
    "FOREMAN",
    "PAUSE_EXPIRATIONS",
    "CANCELLATION_CLEANUP",
    "REPOSSESSOR",
    "CLEANUP_RECONCILER",
    "EVENT_PERSISTER",
    "TRIGGERS",
)


def child_environment(home: Home) -> dict[str, str]:
    """Return the environment of the private server's process.

    SQLite takes one writer at a time, and Prefect's client sleeps for seconds when it is told to come back.
    So every service that a one-shot run doesn't need is off; the recorder of task runs stays.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {
        **inherited,
        "PREFECT_HOME": str(home.prefect),
        "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home.prefect / 'prefect.db'}",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_UI_ENABLED": "false",
        "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
        "PREFECT_LOGGING_LEVEL": "WARNING",
        **{f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in _SERVICES_OFF},
    }


def configure_client(home: Home) -> None:
    """Set what Prefect reads when it is imported into this process; call it before that import.

    Logs stay local and quiet: a transcript's text must not reach Prefect's database through a log line.
    """
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        del os.environ[name]
    os.environ.update(
        {
            "PREFECT_HOME": str(home.prefect),
            "PREFECT_LOGGING_LEVEL": "CRITICAL",
            "PREFECT_LOGGING_TO_API_ENABLED": "false",
            "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "false",
        }
    )
