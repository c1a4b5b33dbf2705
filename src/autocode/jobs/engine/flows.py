"""Where the flows are: ``flows/`` of a checkout, or the copy inside an installed wheel."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from autocode.jobs.errors import KindUnknown

__all__ = ["flows_folder"]

_PACKAGE = Path(__file__).resolve().parent.parent


@cache
def flows_folder() -> Path:
    """Return the folder with the flows of the kinds that ship with this package.

    Raises:
        KindUnknown: neither the wheel's copy nor a checkout's folder is there.
    """
    for folder in (_PACKAGE / "_flows", _PACKAGE.parents[2] / "flows"):
        if (folder / "export.py").is_file():
            return folder
    raise KindUnknown(
        "The folder with the flows is missing.",
        hint="Install autocode-jobs again; its wheel holds the flows.",
    )
