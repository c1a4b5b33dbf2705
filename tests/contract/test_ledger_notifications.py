"""Notifications in the ledger: who is told of which ending, once, and what is recorded around each try."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from autocode.jobs import crash
from autocode.jobs.errors import LeadershipLost, UsageError
from autocode.jobs.ledger import access, attempts, audit, deliveries, delivery_desk, jobs, results, retries
from autocode.jobs.ledger import schema_notifications as n
from autocode.jobs.ledger import subscriptions as subs
from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.deliveries import ATTEMPTS, Due, Message, Verdict
from autocode.jobs.ledger.delivery_desk import Chosen
from autocode.jobs.ledger.events import Fact, record
from autocode.jobs.ledger.leaders import Leadership, assert_leading
from autocode.jobs.ledger.subscriptions import NewSubscription, Watcher
from autocode.jobs.notification_errors import (
    DeliveryNotFound,
    DeliveryOpen,
    SubscriptionDisabled,
    SubscriptionExists,
    SubscriptionNotFound,
)
from autocode.jobs.notification_resource import Channel, Delivery, DeliveryState, Ending
from autocode.jobs.projection import Outcome
from ledger_world import begin, contents, in_threads, look, new_job, problem, produced, rows, started, told

URL = "https://hooks.example/one"
ADA = Watcher("ada (token 0)")
LOST = Verdict(done=False, error="answered 500", retry_in=0.0)
DONE = Verdict(done=True)


def subscribe(db: Database, *, watcher: Watcher = ADA, target: str = URL, **wish: Any) -> str:
    """Subscribe a webhook; return its id."""
    return subs.subscribe(db, NewSubscription(Channel.WEBHOOK, target, **wish), watcher).subscription_id


def complete(db: Database, job_id: str = "job", **changes: Any) -> None:
    """Let a job end with a result, and look."""
    results.commit_result(db, started(db, job_id, **changes), produced(job_id))
    results.mark_verified(db, job_id, produced(job_id).digest)
    look(db, job_id)


def die(db: Database, job_id: str = "job", **changes: Any) -> None:
    """Let a job die of a permanent error, and look."""
    started(db, job_id, **changes)
    attempts.end(db, job_id, 1, Outcome.PERMANENT, error=problem())
    look(db, job_id)


def sent(db: Database, **chosen: Any) -> list[Delivery]:
    """Return the deliveries, oldest first."""
    return list(reversed(delivery_desk.page(db, ADA, Chosen(**chosen)).deliveries))


def first_due(db: Database) -> Due:
    """Return the one delivery that is due."""
    [found] = deliveries.due(db, ())
    return found


def tried(db: Database, verdict: Verdict) -> Message:
    """Try the one delivery that is due."""
    message = deliveries.begin(db, first_due(db))
    assert message is not None
    assert deliveries.settle(db, message, verdict)
    return message


def test_an_ending_is_told_once(database: Database) -> None:
    """However often somebody looks, a job that ended leaves one delivery, of the event that ended it."""
    subscribe(database)
    complete(database)
    look(database)

    [delivery] = sent(database)
    ending = told(database)[-1]
    assert (delivery.job_id, delivery.type, delivery.state) == ("job", "job.complete", "planned")
    assert (delivery.cursor, delivery.rev) == (ending["cursor"], ending["rev"])


def test_nothing_else_is_told(database: Database) -> None:
    """Attempts that begin and end, checkpoints and retries are no endings."""
    subscribe(database)
    started(database)
    look(database)
    attempts.end(database, "job", 1, Outcome.FAILED, error=problem())
    look(database)
    begin(database, n=2)
    look(database)

    assert sent(database) == []


def test_facts_after_the_end_are_no_ending(database: Database) -> None:
    """What is told of a job that is over already leads to no second delivery."""
    subscribe(database)
    die(database)
    with database.write() as tx:
        jobs.lock(tx, "job")
        record(tx, "job", Fact.ENDED, {}, database.clock.now())
    look(database)

    assert told(database)[-1]["data"]["status"] == "dead"
    assert len(sent(database)) == 1


def test_a_second_end_is_told_as_well(database: Database) -> None:
    """A job that dies again after a manual retry has ended twice, and is told twice."""
    subscribe(database)
    die(database)
    retries.request_retry(database, "job", actor="ada", reason="again")
    look(database)
    begin(database, n=2)
    attempts.end(database, "job", 2, Outcome.PERMANENT, error=problem())
    look(database)

    first, second = sent(database)
    assert first.cursor is not None
    assert second.cursor is not None
    assert first.cursor < second.cursor
    assert first.delivery_id != second.delivery_id


def test_a_whole_life_between_two_looks_is_told(database: Database) -> None:
    """An ending that was over before anybody looked is told with the resource right after it."""
    subscribe(database)
    die(database)
    retries.request_retry(database, "job", actor="ada", reason="again")
    results.commit_result(database, begin(database, n=2), produced("r"))
    results.mark_verified(database, "job", produced("r").digest)
    look(database)

    assert [each.type for each in sent(database)] == ["job.dead", "job.complete"]


@pytest.mark.parametrize(
    ("wish", "fits"),
    [
        ({}, True),
        ({"kind": "noop"}, True),
        ({"kind": "export"}, False),
        ({"session_id": "s-1"}, True),
        ({"session_id": "s-2"}, False),
        ({"events": (Ending.COMPLETE,)}, True),
        ({"events": (Ending.DEAD, Ending.CANCELLED)}, False),
    ],
)
def test_what_was_wished_for_is_told(database: Database, wish: dict[str, Any], fits: bool) -> None:
    """A subscription is told of its kind, its session and its endings, and of no others."""
    subscribe(database, **wish)

    complete(database, session_id="s-1")

    assert len(sent(database)) == fits


def test_a_job_that_was_called_off_is_told_to_who_wants_that(database: Database) -> None:
    """Calling off isn't told as a death: a person did it, and knows."""
    subscribe(database, events=(Ending.DEAD, Ending.COMPLETE))
    wanting = subscribe(database, target=f"{URL}/2", events=(Ending.CANCELLED,))
    jobs.enqueue(database, new_job())
    results.request_cancel(database, "job")
    look(database)

    assert [each.subscription_id for each in sent(database)] == [wanting]
    assert [each.type for each in sent(database)] == ["job.dead"]


@pytest.mark.parametrize(
    ("session", "reads", "fits"),
    [
        ("s-1", (), True),
        ("s-1", ("s-3",), True),
        (None, ("s-1", "s-3"), True),
        ("s-2", (), False),
        ("s-1", ("s-2",), False),
        ("s-2", ("s-1",), False),
        (None, ("s-1", "s-2"), False),
        (None, (), False),
        ("s-1", None, False),
        (None, None, False),
    ],
)
def test_nobody_is_told_what_they_may_not_see(
    database: Database, session: str | None, reads: tuple[str, ...] | None, fits: bool
) -> None:
    """The subscription of a caller with sessions of its own is told of jobs of these alone, and of no others.

    A job over two sessions is told to who may see both; one of which nobody knows what it reads, to neither.
    """
    subscribe(database, watcher=Watcher("eve", "t", frozenset({"s-1", "s-3"})))

    complete(database, session_id=session, reads=None if reads is None else frozenset(reads))

    assert len(sent(database)) == fits


def test_a_revoked_token_tells_nothing(database: Database) -> None:
    """Once a token is revoked its subscriptions are told nothing, also of what was planned before."""
    token = access.create_token(database, name="ci", role=Role.OPERATOR).principal
    subscribe(database, watcher=Watcher(token.actor, token.token_id))
    complete(database, "before")
    access.revoke(database, token.token_id)
    complete(database, "after")

    assert deliveries.begin(database, first_due(database)) is None

    [delivery] = sent(database)
    assert (delivery.job_id, delivery.state) == ("before", "dead")
    assert delivery.last_error == "the token that subscribed was revoked"


def test_a_stamp_that_fails_plans_nothing(database: Database) -> None:
    """What isn't committed isn't told: the delivery is part of the very transaction."""
    subscribe(database)
    started(database)
    attempts.end(database, "job", 1, Outcome.PERMANENT, error=problem())
    crash.arm("reconcile.before-commit=raise", tokens=None)
    with pytest.raises(crash.CrashRaised):
        look(database)
    crash.disarm()
    assert sent(database) == []

    look(database)

    assert len(sent(database)) == 1


def test_two_reconcilers_plan_one_delivery(database: Database) -> None:
    """When several stamp the same ending together it is told once."""
    subscribe(database)
    started(database)
    attempts.end(database, "job", 1, Outcome.PERMANENT, error=problem())

    in_threads(6, lambda _: look(database))

    assert len(sent(database)) == 1


def test_the_intent_is_recorded_before_the_try_and_the_end_after_it(database: Database) -> None:
    """Between the two the delivery is shown as being sent."""
    subscribe(database)
    complete(database)
    message = deliveries.begin(database, first_due(database))
    assert message is not None
    [between] = sent(database)

    assert deliveries.settle(database, message, DONE)

    [after] = sent(database)
    assert (between.state, between.attempts, between.intent_at is not None) == ("sending", 1, True)
    assert (after.state, after.attempts, after.next_at) == ("done", 1, None)
    assert deliveries.due(database, ()) == []


def test_a_message_is_the_event_as_it_was_told(database: Database) -> None:
    """What is sent is the job as it was right after its end, whatever came of it since."""
    subscribe(database)
    die(database)
    retries.request_retry(database, "job", actor="ada", reason="again")
    look(database)

    message = deliveries.begin(database, first_due(database))

    assert message is not None
    ending = next(event for event in told(database) if event["type"] == "job.dead")
    assert message.data == ending["data"]
    assert (message.type, message.at, message.cursor) == ("job.dead", ending["at"], ending["cursor"])
    assert message.secret is not None
    assert message.secret not in repr(message)


def test_of_several_senders_one_begins_a_try(database: Database) -> None:
    """The same try is begun once, whoever finds it due."""
    subscribe(database)
    complete(database)
    wanted = first_due(database)

    begun = in_threads(5, lambda _: deliveries.begin(database, wanted))

    assert sum(isinstance(each, Message) for each in begun) == 1
    assert [each.attempts for each in sent(database)] == [1]


def test_a_failed_try_waits_for_its_pause(database: Database) -> None:
    """A delivery whose try failed is due when its pause is over, and its error is shown."""
    subscribe(database)
    complete(database)

    tried(database, Verdict(done=False, error="answered 503", retry_in=3600.0))

    [delivery] = sent(database)
    assert (delivery.state, delivery.last_error) == ("planned", "answered 503")
    assert deliveries.due(database, ()) == []


def test_a_delivery_keeps_its_id_in_every_try(database: Database) -> None:
    """Each try has the id of the first, and the last of the budget gives it up."""
    subscribe(database)
    complete(database)

    messages = [tried(database, LOST) for _ in range(ATTEMPTS)]

    [delivery] = sent(database)
    assert {message.delivery_id for message in messages} == {delivery.delivery_id}
    assert [message.attempt for message in messages] == list(range(1, ATTEMPTS + 1))
    assert (delivery.state, delivery.last_error) == ("dead", "answered 500")


def test_a_try_that_nobody_recorded_is_due_for_the_next_leader(database: Database) -> None:
    """What a sender that died had begun is sent again at once by the next, under the same id."""
    subscribe(database)
    complete(database)
    lost = deliveries.begin(database, first_due(database))
    assert deliveries.due(database, ()) == []

    deliveries.resume(database)
    again = tried(database, DONE)

    assert lost is not None
    assert (again.delivery_id, again.attempt) == (lost.delivery_id, 2)
    assert not deliveries.settle(database, lost, Verdict(done=False, error="late", retry_in=None))
    assert [each.state for each in sent(database)] == ["done"]


def test_a_leader_that_was_deposed_records_nothing(database: Database) -> None:
    """Neither intent nor end is recorded by a sender whose term is over."""
    subscribe(database)
    complete(database)
    old = Leadership(database, "reconcile", "old")
    term = old.lead_or_wait()
    assert term is not None
    guarded = database.guarded(lambda tx: assert_leading(tx, "reconcile", term))
    message = deliveries.begin(guarded, first_due(database))
    assert message is not None
    Leadership(database, "reconcile", "new", gone=lambda _: True).lead_or_wait()
    before = contents(database)

    for late in (
        lambda: deliveries.settle(guarded, message, DONE),
        lambda: deliveries.resume(guarded),
        lambda: deliveries.begin(guarded, Due(message.delivery_id, "", Channel.WEBHOOK, "", 1)),
    ):
        with pytest.raises(LeadershipLost):
            late()

    assert contents(database) == before


def test_a_sender_that_dies_each_time_is_stopped(database: Database) -> None:
    """A delivery whose every try takes its process down is given up after its budget and three more."""
    subscribe(database)
    complete(database)

    begun = 0
    while deliveries.due(database, ()):
        begun += deliveries.begin(database, first_due(database)) is not None
        deliveries.resume(database)

    [delivery] = sent(database)
    assert begun == ATTEMPTS + 3
    assert (delivery.state, "death" in (delivery.last_error or "")) == ("dead", True)


def test_each_subscription_gets_its_turn(database: Database) -> None:
    """Of each subscription that isn't busy the delivery that waited longest is due."""
    one, two = subscribe(database), subscribe(database, target=f"{URL}/2")
    for job_id in ("a", "b"):
        complete(database, job_id)

    first = {each.subscription_id: each for each in deliveries.due(database, ())}
    rest = deliveries.due(database, {one})

    jobs_of = {each.delivery_id: each.job_id for each in sent(database)}
    assert {key: jobs_of[each.delivery_id] for key, each in first.items()} == {one: "a", two: "a"}
    assert [each.subscription_id for each in rest] == [two]


def test_a_receiver_that_is_gone_disables_its_subscription(database: Database) -> None:
    """Whoever answers that it is gone isn't told again: what waits is given up, and nothing is planned."""
    subscription = subscribe(database)
    for job_id in ("a", "b"):
        complete(database, job_id)
    tried(database, Verdict(done=False, error="answered 410", gone=True))
    complete(database, "c")

    assert [(each.job_id, each.state) for each in sent(database)] == [("a", "dead"), ("b", "dead")]
    [shown] = subs.listed(database, ADA)
    assert (shown.disabled_at is not None, shown.disabled_why) == (True, "answered 410")
    with pytest.raises(SubscriptionDisabled):
        delivery_desk.replay(database, sent(database)[0].delivery_id, ADA)

    subs.enable(database, subscription, ADA)
    delivery_desk.replay(database, sent(database)[0].delivery_id, ADA)
    complete(database, "d")

    assert [each.state for each in sent(database)] == ["planned", "dead", "planned"]


def test_what_was_given_up_can_be_sent_again(database: Database) -> None:
    """A replay keeps the id, gets a new budget, and is in the audit with its reason."""
    subscribe(database)
    complete(database)
    tried(database, Verdict(done=False, error="refused", retry_in=None))
    [dead] = sent(database, state=DeliveryState.DEAD)

    delivery_desk.replay(database, dead.delivery_id, ADA, reason="mended")
    messages = [tried(database, LOST) for _ in range(ATTEMPTS)]

    assert {message.delivery_id for message in messages} == {dead.delivery_id}
    assert [message.tries for message in messages] == list(range(1, ATTEMPTS + 1))
    assert [each.state for each in sent(database)] == ["dead"]
    [entry] = audit.entries(database, target=f"delivery:{dead.delivery_id}")
    assert (entry.actor, entry.action, entry.reason) == (ADA.actor, "replay", "mended")


def test_what_is_under_way_is_not_sent_again(database: Database) -> None:
    """A replay of a delivery that is planned is refused, and of two replays one."""
    subscribe(database)
    complete(database)
    [open_] = sent(database)
    with pytest.raises(DeliveryOpen):
        delivery_desk.replay(database, open_.delivery_id, ADA)
    tried(database, DONE)

    outcomes = in_threads(4, lambda _: delivery_desk.replay(database, open_.delivery_id, ADA))

    assert sum(isinstance(each, Delivery) for each in outcomes) == 1
    assert sum(isinstance(each, DeliveryOpen) for each in outcomes) == 3


def test_a_test_is_about_no_job_and_tried_once(database: Database) -> None:
    """A test goes the same way as any delivery, and its first failure is its end."""
    subscription = subscribe(database)

    planned = delivery_desk.send_test(database, subscription, ADA)
    message = tried(database, LOST)

    assert (planned.type, planned.job_id, planned.cursor) == ("job.test", None, None)
    assert (message.data, message.type) == (None, "job.test")
    assert delivery_desk.get(database, planned.delivery_id, ADA).state is DeliveryState.DEAD


def test_a_removed_subscription_forgets_its_secret(database: Database) -> None:
    """After the removal nothing is listed, signed, sent or sent again; what was sent stays."""
    subscription = subscribe(database)
    complete(database, "a")
    tried(database, DONE)
    complete(database, "b")

    subs.remove(database, subscription, ADA)
    complete(database, "c")

    [row] = rows(database, n.subscriptions)
    assert row.secret is None
    assert subs.listed(database, ADA) == []
    assert [(each.job_id, each.state) for each in sent(database)] == [("a", "done"), ("b", "dead")]
    with pytest.raises(SubscriptionNotFound):
        subs.remove(database, subscription, ADA)
    with pytest.raises(SubscriptionDisabled):
        delivery_desk.replay(database, sent(database)[1].delivery_id, ADA)


def test_a_removal_during_a_try_ends_it(database: Database) -> None:
    """A try that is under way when its subscription is removed isn't recorded as anything else."""
    subscription = subscribe(database)
    complete(database)
    message = deliveries.begin(database, first_due(database))
    subs.remove(database, subscription, ADA)

    assert message is not None
    assert not deliveries.settle(database, message, LOST)
    assert [each.state for each in sent(database)] == ["dead"]


def test_the_secret_is_shown_once(database: Database) -> None:
    """A webhook's secret is in the answer that made it, 256 random bits, and nowhere else that is shown."""
    made = subs.subscribe(database, NewSubscription(Channel.WEBHOOK, URL), ADA)
    mail = subs.subscribe(database, NewSubscription(Channel.EMAIL, "ada@example.org"), ADA)

    shown = subs.listed(database, ADA)

    assert made.secret is not None
    assert made.secret.startswith("whsec_")
    assert mail.secret is None
    assert [each.secret for each in shown] == [None, None]
    assert made.secret not in str(contents(database)["audit"])


def test_the_audit_shows_hosts_and_no_paths(database: Database) -> None:
    """The path of a webhook may be a secret by itself, so the audit names its host alone."""
    subscription = subscribe(database, target="https://hooks.example/T0/very-secret?key=1")
    subs.remove(database, subscription, ADA)

    entries = audit.entries(database, target=f"subscription:{subscription}")
    assert [entry.action for entry in entries] == ["subscribe", "unsubscribe"]
    assert {entry.data["place"] for entry in entries} == {"https://hooks.example"}
    assert "very-secret" not in str(contents(database)["audit"])
    assert audit.broken_link(database) is None


def test_the_same_wish_is_refused(database: Database) -> None:
    """Who asks twice, also at once, is told of the subscription that there is; another wish is another."""
    outcomes = in_threads(4, lambda _: subscribe(database))

    made = [each for each in outcomes if isinstance(each, str)]
    refused = [each for each in outcomes if isinstance(each, SubscriptionExists)]
    assert (len(made), len(refused)) == (1, 3)
    assert {each.data["subscription_id"] for each in refused} == set(made)
    assert subscribe(database, kind="noop") not in made
    subs.remove(database, made[0], ADA)
    assert subscribe(database) not in made


@pytest.mark.parametrize("wish", [{"events": ()}, {"kind": "a\x00"}, {"session_id": "\ud800"}])
def test_a_senseless_wish_changes_nothing(database: Database, wish: dict[str, Any]) -> None:
    """What can't be stored or means nothing is refused before anything is written."""
    before = contents(database)

    with pytest.raises(UsageError):
        subscribe(database, **wish)

    assert contents(database) == before


def test_a_caller_knows_what_reaches_no_further_than_itself(database: Database) -> None:
    """A caller with sessions of its own sees subscriptions of these alone, and their deliveries."""
    wide = subscribe(database)
    mine = subscribe(database, watcher=Watcher("eve", "t", frozenset({"s-1"})))
    complete(database, session_id="s-1", reads=frozenset())
    eve = Watcher("eve", "t", frozenset({"s-1", "s-2"}))
    other = Watcher("joe", "u", frozenset({"s-2"}))

    assert [each.subscription_id for each in subs.listed(database, eve)] == [mine]
    assert subs.listed(database, other) == []
    seen = delivery_desk.page(database, eve).deliveries
    assert [each.subscription_id for each in seen] == [mine]
    hidden = next(each for each in sent(database) if each.subscription_id == wide)
    for refused in (
        lambda: subs.remove(database, wide, eve),
        lambda: subs.enable(database, wide, eve),
        lambda: delivery_desk.send_test(database, wide, eve),
        lambda: subs.get(database, mine, other),
    ):
        with pytest.raises(SubscriptionNotFound):
            refused()
    for unknown in (hidden.delivery_id, "msg_none", "a\x00", "é"):
        with pytest.raises(DeliveryNotFound):
            delivery_desk.replay(database, unknown, eve)


def test_deliveries_come_in_pages(database: Database) -> None:
    """Pages have every delivery once, newest first, though more come meanwhile; a bad token is refused."""
    subscribe(database)
    for number in range(5):
        complete(database, f"job-{number}")

    first = delivery_desk.page(database, ADA, size=2)
    complete(database, "later")
    rest: list[str | None] = []
    token = first.next_token
    while token is not None:
        page = delivery_desk.page(database, ADA, size=2, token=token)
        rest += [each.job_id for each in page.deliveries]
        token = page.next_token

    assert [each.job_id for each in first.deliveries] == ["job-4", "job-3"]
    assert rest == ["job-2", "job-1", "job-0"]
    for bad in ("x", "bnVsbA", "é"):
        with pytest.raises(UsageError):
            delivery_desk.page(database, ADA, token=bad)
    with pytest.raises(UsageError):
        delivery_desk.page(database, ADA, size=0)


def test_deliveries_can_be_chosen(database: Database) -> None:
    """By state, job and subscription."""
    one, two = subscribe(database), subscribe(database, target=f"{URL}/2")
    complete(database, "a")
    complete(database, "b")
    for wanted in deliveries.due(database, {two}):
        message = deliveries.begin(database, wanted)
        assert message is not None
        deliveries.settle(database, message, DONE)

    assert [each.job_id for each in sent(database, state=DeliveryState.DONE)] == ["a"]
    assert len(sent(database, job_id="b")) == 2
    assert len(sent(database, subscription_id=one, job_id="a")) == 1


def test_one_ending_can_never_be_planned_twice(database: Database) -> None:
    """The database itself refuses a second delivery of the same event to the same subscription."""
    subscribe(database)
    complete(database)
    [row] = rows(database, n.deliveries)

    with pytest.raises(sa.exc.IntegrityError), database.write() as tx:
        tx.execute(sa.insert(n.deliveries).values(**{**row._mapping, "delivery_id": "msg_other"}))
