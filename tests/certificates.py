"""Certificates for tests of TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["certificate"]

_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
_OPENSSL = ("openssl", "req", "-x509", *_EC, "-nodes", "-days", "2", "-subj", "/CN=jobs.example")


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate that signs itself."""
    made = (folder / "cert.pem", folder / "key.pem")
    subprocess.run(
        [*_OPENSSL, "-out", "cert.pem", "-keyout", "key.pem"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return made
