"""What keeps others from listening in on a service: TLS of its own, or of a proxy in front of it."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from autocode.jobs.api.settings import is_loopback
from autocode.jobs.configuration import Configuration
from autocode.jobs.errors import UsageError

__all__ = ["LOCAL", "Exposure"]


@dataclass(frozen=True, slots=True)
class Exposure:
    """What keeps others from listening in.

    Args:
        certificate: the chain of certificates, a PEM file; with it the service speaks TLS.
        key: the private key of the first of them.
        proxy: the origin of a proxy that speaks TLS in the service's place.
    """

    certificate: Path | None = None
    key: Path | None = None
    proxy: str | None = None

    @classmethod
    def of(cls, settings: Configuration) -> Self:
        """Return what the settings say."""
        certificate, key = (
            None if file is None else Path(file) for file in (settings.tls_cert, settings.tls_key)
        )
        return cls(certificate, key, settings.behind_proxy)

    @property
    def scheme(self) -> str:
        """How the service itself speaks."""
        return "http" if self.certificate is None else "https"

    def check(self, host: str) -> None:
        """Let the service listen at *host*.

        Raises:
            UsageError: other machines reach it, and tokens would cross the network in the clear; or
                certificate and key don't make a pair that can be used.
        """
        if (self.certificate is None) != (self.key is None):
            raise UsageError(
                "TLS needs a certificate and its key, and one of the two isn't set.",
                hint="Give both: --tls-cert FILE --tls-key FILE",
            )
        if self.certificate is not None:
            self._load()
        if not is_loopback(host) and self.certificate is None and self.proxy is None:
            raise UsageError(
                f"{host} can be reached from other machines, and tokens would cross the network unencrypted.",
                hint="Listen at 127.0.0.1; or give --tls-cert and --tls-key; or put a proxy with TLS in "
                "front and name it: --behind-proxy https://jobs.example",
            )

    @staticmethod
    def names(host: str) -> frozenset[str]:
        """Return the names of a service that listens at *host*, beside the loopback ones."""
        return frozenset() if is_loopback(host) or _is_every(host) else frozenset({host})

    def _load(self) -> None:
        assert self.certificate is not None
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, _no_password)
        except (OSError, ValueError) as error:
            # an SSLError is an OSError, and says which of the two it was about in its own way
            raise UsageError(
                f"The certificate {self.certificate} can't be used with the key {self.key}: {error}.",
                hint="Both are files in PEM form, the key without a password.",
            ) from error


LOCAL: Final = Exposure()
"""A service for its own machine."""


def _is_every(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _no_password() -> str:
    # without this OpenSSL would ask at the terminal
    raise ValueError("the key has a password")
