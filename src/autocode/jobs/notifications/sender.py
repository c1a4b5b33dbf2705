"""The sender: takes what is due, each receiver in its turn, and records before and after each try.

It works in threads beside whoever leads. A receiver that is slow or gone holds up one thread, and neither the
projection nor other receivers: a subscription has one try at a time, a host a few, all together some more,
and whoever was served longest ago comes first.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Protocol
from urllib.parse import urlsplit

from autocode.jobs import crash
from autocode.jobs.errors import JobsError, LeadershipLost
from autocode.jobs.ledger import deliveries
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.deliveries import Due, Message, Verdict
from autocode.jobs.ledger.subscriptions import place
from autocode.jobs.notification_resource import Channel
from autocode.jobs.notifications.mail import Mail
from autocode.jobs.notifications.settings import NotificationSettings
from autocode.jobs.notifications.webhook import Webhooks

__all__ = ["Sender", "Sends", "channels"]

_AT_ONCE: Final = 8
"""How many tries run at once; less than the database has connections."""

_PER_LANE: Final = 4
"""How many of these go to one host, or through the mail server."""

_LOOK_SECONDS: Final = 1.0
"""Pause between two looks that nothing woke."""

_TROUBLE_SECONDS: Final = 0.5
"""Pause after a failure of the database."""

logger = logging.getLogger(__name__)


class Sends(Protocol):
    """A way to tell somebody."""

    def send(self, message: Message) -> Verdict:
        """Send *message* once, and say what came of it."""
        ...


def channels(settings: NotificationSettings) -> dict[Channel, Sends]:
    """Return every way to tell somebody."""
    return {Channel.WEBHOOK: Webhooks(settings.allowed), Channel.EMAIL: Mail(settings)}


class Sender:
    """Sends what is due, from :meth:`start` to :meth:`stop`.

    Delivery is at least once: the intent is recorded before a try and what came of it after it, and a sender
    that dies in between leaves a delivery that the next one sends again, under the same id.

    Args:
        db: the ledger, guarded by the leader's term: whoever doesn't lead any more can't record anything.
        ways: how to tell somebody, by channel.
    """

    def __init__(self, db: Database, ways: Mapping[Channel, Sends]) -> None:
        self._db = db
        self._ways = ways
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._under_way: dict[str, str] = {}
        self._served: dict[str, int] = {}
        self._turn = 0
        self._trouble = ""
        self._loop = threading.Thread(target=self._run, name="notifications", daemon=True)

    def start(self) -> None:
        """Begin, in a thread."""
        self._loop.start()

    def wake(self) -> None:
        """Look at once: something may be due."""
        self._wake.set()

    def stop(self, within: float) -> None:
        """Begin no further try, and wait *within* seconds at most for those that are under way. Idempotent.

        One that takes longer goes on, and is recorded only if nobody else leads by then.
        """
        self._ending.set()
        self._wake.set()
        if self._loop.is_alive():
            self._loop.join(within)

    def _run(self) -> None:
        began = False
        while not self._ending.is_set():
            self._wake.clear()
            try:
                if not began:
                    deliveries.resume(self._db)
                    began = True
                self._hand_out()
            except LeadershipLost:
                break
            except Exception as error:  # noqa: BLE001 - what can't be sent now can be later
                self._tell(f"{type(error).__name__}: {error}")
                self._ending.wait(_TROUBLE_SECONDS)
            else:
                self._tell("")
                self._wake.wait(_LOOK_SECONDS)
        # those under way wake this thread as they end
        while self._busy():
            self._wake.wait(_LOOK_SECONDS)
            self._wake.clear()

    def _busy(self) -> dict[str, str]:
        with self._lock:
            return dict(self._under_way)

    def _hand_out(self) -> None:
        busy = self._busy()
        if len(busy) >= _AT_ONCE:
            return
        found = deliveries.due(self._db, busy.keys())
        lanes = Counter(busy.values())
        for each in sorted(found, key=lambda each: self._served.get(each.subscription_id, -1)):
            lane = _lane(each)
            if lanes.total() >= _AT_ONCE or self._ending.is_set():
                break
            if lanes[lane] >= _PER_LANE:
                continue
            lanes[lane] += 1
            self._turn += 1
            self._served[each.subscription_id] = self._turn
            with self._lock:
                self._under_way[each.subscription_id] = lane
            threading.Thread(target=self._try, args=(each,), name="notification", daemon=True).start()

    def _try(self, wanted: Due) -> None:
        try:
            message = deliveries.begin(self._db, wanted)
            if message is None:
                return
            crash.at("notify.after-intent")
            verdict = self._ways[message.channel].send(message)
            crash.at("notify.after-send")
            self._record(message, verdict)
        except LeadershipLost:
            self._ending.set()
        except JobsError as error:
            logger.warning("a notification waits: %s", error)
        except Exception:
            # its intent is recorded, so it is tried again, a minute later
            logger.exception("unexpected")
        finally:
            with self._lock:
                del self._under_way[wanted.subscription_id]
            self._wake.set()

    def _record(self, message: Message, verdict: Verdict) -> None:
        """Record what came of a try; while the database is away, for as long as this process leads.

        Giving up would send again what the receiver has.
        """
        recorded: bool | None = None
        while recorded is None:
            try:
                recorded = deliveries.settle(self._db, message, verdict)
            except LeadershipLost:
                raise
            except JobsError as error:
                self._tell(f"{type(error).__name__}: {error}")
                if self._ending.wait(_TROUBLE_SECONDS):
                    raise
        if recorded and not verdict.done:
            logger.warning(
                "notification not delivered: %s",
                verdict.error,
                extra={
                    "delivery_id": message.delivery_id,
                    "to": place(message.channel, message.target),
                    "attempt": message.attempt,
                },
            )

    def _tell(self, trouble: str) -> None:
        with self._lock:
            known, self._trouble = self._trouble, trouble
        if trouble != known:
            logger.warning("notifications: %s", trouble or "work again")


def _lane(due: Due) -> str:
    """Return what tries share that can hold each other up: a host, or the mail server."""
    if due.channel is Channel.EMAIL:
        return Channel.EMAIL.value
    with suppress(ValueError):
        return urlsplit(due.target).netloc
    return due.target
