"""Sending requests: what may be sent again is, and problems become the errors that they were."""

from __future__ import annotations

import ipaddress
import ssl
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from autocode.jobs import errors, notification_errors, request_errors
from autocode.jobs.errors import JobsError, UsageError
from autocode.jobs.request_errors import ServiceUnavailable

__all__ = ["Transport", "error_of", "is_loopback"]

_PAUSES: Final = (0.1, 0.3, 1.0, 2.0)
"""Seconds between tries where the service doesn't say; the last one from then on."""

_AGAIN: Final = frozenset({httpx.codes.SERVICE_UNAVAILABLE, httpx.codes.TOO_MANY_REQUESTS})

_LONGEST_PAUSE: Final = 5.0


class Transport:
    """Sends requests to one service.

    Args:
        url: where it is, without a path.
        token: sent with every request to it, and to nobody else.
        patience: seconds for which a request that may be sent again is.
        timeout: seconds that one try may take, beside what the service was asked to wait.
        pinned: a file with the one certificate that the service has, whatever name it is called by.
        transport: httpx's own transport, where a test brings one.
        sleep: how to pause.
        monotonic: a clock in seconds.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience: float,
        timeout: float,
        pinned: str | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UsageError(f"{url!r} is no address of a service.", hint="Write it as http://HOST:PORT.")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self.patience = patience
        self.sleep = sleep
        self.monotonic = monotonic
        self._timeout = timeout
        self._http = httpx.Client(
            base_url=self.url,
            headers={
                "Authorization": f"Bearer {token}",
                "Accept": "application/json, application/problem+json",
            },
            timeout=timeout,
            # reading the certificates takes 25-50 ms, and plain HTTP needs none
            verify=_trust(pinned) if parts.scheme == "https" else False,
            # proxies of the environment are for other hosts than this one
            trust_env=not is_loopback(parts.hostname),
            transport=transport,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        again: bool,
        json: Mapping[str, Any] | None = None,
        content: Callable[[], Iterable[bytes]] | None = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        wait: float = 0.0,
        within: float | None = None,
        also: Collection[int] = (),
    ) -> httpx.Response:
        """Send a request and return the answer, if it isn't a problem.

        Args:
            method: the HTTP method.
            path: where, from the root of the service.
            again: sending it twice is the same as once, so that it may be sent again.
            json: the body.
            content: gives the body's bytes, anew for each try; in place of *json*.
            query: the query; what is ``None`` is left out.
            headers: further headers.
            wait: seconds for which the service was asked to hold the answer.
            within: seconds after which it isn't sent again, where that is less than the client's patience.
            also: statuses that are an answer here, though they are problems elsewhere.

        Raises:
            ServiceUnavailable: there was no answer, or none that could be read.
            JobsError: the error that the service's problem is.
        """

        def request() -> httpx.Request:
            return self._http.build_request(
                method,
                path,
                json=json,
                content=None if content is None else content(),
                params={name: value for name, value in (query or {}).items() if value not in (None, [], ())},
                headers=dict(headers or {}),
                timeout=self._timeout + wait,
            )

        give_up = self.monotonic() + min(self.patience, self.patience if within is None else within)
        for pause in _pauses():
            try:
                answer = self._http.send(request())
            except httpx.HTTPError as error:
                refusal: JobsError = ServiceUnavailable(
                    f"{self.url} doesn't answer: {type(error).__name__}: {error}".rstrip(": ") + "."
                )
                told, longest = None, _LONGEST_PAUSE
            else:
                if answer.status_code < 400 or answer.status_code in also:
                    return answer
                refusal, told = error_of(answer), _retry_after(answer)
                if answer.status_code not in _AGAIN or told is None:
                    raise refusal
                longest = told if answer.status_code == httpx.codes.TOO_MANY_REQUESTS else _LONGEST_PAUSE
            # a limit is kept to; a service that is away may be back sooner than it thought
            seconds = min(told if told is not None else pause, longest)
            if not again or self.monotonic() + seconds > give_up:
                raise refusal
            self.sleep(seconds)
        raise AssertionError("the pauses never end")

    @contextmanager
    def open(self, path: str, *, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Ask once for bytes, and give the answer while they are still to be read.

        Raises:
            ServiceUnavailable: there was no answer. What breaks off later is an error of httpx.
            JobsError: the error that the service's problem is.
        """
        request = self._http.build_request("GET", path, headers=dict(headers))
        try:
            answer = self._http.send(request, stream=True)
        except httpx.HTTPError as error:
            raise ServiceUnavailable(f"{self.url} doesn't answer: {type(error).__name__}.") from error
        try:
            if answer.status_code >= 400:
                answer.read()
                raise error_of(answer)
            yield answer
        finally:
            answer.close()


def error_of(answer: httpx.Response) -> JobsError:
    """Return the error that a problem is; one of a type that this version doesn't know is a JobsError."""
    try:
        body = answer.json()
        kind, detail, hint = str(body.pop("type")), str(body.pop("detail")), str(body.pop("hint"))
    except (ValueError, KeyError, AttributeError, TypeError):
        return ServiceUnavailable(
            f"{answer.request.url.copy_with(query=None)} answered {answer.status_code} with something else "
            "than a problem.",
            hint="Check that the address is that of an autocode-jobs service.",
        )
    data = {
        str(name): value for name, value in body.items() if name not in {"title", "error", "detail", "hint"}
    }
    if "errors" in data:
        data["fields"] = data.pop("errors")
    cls = _BY_TYPE.get(kind, JobsError)
    return cls(detail, hint=hint, **data)


def _trust(pinned: str | None) -> ssl.SSLContext | bool:
    if pinned is None:
        return True
    context = ssl.create_default_context(cafile=pinned)
    # that very certificate is asked for, so the name that it was made for proves nothing more
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _pauses() -> Iterator[float]:
    yield from _PAUSES
    while True:
        yield _PAUSES[-1]


def _retry_after(answer: httpx.Response) -> float | None:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else None


def is_loopback(host: str) -> bool:
    """Say whether *host* can only mean this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _family(cls: type[JobsError]) -> Iterator[type[JobsError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _family(child)


_MODULES: Final = (errors.__name__, notification_errors.__name__, request_errors.__name__)
_BY_TYPE: Final = {
    cls.type: cls for cls in _family(JobsError) if cls.__module__ in _MODULES and "type" in vars(cls)
}
