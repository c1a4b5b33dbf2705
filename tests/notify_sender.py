"""A process that leads and sends what is due, until it is told to end: a driver for tests that kill it.

Arguments: the ledger's URL, and what the sender may reach.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from autocode.jobs import crash
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.leaders import Leadership, assert_leading
from autocode.jobs.notifications.address import Allowed
from autocode.jobs.notifications.sender import Sender, channels
from autocode.jobs.notifications.settings import NotificationSettings


def main() -> None:
    """Lead at once, as whoever is before this process was killed, and send."""
    url, allowed, tokens = sys.argv[1:]
    crash.arm(os.environ.get("AUTOCODE_CRASH"), tokens=Path(tokens))
    database = Database(url)
    term = Leadership(database, "reconcile", f"sender {os.getpid()}", gone=lambda _: True).lead_or_wait()
    assert term is not None
    guarded = database.guarded(lambda tx: assert_leading(tx, "reconcile", term))
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    sender = Sender(guarded, channels(NotificationSettings(Allowed.of(allowed))))
    sender.start()
    # right after a stop the signal may come to another thread, which wakes no waiting one
    while not ended.wait(0.2):
        pass
    sender.stop(10.0)


if __name__ == "__main__":
    main()
