"""The commands ``backup`` and ``restore``.

Each body imports its work when it is called, so that ``--help`` waits for no database and no engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, Parameter

__all__ = ["register"]


def register(app: App) -> None:
    """Add the commands to *app*."""
    app.command(backup, help_epilogue=_BACKUP_EXAMPLES)
    app.command(restore, help_epilogue=_RESTORE_EXAMPLES)


_BACKUP_EXAMPLES: Final = """\
Examples:
  autocode-jobs backup /mnt/backups
  autocode-jobs backup jobs.tar --force
  autocode-jobs backup jobs.tar --allow-missing --json

Exit status: 0 written, 1 objects are missing or it failed (nothing is left
behind), 2 usage (nothing was changed), 130 interrupted."""


def backup(
    target: Annotated[
        Path,
        Parameter(name="FILE", help="The backup; in a folder, autocode-backup-TIME.tar."),
    ],
    /,
    *,
    force: Annotated[
        bool, Parameter(negative="", show_default=False, help="Replace a file that is there.")
    ] = False,
    allow_missing: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Leave out objects that are missing or damaged."),
    ] = False,
    json: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print what was written as one line of JSON.")
    ] = False,
) -> int:
    """Write ledger, settings and the objects that they need into one file, all as of one moment.

    Services and commands may go on meanwhile. Every object is verified on the way.
    """
    from autocode.jobs.cli import backup as work  # noqa: PLC0415 - see the module's docstring

    return work.backup(target, force=force, allow_missing=allow_missing, json=json)


_RESTORE_EXAMPLES: Final = """\
Examples:
  autocode-jobs restore jobs.tar --check
  AUTOCODE_HOME=/srv/jobs autocode-jobs restore jobs.tar

Exit status: 0 restored or sound, 1 the backup is damaged or it failed (nothing
is left behind), 2 usage (nothing was changed), 130 interrupted."""


def restore(
    file: Annotated[Path, Parameter(name="FILE", help="What `autocode-jobs backup FILE` wrote.")],
    /,
    *,
    check: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Read and verify all of it, and change nothing."),
    ] = False,
    json: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print what is in it as one line of JSON.")
    ] = False,
) -> int:
    """Make the data folder, which must be empty or not exist, of a backup.

    Everything is verified before the folder appears. Jobs that were not over go on with the next `up`, or
    with the command that they came from.
    """
    from autocode.jobs.cli import backup as work  # noqa: PLC0415 - see the module's docstring

    return work.check(file, json=json) if check else work.restore(file, json=json)
