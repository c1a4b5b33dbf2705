"""Export: agent sessions into a bundle that proves what is in it.

``scan`` freezes the input, ``read`` turns one session into the normal form, ``bundle`` writes the manifest
whose digest is the bundle's identity. :mod:`~autocode.jobs.operations.export.views` makes a folder or a zip
file of it, :mod:`~autocode.jobs.operations.export.preview` says beforehand what would be in it. It is written
with nothing but :mod:`autocode.jobs.kinds` and the rooms below.
"""

from __future__ import annotations

from autocode.jobs.operations.export.kind import EXPORT, bundle, read, scan
from autocode.jobs.operations.export.payload import ExportPayload, Source

__all__ = ["EXPORT", "ExportPayload", "Source", "bundle", "read", "scan"]
