"""Views of a finished export: made from the artifact whenever somebody wants them, outside its identity.

A mended view changes no digest, and a deleted one costs nothing.
"""

from __future__ import annotations

from autocode.jobs.operations.export.archive import write_zip
from autocode.jobs.operations.export.bag import BagFile, bag_files, bag_name, content_of
from autocode.jobs.operations.export.folder import Progress, write_folder
from autocode.jobs.operations.export.manifest import (
    Manifest,
    ManifestSource,
    Member,
    UnreadSource,
    load_manifest,
)

__all__ = [
    "BagFile",
    "Manifest",
    "ManifestSource",
    "Member",
    "Progress",
    "UnreadSource",
    "bag_files",
    "bag_name",
    "content_of",
    "load_manifest",
    "write_folder",
    "write_zip",
]
