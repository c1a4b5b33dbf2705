"""``autocode-jobs api|reconcile|worker``: one part of the service, in the foreground."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from autocode.jobs import configuration, crash, logs
from autocode.jobs.cli.main import FAILED, USAGE
from autocode.jobs.configuration import Configuration
from autocode.jobs.errors import JobsError, UsageError
from autocode.jobs.settings import Home

if TYPE_CHECKING:
    from autocode.jobs.engine.server import Address
    from autocode.jobs.engine.system import System

__all__ = ["api", "reconcile", "worker"]

_log = logging.getLogger(__name__)

Flags = Mapping[str, object]
_Work = Callable[["System", "Address", Configuration], int]


def api(flags: Flags) -> int:
    """Serve the API until SIGTERM or Ctrl-C; return the exit status."""

    def serve(system: System, address: Address, values: Configuration) -> int:
        from autocode.jobs.api import process  # noqa: PLC0415 - after Prefect's settings are set
        from autocode.jobs.api.exposure import Exposure  # noqa: PLC0415 - as above

        names = frozenset(name.strip() for name in values.hosts.split(",") if name.strip())
        return process.serve(
            system,
            address,
            host=values.host,
            port=values.port,
            hosts=names,
            exposure=Exposure.of(values),
            prefect_ui=address.url.removesuffix("/api"),
            request_rate=values.request_rate,
            request_burst=values.request_burst,
            mail=values.smtp_host is not None,
        )

    return _run("api", flags, serve, ahead="autocode.jobs.api.process")


def reconcile(flags: Flags) -> int:
    """Reconcile until SIGTERM or Ctrl-C; return the exit status."""

    def run(system: System, address: Address, values: Configuration) -> int:
        from autocode.jobs.engine import daemon  # noqa: PLC0415 - after Prefect's settings are set
        from autocode.jobs.engine.connection import check_access  # noqa: PLC0415 - as above
        from autocode.jobs.notifications.settings import NotificationSettings  # noqa: PLC0415 - as above

        check_access(address)
        return daemon.run(system, address, notifications=NotificationSettings.of(values))

    return _run("reconcile", flags, run, ahead="autocode.jobs.engine.daemon")


def worker(flags: Flags, *, name: str | None) -> int:
    """Run jobs until SIGTERM or Ctrl-C; return the exit status."""

    def run(system: System, address: Address, values: Configuration) -> int:
        from autocode.jobs.engine import worker as work  # noqa: PLC0415 - after Prefect's settings are set
        from autocode.jobs.engine.connection import check_access  # noqa: PLC0415 - as above

        check_access(address)
        return work.run(
            system,
            address,
            limit=values.workers,
            niceness=values.niceness,
            name=name,
            grace=values.drain_seconds,
        )

    return _run("worker", flags, run, ahead="autocode.jobs.engine.worker.service")


def _run(part: str, flags: Flags, work: _Work, *, ahead: str) -> int:
    home = Home.from_environment()
    loaded = configuration.load(home, flags=flags)
    os.environ.update(loaded.environ())
    values = loaded.values
    home.prepare()
    own_file = logs.own_file(home.logs / f"{part}.log")
    logs.configure(part, level=values.log_level, form=values.log_format, file=own_file)
    crash.arm(os.environ.get("AUTOCODE_CRASH"), tokens=home.run / "crash")

    try:
        return _work(home, values, work, ahead)
    except UsageError as error:
        _log.error("%s %s", error.detail, error.hint)
        return USAGE
    except JobsError as error:
        _log.error("%s %s", error.detail, error.hint)
    except Exception:  # noqa: BLE001 - a part ends with a record of why, never without
        _log.exception("something unexpected happened")
    return FAILED


def _work(home: Home, values: Configuration, work: _Work, ahead: str) -> int:
    from autocode.jobs.engine.environment import configure_client  # noqa: PLC0415 - after the settings are set

    configure_client(home)
    from autocode.jobs.engine.connection import prefect_address  # noqa: PLC0415 - as above
    from autocode.jobs.engine.databases import serving  # noqa: PLC0415 - as above
    from autocode.jobs.engine.serving import remember  # noqa: PLC0415 - as above
    from autocode.jobs.engine.system import open_system  # noqa: PLC0415 - as above
    from autocode.jobs.plugins import load_kinds  # noqa: PLC0415 - as above: their modules may import Prefect

    load_kinds(values.kinds)
    # it takes seconds, and so does the start of the Prefect server, which is waited for below
    importlib.import_module(ahead)
    with (
        serving(home) as choice,
        open_system(home) as system,
        prefect_address(home, url=values.prefect_api_url, auth=values.prefect_auth) as address,
    ):
        if choice.kind == "url":
            # not before it answered: a wrong address is nothing to remember
            remember(home, choice.url)
        return work(system, address, values)
