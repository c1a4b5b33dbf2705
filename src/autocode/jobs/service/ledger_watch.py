"""What the supervisor knows of the ledger: how many jobs are in which state, and a way in for its user."""

from __future__ import annotations

import threading
from typing import Final

from autocode.jobs.engine.system import open_system
from autocode.jobs.errors import JobsError
from autocode.jobs.ledger import access, listing
from autocode.jobs.ledger.listing import Counts
from autocode.jobs.settings import Home

__all__ = ["LedgerWatch"]

_LOOK_SECONDS: Final = 2.0


class LedgerWatch:
    """Looks into the ledger now and then, in a thread of its own: a database that hangs holds nobody up.

    Args:
        home: whose ledger.
        login: whether to make one login, to be shown on the terminal.
    """

    def __init__(self, home: Home, *, login: bool = False) -> None:
        self._home = home
        self._wants_login = login
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._look, name="ledger watch", daemon=True)
        self.counts: Counts | None = None
        """As of the last look that found the ledger."""
        self.login: str | None = None
        """A code that opens one browser session; once taken it is forgotten here."""

    def start(self) -> None:
        """Begin to look; does nothing if it has begun. Call it once the ledger can be reached."""
        if self._thread.ident is None and not self._leave.is_set():
            self._thread.start()

    def take_login(self) -> str | None:
        """Return the login code if there is one that nobody took before."""
        code, self.login = self.login, None
        return code

    def stop(self, *, within: float = 5.0) -> None:
        """Look no more, and wait *within* seconds for a look that is on its way."""
        self._leave.set()
        if self._thread.ident is not None:
            self._thread.join(within)

    def _look(self) -> None:
        while not self._leave.is_set():
            try:
                with open_system(self._home) as system:
                    if self._wants_login:
                        self.login = access.create_login(system.db)
                        self._wants_login = False
                    while not self._leave.is_set():
                        self.counts = listing.counts(system.db)
                        self._leave.wait(_LOOK_SECONDS)
            except JobsError:
                # the part that is down says so itself, and counts say of when they are
                self._leave.wait(_LOOK_SECONDS)
