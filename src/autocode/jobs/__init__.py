"""Durable, user-visible background jobs on Prefect."""

from __future__ import annotations

from autocode.jobs._version import __version__

__all__ = ["__version__"]
