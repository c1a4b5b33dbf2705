"""The commands of the service: all of it at once, or each part alone.

Each body imports its work when it is called, so that ``--help`` waits for no database and no engine.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from cyclopts import App, Parameter

__all__ = ["register"]

_STATUSES: Final = """\
Exit status: 0 stopped in order, 1 it failed, 2 usage (nothing was changed),
130 hurried by a second Ctrl-C."""
_PART_STATUSES: Final = """\
Exit status: 0 stopped in order, 1 it failed, 2 usage (nothing was changed),
130 interrupted."""

DatabaseUrl = Annotated[
    str | None,
    Parameter(name="--database-url", help="PostgreSQL of the ledger; else one of the data folder's own."),
]
PrefectUrl = Annotated[
    str | None,
    Parameter(name="--prefect-api-url", help="Prefect server to use; else one of the data folder's own."),
]
Host = Annotated[str | None, Parameter(name="--host", help="Where the API listens; 127.0.0.1 if not set.")]
Port = Annotated[str | None, Parameter(name="--port", help="The API's port; 4280 if not set, 0: any.")]
TlsCert = Annotated[str | None, Parameter(name="--tls-cert", help="The API's certificate, a PEM file.")]
TlsKey = Annotated[str | None, Parameter(name="--tls-key", help="The private key of that certificate.")]
BehindProxy = Annotated[
    str | None, Parameter(name="--behind-proxy", help="https://NAME of the proxy in front of the API.")
]
Workers = Annotated[
    str | None,
    Parameter(name=["--workers", "--limit"], help="How many jobs run side by side; 2 if not set."),
]
Niceness = Annotated[
    str | None, Parameter(name="--niceness", help="How much jobs yield to all else, 0 to 19; 10 if not set.")
]
Drain = Annotated[
    str | None,
    Parameter(
        name="--drain-seconds", help="How long jobs may run on once the worker is to stop; 5 if not set."
    ),
]
LogLevel = Annotated[
    str | None, Parameter(name="--log-level", help="debug, info, warning or error; info if not set.")
]
LogFormat = Annotated[str | None, Parameter(name="--log-format", help="text or json; text if not set.")]


def register(app: App) -> None:
    """Add the commands to *app*."""
    app.command(up, name=["up", "serve"], help_epilogue=_UP_EXAMPLES)
    app.command(api, help_epilogue=_API_EXAMPLES)
    app.command(reconcile, help_epilogue=_RECONCILE_EXAMPLES)
    app.command(worker, help_epilogue=_WORKER_EXAMPLES)
    app.command(login, help_epilogue=_LOGIN_EXAMPLES)
    app.command(config, help_epilogue=_CONFIG_EXAMPLES)


_UP_EXAMPLES: Final = f"""\
Examples:
  autocode-jobs up
  autocode-jobs up --port 8080 --workers 4
  autocode-jobs up --json | tee health.jsonl

Ctrl-C or SIGTERM stops all parts in order; a second one hurries them.

{_STATUSES}"""


def up(
    *,
    database_url: DatabaseUrl = None,
    prefect_api_url: PrefectUrl = None,
    host: Host = None,
    port: Port = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    behind_proxy: BehindProxy = None,
    workers: Workers = None,
    niceness: Niceness = None,
    drain_seconds: Drain = None,
    worker: Annotated[
        bool, Parameter(negative="--no-worker", show_default=False, help="Run a worker, or leave it out.")
    ] = True,
    logs: Annotated[
        bool, Parameter(negative="", show_default=False, help="Show what all parts log, in one stream.")
    ] = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    json: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Print each change of a part's health as JSON."),
    ] = False,
) -> int:
    """Run the whole service: databases, Prefect server, API, reconcile and a worker.

    What dies is started again. After a power cut or a kill, run it again: jobs go on where they were.
    """
    from autocode.jobs.service import leash  # noqa: PLC0415 - before all that takes time

    # a test harness that is killed takes its service with it
    leash.attach()
    from autocode.jobs.cli import up as work  # noqa: PLC0415 - see the module's docstring

    flags = {
        "database_url": database_url,
        "prefect_api_url": prefect_api_url,
        "host": host,
        "port": port,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "behind_proxy": behind_proxy,
        "workers": workers,
        "niceness": niceness,
        "drain_seconds": drain_seconds,
        "log_level": log_level,
        "log_format": log_format,
    }
    return work.up(flags, worker=worker, logs=logs, json=json)


_API_EXAMPLES: Final = f"""\
Examples:
  autocode-jobs api --port 8080
  autocode-jobs api --database-url postgresql://ada@db.example/jobs

{_PART_STATUSES}"""


def api(
    *,
    database_url: DatabaseUrl = None,
    prefect_api_url: PrefectUrl = None,
    host: Host = None,
    port: Port = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    behind_proxy: BehindProxy = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> int:
    """Run the API alone, until SIGTERM or Ctrl-C.

    It answers under the loopback interface unless told otherwise. Several may run on one database.
    """
    from autocode.jobs.service import leash  # noqa: PLC0415 - before all that takes time

    leash.attach()
    from autocode.jobs.cli import parts  # noqa: PLC0415 - see the module's docstring

    return parts.api(
        {
            "database_url": database_url,
            "prefect_api_url": prefect_api_url,
            "host": host,
            "port": port,
            "tls_cert": tls_cert,
            "tls_key": tls_key,
            "behind_proxy": behind_proxy,
            "log_level": log_level,
            "log_format": log_format,
        }
    )


_RECONCILE_EXAMPLES: Final = f"""\
Examples:
  autocode-jobs reconcile
  autocode-jobs reconcile --log-format json

{_PART_STATUSES}"""


def reconcile(
    *,
    database_url: DatabaseUrl = None,
    prefect_api_url: PrefectUrl = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> int:
    """Run reconcile alone, until SIGTERM or Ctrl-C: it submits jobs, rescues them and tells how they are.

    Several may run on one database: one leads, the others stand by.
    """
    from autocode.jobs.service import leash  # noqa: PLC0415 - before all that takes time

    leash.attach()
    from autocode.jobs.cli import parts  # noqa: PLC0415 - see the module's docstring

    return parts.reconcile(
        {
            "database_url": database_url,
            "prefect_api_url": prefect_api_url,
            "log_level": log_level,
            "log_format": log_format,
        }
    )


_WORKER_EXAMPLES: Final = f"""\
Examples:
  autocode-jobs worker --workers 4
  autocode-jobs worker --name second --niceness 19

{_PART_STATUSES}"""


def worker(
    *,
    database_url: DatabaseUrl = None,
    prefect_api_url: PrefectUrl = None,
    workers: Workers = None,
    niceness: Niceness = None,
    drain_seconds: Drain = None,
    name: Annotated[
        str | None, Parameter(help="Name of this worker in the Prefect UI; made up if not set.")
    ] = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> int:
    """Run a worker alone, until SIGTERM or Ctrl-C: it lets its jobs end first, or hands them back.

    Several may run on one database.
    """
    from autocode.jobs.service import leash  # noqa: PLC0415 - before all that takes time

    leash.attach()
    from autocode.jobs.cli import parts  # noqa: PLC0415 - see the module's docstring

    return parts.worker(
        {
            "database_url": database_url,
            "prefect_api_url": prefect_api_url,
            "workers": workers,
            "niceness": niceness,
            "drain_seconds": drain_seconds,
            "log_level": log_level,
            "log_format": log_format,
        },
        name=name,
    )


_LOGIN_EXAMPLES: Final = """\
Examples:
  autocode-jobs login
  autocode-jobs login --role viewer

Exit status: 0 printed, 1 no service runs, 2 usage, 130 interrupted."""


def login(
    *,
    role: Annotated[
        Literal["viewer", "operator", "admin"],
        Parameter(help="What the browser may do: read, also submit and retry, or everything."),
    ] = "admin",
) -> int:
    """Print a link that opens one browser session of the running service.

    It works once, for a quarter of an hour. Whoever has it gets in, so it is for your eyes alone.
    """
    from autocode.jobs.cli import login as work  # noqa: PLC0415 - see the module's docstring

    return work.login(role)


_CONFIG_EXAMPLES: Final = """\
Examples:
  autocode-jobs config
  autocode-jobs config --json

Flags of a command count most, then the environment, then config.toml in the
data folder, then the defaults.

Exit status: 0 shown, 2 a setting is wrong (it says which, and where)."""


def config(
    *,
    json: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print the settings as one line of JSON.")
    ] = False,
) -> int:
    """Show every setting: its value, where it comes from and what it does."""
    from autocode.jobs.cli import config as work  # noqa: PLC0415 - see the module's docstring

    return work.config(json=json)
