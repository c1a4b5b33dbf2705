"""``autocode-jobs notify``: subscriptions made, shown and removed, deliveries shown and replayed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from autocode.jobs.cli.notify_desk import NotifyDesk, at_notify_desk
from autocode.jobs.cli.screen import Screen, local_time, plural
from autocode.jobs.errors import JobsError, UsageError
from autocode.jobs.ledger.subscriptions import place
from autocode.jobs.notification_resource import Channel, Delivery, DeliveryState, Ending, Subscription

__all__ = ["add", "deliveries", "enable", "remove", "replay", "show", "try_out"]

_TEST_SECONDS: Final = 45.0
"""How long the outcome of a test is waited for: longer than one try takes."""

_LOOK_SECONDS: Final = 0.2
_ALL: Final = 10_000


def add(
    *, webhook: str | None, email: str | None, kind: str | None, session: str | None, on: str, json: bool
) -> int:
    """Make a subscription, and show what signs it.

    Raises:
        SubscriptionExists: there is such a subscription already.
        UsageError: not one address, one that can't be, or an unknown end; nothing was changed.
    """
    screen = Screen(json_mode=json)
    if (webhook is None) == (email is None):
        raise UsageError("Say --webhook URL or --email ADDRESS, one of the two.")
    channel = Channel.WEBHOOK if webhook is not None else Channel.EMAIL
    target = webhook if webhook is not None else email
    assert target is not None
    with at_notify_desk() as desk:
        made = desk.subscribe(channel, target, kind, session, _endings(on))
        served = desk.served
    if json:
        screen.emit(made.model_dump(mode="json"))
        return 0
    screen.say(made.subscription_id, style="bold")
    if made.secret is not None:
        screen.row("secret", made.secret)
        screen.note("It signs what is sent, and isn't shown again.")
    screen.row("try it", f"autocode-jobs notify test {made.subscription_id}")
    if not served:
        screen.note("No service runs; what ends is told once one does.")
    return 0


def show(*, json: bool) -> int:
    """Show all subscriptions."""
    screen = Screen(json_mode=json)
    with at_notify_desk() as desk:
        found = desk.subscriptions()
    for each in found:
        if json:
            screen.emit(each.model_dump(mode="json", exclude={"secret"}))
        else:
            screen.say(_told(each))
    if not found and not json:
        screen.note("Nobody is told. See: autocode-jobs notify add --help")
    return 0


def remove(subscription_id: str) -> int:
    """Remove a subscription.

    Raises:
        SubscriptionNotFound: there is none of this id.
    """
    with at_notify_desk() as desk:
        desk.remove(subscription_id)
    Screen().say(f"{subscription_id}  removed")
    return 0


def enable(subscription_id: str) -> int:
    """Let a disabled subscription be told again.

    Raises:
        SubscriptionNotFound: there is none of this id.
    """
    with at_notify_desk() as desk:
        desk.enable(subscription_id)
    Screen().say(f"{subscription_id}  enabled")
    return 0


def try_out(subscription_id: str, *, json: bool) -> int:
    """Send a test, wait for what comes of it, and say so; return 1 unless the receiver got it.

    Raises:
        SubscriptionDisabled: nothing is sent there.
        SubscriptionNotFound: there is none of this id.
    """
    screen = Screen(json_mode=json)
    with at_notify_desk() as desk:
        served = desk.served
        planned = desk.send_test(subscription_id)
        found = _over(desk, planned) if served else planned
    if json:
        screen.emit(found.model_dump(mode="json"))
    elif found.state is DeliveryState.DONE:
        screen.say(f"{found.delivery_id}  the receiver got it", style="green")
    elif not served:
        screen.fail("No service runs that could send it; it is sent once one does.", "autocode-jobs up")
    else:
        screen.fail(
            f"The receiver didn't get it: {found.last_error or found.state}.",
            "Mend the receiver or the settings, and try again.",
        )
    return 0 if found.state is DeliveryState.DONE else 1


def deliveries(*, state: str | None, job: str | None, limit: int, json: bool) -> int:
    """Show deliveries, newest first."""
    screen = Screen(json_mode=json)
    with at_notify_desk() as desk:
        found = desk.deliveries(None if state is None else DeliveryState(state), job, limit)
    for each in found:
        if json:
            screen.emit(each.model_dump(mode="json"))
        else:
            screen.say(_line(each))
    if not found and not json:
        screen.note("There is none.")
    return 0


def replay(ids: Sequence[str], *, all_dead: bool, reason: str, json: bool) -> int:
    """Send deliveries again; return 1 if one of them was refused.

    Raises:
        DeliveryNotFound: the only one that was named doesn't exist.
        DeliveryOpen: the only one that was named is still under way.
        SubscriptionDisabled: nothing is sent to the receiver of the only one that was named.
        UsageError: none was chosen, or both ways were taken; nothing was changed.
    """
    screen = Screen(json_mode=json)
    if bool(ids) == all_dead:
        raise UsageError("Name deliveries, or say --all-dead; one of the two.")
    refused = 0
    with at_notify_desk() as desk:
        dead = desk.deliveries(DeliveryState.DEAD, None, _ALL) if all_dead else []
        chosen = list(dict.fromkeys(ids or [each.delivery_id for each in dead]))
        for each in chosen:
            try:
                planned = desk.replay(each, reason)
            except JobsError as error:
                if len(chosen) == 1:
                    raise
                refused += 1
                screen.fail(error.detail, error.hint)
                continue
            if json:
                screen.emit(planned.model_dump(mode="json"))
    if not json:
        screen.say(f"{plural(len(chosen) - refused, 'delivery', 'deliveries')} to be sent again")
    return 1 if refused else 0


def _endings(on: str) -> list[Ending]:
    words = [word.strip() for word in on.split(",") if word.strip()]
    unknown = [word for word in words if word not in set(Ending)]
    if unknown or not words:
        raise UsageError(
            f"--on takes no {unknown[0]!r}." if unknown else "--on names no end.",
            hint=f"It takes {', '.join(Ending)}, separated by commas.",
        )
    return [Ending(word) for word in words]


def _over(desk: NotifyDesk, planned: Delivery) -> Delivery:
    until = time.monotonic() + _TEST_SECONDS
    found = planned
    while found.ended_at is None and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
        found = desk.delivery(planned.delivery_id)
    return found


def _told(each: Subscription) -> str:
    limits = [
        *([f"kind {each.kind}"] if each.kind else []),
        *([f"session {each.session_id}"] if each.session_id else []),
        *([f"of {plural(len(each.sessions), 'session')}"] if each.sessions is not None else []),
    ]
    about = ", ".join(each.events) + (f" ({', '.join(limits)})" if limits else "")
    disabled = f"  DISABLED: {each.disabled_why}" if each.disabled_at else ""
    return f"{each.subscription_id}  {each.channel}  {place(each.channel, each.target)}  {about}{disabled}"


def _line(each: Delivery) -> str:
    tries = f"tried {each.attempts} of {each.max_attempts}"
    why = f": {each.last_error}" if each.last_error else ""
    next_at = f", again at {local_time(each.next_at)}" if each.next_at and each.attempts else ""
    return (
        f"{each.delivery_id}  {local_time(each.created_at)}  {each.state} ({tries}{next_at})"
        f"  {each.type}  {each.job_id or '-'}  {place(each.channel, each.target)}{why}"
    )
