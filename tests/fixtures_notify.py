"""A receiver that speaks TLS under the name ``hooks.example``, and a context that trusts it."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@pytest.fixture
def tls_receiver(tmp_path: Path) -> Iterator[tuple[int, ssl.SSLContext]]:
    """Give the port of a receiver and a context that trusts its certificate."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    _certify("hooks.example", key, certificate)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that trusts nobody hangs up."""

    with Server(("127.0.0.1", 0), Handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_address[1], ssl.create_default_context(cafile=str(certificate))
        finally:
            server.shutdown()
            thread.join()


def _certify(name: str, key: Path, certificate: Path) -> None:
    """Write a key, and a certificate for *name* that it signs itself."""
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pkcs8 = serialization.PrivateFormat.PKCS8
    key.write_bytes(private.private_bytes(serialization.Encoding.PEM, pkcs8, plain))
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
