"""The store: content-addressed objects, written once, verified at every read.

An object is named by the SHA-256 of its bytes. What is on disk is a plain zstd stream, so that ``zstd -dc
FILE | sha256sum`` proves an object without this package; ``docs/store.md`` is the format on one page.
"""

from __future__ import annotations

from autocode.jobs.store.base import ObjectInfo, ObjectStore, Staging, put_bytes, put_chunks
from autocode.jobs.store.local import LocalStore
from autocode.jobs.store.reader import VerifiedReader, prove_stored
from autocode.jobs.store.verify import Verdict, VerifyReport, verify_objects, verify_store

__all__ = [
    "LocalStore",
    "ObjectInfo",
    "ObjectStore",
    "Staging",
    "Verdict",
    "VerifiedReader",
    "VerifyReport",
    "prove_stored",
    "put_bytes",
    "put_chunks",
    "verify_objects",
    "verify_store",
]
