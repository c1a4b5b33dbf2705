"""The services that the cases need, each started when the first case asks for it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from autocode.jobs.postgres.place import url_of
from autocode.jobs.testing.crashes.court import Court
from autocode.jobs.testing.crashes.proxy import Proxy
from autocode.jobs.testing.crashes.service import NotInTime, OwnService
from autocode.jobs.testing.postgres import PostgresServer

__all__ = ["Services"]


class Services:
    """A service on a PostgreSQL of its own, and one whose way to PostgreSQL can be cut; a context manager.

    Args:
        kinds: modules with job kinds, beside the project's own.
        keep: leave the homes where they are.
    """

    def __init__(self, kinds: tuple[str, ...], *, keep: bool) -> None:
        self._kinds = kinds
        self._keep = keep
        self._running: dict[str, tuple[OwnService, Court, ExitStack]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            for _, _, each in self._running.values():
                stack.push(each)
            self._running.clear()

    @property
    def homes(self) -> tuple[Path, ...]:
        """The data folders of the services that run now."""
        return tuple(service.home.path for service, _, _ in self._running.values())

    def plain(self) -> tuple[OwnService, Court]:
        """Return the service on a PostgreSQL of its own, and its court."""
        return self._get("plain")

    def proxied(self) -> tuple[OwnService, Court]:
        """Return the service whose way to PostgreSQL can be cut, and its court."""
        return self._get("proxied")

    def discard(self, service: OwnService) -> None:
        """End a service that something went wrong with, and keep its home; the next case gets another."""
        service.keep = True
        for name, (each, _, stack) in list(self._running.items()):
            if each is service:
                del self._running[name]
                stack.close()

    def _get(self, name: str) -> tuple[OwnService, Court]:
        if name not in self._running:
            with ExitStack() as stack:
                if name == "plain":
                    service = stack.enter_context(OwnService(kinds=self._kinds, keep=self._keep))
                    url = url_of(service.home)
                else:
                    service, url = self._proxied(stack)
                if url is None:
                    raise NotInTime("The service's PostgreSQL doesn't say where it is.")
                court = stack.enter_context(Court(service, url))
                self._running[name] = (service, court, stack.pop_all())
        found, court, _ = self._running[name]
        return found, court

    def _proxied(self, stack: ExitStack) -> tuple[OwnService, str]:
        server = stack.enter_context(PostgresServer(durable=False, tcp=True))
        assert server.port is not None
        database = server.create_database()
        direct = server.url(database, tcp=True)
        proxy = stack.enter_context(Proxy(server.port))
        through = direct.replace(f":{server.port}/", f":{proxy.port}/")
        service = OwnService(
            kinds=self._kinds, keep=self._keep, proxy=proxy, environ={"AUTOCODE_DATABASE_URL": through}
        )
        return stack.enter_context(service), direct
