"""Checkpoints, memo, references and effects: committed together, under the fence."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from autocode.jobs.canonical import digest_of
from autocode.jobs.errors import AttemptEnded
from autocode.jobs.ledger import attempts, checkpoints, effects, queries, reports, results, retries, schema
from autocode.jobs.ledger.database import Database
from autocode.jobs.projection import Outcome
from ledger_world import begin, commit, contents, facts_of, look, memo_key, produced, rows, started


def holders(database: Database, text: str) -> set[str]:
    """Return who references the object whose bytes are *text*."""
    found = rows(database, schema.references, schema.references.c.digest == digest_of(text.encode()))
    return {row.holder for row in found}


def history(database: Database) -> list[tuple[int, str, str, int, bool]]:
    """Return the job's checkpoints."""
    return [
        (row.seq, row.step, row.digest, row.attempt, row.reused) for row in rows(database, schema.checkpoints)
    ]


def test_a_step_commits_memo_checkpoint_and_references(database: Database) -> None:
    """One commit leaves a memo, a checkpoint, references of both, and an event."""
    attempt = started(database)

    commit(database, attempt, "a")

    key = memo_key(inputs="a")
    assert checkpoints.lookup(database, key) == produced("a")
    assert history(database) == [(1, "read a", produced("a").digest, 1, False)]
    assert holders(database, "a") == {key.holder, "job:job"}
    assert facts_of(database) == ["enqueued", "begun", "checkpoint"]


def test_steps_that_are_committed_together_are_as_if_each_had_been_alone(database: Database) -> None:
    """One transaction numbers checkpoints in order, leaves out what is there, and holds every object."""
    attempt = started(database)
    commit(database, attempt, "b")
    texts = [f"{number:03}" for number in range(300)]
    steps = [
        checkpoints.StepCommit(memo_key(inputs=text), produced(text), f"read {text}", reused=False)
        for text in ["c", "b", *texts]
    ]

    checkpoints.reserve_all(database, attempt, [(each.produced.digest, each.produced.size) for each in steps])
    checkpoints.commit_steps(database, attempt, steps)

    assert [(seq, step) for seq, step, *_ in history(database)] == list(
        enumerate(["read b", "read c", *(f"read {text}" for text in texts)], 1)
    )
    assert facts_of(database) == ["enqueued", "begun"] + ["checkpoint"] * 302
    for text in ("b", "c", "000", "299"):
        assert {memo_key(inputs=text).holder, "job:job"} <= holders(database, text)
    keys = [memo_key(inputs=text) for text in [*texts, "nothing"]]
    assert checkpoints.lookup_all(database, keys) == {memo_key(inputs=text): produced(text) for text in texts}


def test_checkpoints_are_numbered_without_gaps(database: Database) -> None:
    """Checkpoints of a job count from one, across attempts, whatever other jobs do."""
    attempt, other = started(database), started(database, "other")
    commit(database, attempt, "a")
    commit(database, other, "a")
    commit(database, attempt, "b")
    attempts.end(database, "job", 1, Outcome.CRASHED)
    commit(database, begin(database, n=2), "c")

    mine = rows(database, schema.checkpoints, schema.checkpoints.c.job_id == "job")

    assert [(row.seq, row.step, row.attempt) for row in mine] == [
        (1, "read a", 1),
        (2, "read b", 1),
        (3, "read c", 2),
    ]


def test_the_same_checkpoint_is_not_written_again(database: Database) -> None:
    """An attempt that repeats a step with the same result adds nothing to the history, and no event."""
    attempt = started(database)
    commit(database, attempt, "a")
    attempts.end(database, "job", 1, Outcome.CRASHED)
    second = begin(database, n=2)

    commit(database, second, "a", reused=True)

    assert history(database) == [(1, "read a", produced("a").digest, 1, False)]
    assert facts_of(database).count("checkpoint") == 1


def test_another_digest_for_a_step_is_a_new_checkpoint(database: Database) -> None:
    """A step that produced something else leaves a checkpoint of its own; going back leaves a third."""
    attempt = started(database)

    for text in ("a", "b", "a"):
        commit(database, attempt, text, label="read")

    assert [(seq, digest) for seq, _, digest, _, _ in history(database)] == [
        (1, produced("a").digest),
        (2, produced("b").digest),
        (3, produced("a").digest),
    ]


def test_the_resource_shows_history_and_reuse(database: Database) -> None:
    """What people see names every checkpoint, who wrote it, and what came from the memo."""
    attempt = started(database)
    commit(database, attempt, "a")
    commit(database, attempt, "b", reused=True)
    look(database)

    job = queries.get(database, "job")

    assert [(entry.seq, entry.step, entry.reused) for entry in job.history] == [
        (1, "read a", False),
        (2, "read b", True),
    ]
    assert job.checkpoint is not None
    assert (job.checkpoint.seq, job.checkpoint.digest) == (2, produced("b").digest)
    assert job.times.checkpoint_at == job.checkpoint.at


@pytest.mark.parametrize("label", ["x" * 1000, "read 漢/😀", "read a:b"])
def test_any_label_that_a_path_may_give(database: Database, label: str) -> None:
    """A step's label may be as long as a path, in any alphabet, on both databases."""
    attempt = started(database)

    commit(database, attempt, "a", label=label)

    assert history(database)[0][1] == label


def test_long_names_have_holders(database: Database) -> None:
    """Names as long as the schema allows fit into what holds their objects."""
    attempt = started(database, job_id="j" * 128, kind="k" * 128)
    key = checkpoints.MemoKey("k" * 128, "s" * 128, 10, digest_of(b"in"))

    checkpoints.commit_step(database, attempt, key, produced("a"), label="s", reused=False)

    assert checkpoints.lookup(database, key) == produced("a")


def test_lookup_misses_on_any_other_key(database: Database) -> None:
    """A memo is found by kind, step, revision and inputs together."""
    attempt = started(database)
    commit(database, attempt, "a")
    found = memo_key(inputs="a")
    others = [
        checkpoints.MemoKey("other", found.step, found.revision, found.inputs),
        checkpoints.MemoKey(found.kind, "other", found.revision, found.inputs),
        checkpoints.MemoKey(found.kind, found.step, 2, found.inputs),
        checkpoints.MemoKey(found.kind, found.step, found.revision, digest_of(b"other")),
    ]

    assert [checkpoints.lookup(database, key) for key in others] == [None] * 4


def test_lookup_names_what_the_object_needs(database: Database) -> None:
    """A memo hit comes with the objects without which it means nothing."""
    attempt = started(database)
    for text in ("part-1", "part-2"):
        checkpoints.reserve(database, attempt, produced(text).digest, len(text))
    whole = produced("whole", "part-1", "part-2")

    checkpoints.commit_step(database, attempt, memo_key(), whole, label="bundle", reused=False)

    found = checkpoints.lookup(database, memo_key())
    assert found is not None
    assert (found.digest, found.size, found.media_type) == (whole.digest, whole.size, whole.media_type)
    assert found.needs == tuple(sorted(whole.needs))


def test_a_needed_object_must_be_known(database: Database) -> None:
    """A step that names an object which nobody reserved commits nothing."""
    attempt = started(database)
    before = contents(database)

    with pytest.raises(sa.exc.IntegrityError):
        checkpoints.commit_step(
            database, attempt, memo_key(), produced("whole", "unknown"), label="bundle", reused=False
        )

    assert contents(database) == before


def test_forget_drops_the_memo_alone(database: Database) -> None:
    """A damaged memo is forgotten; the job's own reference and checkpoint stay. Twice is as once."""
    attempt = started(database)
    commit(database, attempt, "a")
    key = memo_key(inputs="a")

    checkpoints.forget(database, key)
    once = contents(database)
    checkpoints.forget(database, key)

    assert checkpoints.lookup(database, key) is None
    assert holders(database, "a") == {"job:job"}
    assert len(history(database)) == 1
    assert contents(database) == once


def test_a_new_product_replaces_the_memo(database: Database) -> None:
    """The memo holds the newest product, and lets go of the one before."""
    attempt = started(database)
    key = memo_key()
    for text in ("old", "new"):
        checkpoints.commit_step(database, attempt, key, produced(text), label="read", reused=False)

    assert checkpoints.lookup(database, key) == produced("new")
    assert holders(database, "old") == {"job:job"}
    assert holders(database, "new") == {"job:job", key.holder}


def test_references_of_an_attempt_end_with_it(database: Database) -> None:
    """What an attempt held tentatively is let go at its end; what memo, job and result hold stays."""
    attempt = started(database)
    for text in ("tentative", "a", "result"):
        checkpoints.reserve(database, attempt, produced(text).digest, len(text))
    commit(database, attempt, "a")
    assert holders(database, "tentative") == {"attempt:job:1"}

    results.commit_result(database, attempt, produced("result"))

    assert holders(database, "tentative") == set()
    assert holders(database, "a") == {memo_key(inputs="a").holder, "job:job"}
    assert holders(database, "result") == {"result:job"}


def test_references_of_other_attempts_stay(database: Database) -> None:
    """The end of one attempt lets go of nothing that another attempt holds, whatever its number."""
    first = started(database, max_attempts=30)
    checkpoints.reserve(database, first, produced("a").digest, 1)
    for n in range(1, 11):
        attempts.end(database, "job", n, Outcome.INTERRUPTED)
    eleventh = begin(database, n=11)
    checkpoints.reserve(database, eleventh, produced("a").digest, 1)
    other = started(database, "other")
    checkpoints.reserve(database, other, produced("a").digest, 1)

    attempts.end(database, "other", 1, Outcome.FAILED)

    assert holders(database, "a") == {"attempt:job:11"}


def test_reserve_is_idempotent_and_revives(database: Database) -> None:
    """Reserving again changes no reference, and an object that prune had marked is live again."""
    attempt = started(database)
    checkpoints.reserve(database, attempt, produced("a").digest, 1)
    with database.write() as tx:
        tx.execute(sa.update(schema.objects).values(state="deleting"))

    checkpoints.reserve(database, attempt, produced("a").digest, 1)

    assert [row.state for row in rows(database, schema.objects)] == ["live"]
    assert holders(database, "a") == {"attempt:job:1"}


def test_an_effect_is_new_once(database: Database) -> None:
    """The first intent is new; a later attempt learns that the effect may have happened, or that it did."""
    first = started(database)
    new = effects.intend(database, first, "mail:job")
    attempts.end(database, "job", 1, Outcome.CRASHED)
    second = begin(database, n=2)
    maybe = effects.intend(database, second, "mail:job")
    effects.finish_effect(database, second, "mail:job", {"id": "m-1"})
    done = effects.intend(database, second, "mail:job")

    assert (new.new, new.done) == (True, False)
    assert (maybe.new, maybe.done, maybe.result) == (False, False, None)
    assert (done.new, done.done, done.result) == (False, True, {"id": "m-1"})


def test_an_effect_that_happened_stays_recorded(database: Database) -> None:
    """The first result of an effect stays, and it is recorded even when the attempt was ended meanwhile."""
    stale = started(database)
    effects.intend(database, stale, "mail:job")
    attempts.end(database, "job", 1, Outcome.LOST)

    effects.finish_effect(database, stale, "mail:job", "first")
    effects.finish_effect(database, stale, "mail:job", "second")

    assert effects.intend(database, begin(database, n=2), "mail:job").result == "first"


def test_a_stale_attempt_intends_nothing(database: Database) -> None:
    """An attempt that was ended can't begin an effect."""
    stale = started(database)
    attempts.end(database, "job", 1, Outcome.LOST)

    with pytest.raises(AttemptEnded):
        effects.intend(database, stale, "mail:job")

    assert rows(database, schema.effects) == []


def fence_of(database: Database, text: str) -> int:
    """Return the fence of the memo under the inputs of *text*."""
    [row] = rows(database, schema.memo, schema.memo.c.inputs == memo_key(inputs=text).inputs)
    return int(row.fence)


def test_a_memo_has_the_fence_of_its_maker(database: Database) -> None:
    """Reusing a memo leaves its fence; making the object again moves it."""
    maker, user = started(database, "maker"), started(database, "user")
    commit(database, maker, "a")
    made = fence_of(database, "a")
    commit(database, user, "a", reused=True)
    reused = fence_of(database, "a")

    commit(database, user, "a")

    assert (made, reused, fence_of(database, "a")) == (maker.fence, maker.fence, user.fence)


def test_a_reused_object_that_another_replaced_has_no_maker(database: Database) -> None:
    """Who brings back an object that the memo no longer names doesn't pass it off as the newer one's."""
    attempt, other = started(database, "one"), started(database, "two")
    key = memo_key()
    checkpoints.commit_step(database, attempt, key, produced("old"), label="read", reused=False)
    checkpoints.commit_step(database, other, key, produced("new"), label="read", reused=False)

    checkpoints.commit_step(database, attempt, key, produced("old"), label="read", reused=True)

    assert checkpoints.lookup(database, key) == produced("old")
    assert checkpoints.lookup(database, key, above=0) is None


def test_a_fresh_start_sees_only_what_was_made_since(database: Database) -> None:
    """What was made at or below a fence doesn't count above it; without a fence everything does."""
    early, late = started(database, "early"), started(database, "late")
    commit(database, early, "a")
    commit(database, late, "b")
    keys = [memo_key(inputs=text) for text in "ab"]

    assert set(checkpoints.lookup_all(database, keys)) == set(keys)
    assert set(checkpoints.lookup_all(database, keys, above=early.fence)) == {keys[1]}
    assert checkpoints.lookup_all(database, keys, above=late.fence) == {}


def test_a_fresh_run_records_its_checkpoints_anew(database: Database) -> None:
    """From the start: a step that is done again with the same object is in the history again, but once."""
    attempt = started(database, max_attempts=1)
    commit(database, attempt, "a")
    commit(database, attempt, "b")
    attempts.end(database, "job", 1, Outcome.FAILED)
    look(database)
    retries.request_retry(database, "job", actor="ann", reason="doubt", start="start", attempts=2)
    fresh = begin(database, n=2)
    commit(database, fresh, "a")
    attempts.end(database, "job", 2, Outcome.CRASHED)

    again = begin(database, n=3)
    reusable = checkpoints.lookup(database, memo_key(inputs="a"), above=again.fresh_fence)
    commit(database, again, "a", reused=True)
    commit(database, again, "b")

    assert reusable == produced("a")
    assert [(row.seq, row.step, row.attempt) for row in rows(database, schema.checkpoints)] == [
        (1, "read a", 1),
        (2, "read b", 1),
        (3, "read a", 2),
        (4, "read b", 3),
    ]


def test_a_report_counts_and_lists_the_checkpoints_that_an_attempt_ended_with(database: Database) -> None:
    """A report tells new ones from reused and earlier ones, leaves later ones out, and lists few rows."""
    first = started(database)
    steps = [
        checkpoints.StepCommit(memo_key(inputs=text), produced(text), f"read {text}", reused=text == "0")
        for text in map(str, range(reports.NEWEST))
    ]
    for each in steps:
        checkpoints.reserve(database, first, each.produced.digest, each.produced.size)
    checkpoints.commit_steps(database, first, steps)
    attempts.end(database, "job", 1, Outcome.CRASHED)
    second = begin(database, "job", 2)
    commit(database, second, "last")
    results.commit_result(database, second, produced("last"))

    of_first = reports.attempt_report(database, "job", 1)
    of_second = reports.attempt_report(database, "job", 2)

    assert (of_first.new, of_first.reused, of_first.earlier) == (reports.NEWEST - 1, 1, 0)
    assert (of_second.new, of_second.reused, of_second.earlier) == (1, 0, reports.NEWEST)
    assert [row.seq for row in of_second.newest] == list(range(2, reports.NEWEST + 2))
    assert (of_first.result, of_second.result) == (None, produced("last"))
