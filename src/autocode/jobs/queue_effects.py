"""Idempotency records: an effect that must not repeat happens once, as far as that can be known."""

from __future__ import annotations

import threading
from collections.abc import Callable, MutableMapping
from typing import Any, TypeVar, cast

from autocode.jobs.errors import UsageError

__all__ = ["EffectLog"]

T = TypeVar("T")


class EffectLog:
    """Remembers which effects happened, by key: the intent is written first, the result after the effect.

    One window remains, and no record can close it: a crash after the effect and before its result is
    written leaves an intent of which nobody knows whether it was carried out. The effect is then repeated.
    So hand the same key to the receiver: one that knows idempotency keys drops the repeat. With a receiver
    that doesn't, the effect may happen twice, and :meth:`in_doubt` lists where.

    Args:
        records: where the records are kept, key to a JSON object; a plain dict, which dies with the
            process, unless a mapping that lasts is given (a ``shelve``, say). Each write must be atomic.
    """

    def __init__(self, records: MutableMapping[str, dict[str, Any]] | None = None) -> None:
        self._records = records if records is not None else {}
        self._changed = threading.Condition()
        self._owners: dict[str, int] = {}

    def once(self, key: str, effect: Callable[[], T]) -> T:
        """Call *effect* unless it has succeeded under *key* before; return its result, the first one's.

        Threads that ask for the same key at the same time wait for the one that came first. If *effect*
        raises, the error goes to the caller, the intent stays in doubt, and the next call repeats it.

        Raises:
            UsageError: *effect* asks for its own key.
        """
        me = threading.get_ident()
        with self._changed:
            while key in self._owners:
                if self._owners[key] == me:
                    raise UsageError(
                        f"The effect {key!r} waits for itself.", hint="Give the inner effect another key."
                    )
                self._changed.wait()
            record = self._records.get(key)
            if record is not None and record["state"] == "done":
                return cast("T", record["result"])
            self._records[key] = {"state": "intended"}
            self._owners[key] = me
        try:
            result = effect()
            # only this thread owns the key, so the record needs the lock for the mapping's sake alone
            with self._changed:
                self._records[key] = {"state": "done", "result": result}
        finally:
            with self._changed:
                del self._owners[key]
                self._changed.notify_all()
        return result

    def in_doubt(self) -> list[str]:
        """Return the keys of effects that were begun and may or may not have happened, sorted.

        An effect that is being carried out at this moment is among them.
        """
        with self._changed:
            return sorted(key for key, record in self._records.items() if record["state"] == "intended")
