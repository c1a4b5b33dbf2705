"""Backup and restore of a home: ledger, settings and objects that belong together, in one file.

A backup is made of parts (:data:`~autocode.jobs.operations.backup.label.PARTS`). Each has a module that
writes its members and reads them back. Another part, such as a search index, is another module, a name in
that list, and a call each in ``write.py`` and ``read.py``.
``docs/howto-backup.md`` has the layout.
"""

from __future__ import annotations

from autocode.jobs.operations.backup.label import LEFT_OUT
from autocode.jobs.operations.backup.read import Restored, check, restore
from autocode.jobs.operations.backup.write import BackedUp, back_up, check_place

__all__ = ["LEFT_OUT", "BackedUp", "Restored", "back_up", "check", "check_place", "restore"]
