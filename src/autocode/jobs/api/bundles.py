"""The files of an export's bundle, found by their paths and handed out as they are."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from autocode.jobs.api.content import Content, damage_told, object_content
from autocode.jobs.errors import UsageError
from autocode.jobs.operations.export.payload import ENTRY_TYPE, MANIFEST_TYPE, NORMAL_FORM_TYPE, RAW_TYPE
from autocode.jobs.operations.export.views import BagFile, bag_files, load_manifest
from autocode.jobs.request_errors import ResultDamaged
from autocode.jobs.resource import Result
from autocode.jobs.store import ObjectStore

__all__ = ["files_of", "member_content"]

_REMEMBERED: Final = 8
_SMALL: Final = 8 << 20
"""Bytes of a manifest whose files are remembered from one request to the next."""

_TYPES: Final = (
    (".report.json", ENTRY_TYPE),
    (".jsonl", NORMAL_FORM_TYPE),
    (".raw", RAW_TYPE),
    (".txt", "text/plain; charset=utf-8"),
    ("manifest.json", MANIFEST_TYPE),
)
_remembering: Final = threading.Lock()
_known: Final[OrderedDict[str, dict[str, BagFile]]] = OrderedDict()


def files_of(store: ObjectStore, made: Result) -> dict[str, BagFile]:
    """Return the files of an export's bundle by their paths; those of small ones are remembered.

    Raises:
        ResultDamaged: the manifest is damaged or missing, or of a kind that this program doesn't know.
    """
    with _remembering:
        if made.digest in _known:
            return _known[made.digest]
    try:
        with damage_told():
            found = {file.path: file for file in bag_files(load_manifest(store, made.digest))}
    except UsageError as error:
        # committed as a manifest once, and by its digest still the same: a newer program wrote it
        raise ResultDamaged(error.detail, hint=error.hint) from error
    if made.size <= _SMALL:
        with _remembering:
            _known[made.digest] = found
            while len(_known) > _REMEMBERED:
                _known.popitem(last=False)
    return found


def member_content(store: ObjectStore, file: BagFile) -> Content:
    """Return a file of a bundle as content."""
    media_type = next((kind for ending, kind in _TYPES if file.path.endswith(ending)), RAW_TYPE)
    name = file.path.rpartition("/")[2]
    if file.content is None:
        return object_content(store, file.sha256, size=file.size, media_type=media_type, name=name)
    held = file.content
    return Content(
        f'"{file.sha256}"',
        file.size,
        media_type,
        name,
        lambda span: iter([held[span.start : span.end]]),
        digest=file.sha256,
    )
