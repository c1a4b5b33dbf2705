"""Views of a finished export, made from the artifact whenever somebody wants them, outside its identity.

:data:`VIEWS` names them all. To add one: a function of the form :data:`Writer` in a module of this package,
a row in :mod:`~autocode.jobs.operations.views.registry`, and its name in the command line's ``--as``.
"""

from __future__ import annotations

from autocode.jobs.operations.views.registry import VIEWS, View, Writer, view_named

__all__ = ["VIEWS", "View", "Writer", "view_named"]
