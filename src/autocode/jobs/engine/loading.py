"""From a kind to its Prefect flow."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from prefect import Flow
from prefect.flows import load_flow_from_entrypoint

from autocode.jobs.engine.flows import flows_folder
from autocode.jobs.errors import KindUnknown
from autocode.jobs.kinds import Kind

__all__ = ["entrypoint_of", "load_flow"]


@cache
def load_flow(kind: Kind[Any]) -> Flow[..., Any]:
    """Return the Prefect flow of *kind*; see :func:`entrypoint_of`.

    Raises:
        KindUnknown: there is no such file.
    """
    return load_flow_from_entrypoint(entrypoint_of(kind))


def entrypoint_of(kind: Kind[Any]) -> str:
    """Return where the flow of *kind* is, as ``file:function`` with an absolute file.

    A relative file is looked for in the shipped flows first, then from the current folder.

    Raises:
        KindUnknown: there is no such file.
    """
    file, _, function = kind.flow.rpartition(":")
    path = Path(file)
    if not path.is_absolute() and (flows_folder() / path).is_file():
        path = flows_folder() / path
    if not path.is_file():
        raise KindUnknown(f"The flow of kind {kind.name!r} should be in {file}, which doesn't exist.")
    return f"{path.absolute()}:{function}"
