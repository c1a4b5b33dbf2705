"""Where the flows are: ``flows/`` of a checkout, or the copy inside an installed wheel."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from prefect import Flow
from prefect.flows import load_flow_from_entrypoint

from autocode.jobs.errors import KindUnknown
from autocode.jobs.kinds import Kind

__all__ = ["flows_folder", "load_flow"]

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


@cache
def load_flow(kind: Kind[Any]) -> Flow[..., Any]:
    """Return the Prefect flow of *kind*; a relative file is looked for in the shipped flows first.

    Raises:
        KindUnknown: there is no such file.
    """
    file, _, function = kind.flow.rpartition(":")
    path = Path(file)
    if not path.is_absolute() and (flows_folder() / path).is_file():
        path = flows_folder() / path
    if not path.is_file():
        raise KindUnknown(f"The flow of kind {kind.name!r} should be in {file}, which doesn't exist.")
    return load_flow_from_entrypoint(f"{path}:{function}")
