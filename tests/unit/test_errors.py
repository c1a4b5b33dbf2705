"""The error tree: what every class promises to clients, and that nothing is lost on the way."""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections.abc import Iterator
from types import ModuleType

import pytest

from autocode.jobs import crash, errors, notification_errors, request_errors
from autocode.jobs.errors import JobsError, Permanent, Transient, UsageError, describe, is_transient


def descendants(cls: type[JobsError]) -> Iterator[type[JobsError]]:
    """Yield *cls* and every class of the package below it."""
    yield cls
    for child in cls.__subclasses__():
        if child.__module__.startswith("autocode.jobs."):
            yield from descendants(child)


ALL = sorted(set(descendants(JobsError)) | {crash.CrashRaised}, key=lambda cls: cls.__name__)


@pytest.mark.parametrize("module", [request_errors, notification_errors], ids=lambda module: module.__name__)
def test_the_errors_of_requests_have_modules_of_their_own(module: ModuleType) -> None:
    """What a request is refused with is exported where it stands, sorted, and drawn there."""
    real = [cls.__name__ for cls in ALL if cls.__module__ == module.__name__]

    assert module.__all__ == real
    assert [name for name in real if f"── {name}" not in (module.__doc__ or "")] == []


def drawn_tree() -> dict[str, str | None]:
    """Read the tree in the module's docstring as class name to parent name."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.fullmatch(r"    (?P<stem>(?:│   |    )*)(?P<branch>[├└]── )?(?P<name>\w+)(?: .*)?", line)
        if match is None:
            continue
        depth = len(match["stem"]) // 4 + bool(match["branch"])
        del path[depth:]
        parents[match["name"]] = path[-1] if path else None
        path.append(match["name"])
    return parents


def test_the_drawn_tree_is_the_tree_of_classes() -> None:
    """The docstring shows every class of the module once, under its real parent."""
    real = {
        cls.__name__: None if cls is JobsError else cls.__bases__[0].__name__
        for cls in ALL
        if cls.__module__ == errors.__name__
    }

    assert drawn_tree() == real


def test_every_class_is_exported_in_order() -> None:
    """``__all__`` is sorted and misses no class."""
    classes = {cls.__name__ for cls in ALL if cls.__module__ == errors.__name__}

    assert errors.__all__ == sorted(errors.__all__)
    assert classes <= set(errors.__all__)


@pytest.mark.parametrize("cls", ALL)
def test_every_class_says_what_it_is_and_what_to_do_next(cls: type[JobsError]) -> None:
    """Type, title and hint are the class's own, the type is a slug and the hint a sentence."""
    assert {"type", "title", "default_hint"} <= set(vars(cls))
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", cls.type)
    assert (cls.title[-1:] != ".", cls.default_hint[-1:] == ".") == (True, True)


def test_no_two_classes_share_a_type() -> None:
    """A client can tell every error from every other by its type."""
    types = [cls.type for cls in ALL]

    assert sorted(types) == sorted(set(types))


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_survives_the_way_to_another_process(cls: type[JobsError], protocol: int) -> None:
    """Pickling keeps class, text, hint, data and added notes."""
    error = cls("It broke.", hint="Mend it.", job_id="a", fields=["/x"])
    error.add_note("seen by the worker")

    twin = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - our own bytes

    assert (type(twin), str(twin), twin.args) == (cls, "It broke.", ("It broke.",))
    assert (twin.hint, twin.data) == ("Mend it.", {"job_id": "a", "fields": ["/x"]})
    assert twin.__notes__ == ["seen by the worker"]


class WithItsOwnSignature(Permanent):
    """A subclass of a user's, whose constructor takes something else."""

    type = "own-signature"

    def __init__(self, code: int) -> None:
        super().__init__(f"The service answered {code}.", code=code)
        self.code = code


def test_a_subclass_with_its_own_constructor_can_be_copied() -> None:
    """Rebuilding an error doesn't call a constructor whose arguments it can't know."""
    error = WithItsOwnSignature(404)

    twin = copy.copy(error)

    assert (type(twin), str(twin), twin.code, twin.data) == (
        WithItsOwnSignature,
        "The service answered 404.",
        404,
        {"code": 404},
    )


def test_a_hint_of_its_own_replaces_the_class_s() -> None:
    """Without a hint the class's stands in; an empty one is kept."""
    assert UsageError("x").hint == UsageError.default_hint
    assert UsageError("x", hint="").hint == ""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Transient("x"), True),
        (errors.DiskFull("x"), True),
        (errors.ServerUnavailable("x"), True),
        (crash.CrashRaised("x"), True),
        (Permanent("x"), False),
        (errors.PayloadInvalid("x"), False),
        (errors.AttemptEnded("x"), False),
        (UsageError("x"), False),
        (ValueError("x"), True),
        (OSError(28, "No space left on device"), True),
        (KeyboardInterrupt(), False),
        (SystemExit(1), False),
    ],
)
def test_only_what_a_second_try_may_cure_is_transient(error: BaseException, expected: bool) -> None:
    """Ours are told apart by class, foreign exceptions get their retries, interrupts don't."""
    assert is_transient(error) is expected


def test_a_known_error_is_described_by_its_own_words() -> None:
    """The record carries the class's type and title, and the error's text and hint."""
    record = describe(errors.DiskFull("The disk of the store is full.", hint="Free 2 GB."))

    assert record == {
        "type": "disk-full",
        "title": "The disk is full",
        "detail": "The disk of the store is full.",
        "hint": "Free 2 GB.",
        "retryable": True,
    }


def test_a_foreign_error_is_described_with_the_name_of_its_class() -> None:
    """Somebody else's exception becomes actionable too, with or without a text."""
    assert describe(KeyError("title"))["detail"] == "KeyError: 'title'"
    assert describe(RuntimeError())["detail"] == "RuntimeError"
    assert describe(RuntimeError())["type"] == "unexpected"


def test_a_description_is_bounded_and_is_json() -> None:
    """A text of megabytes can't fill a job's record."""
    record = describe(ValueError("x" * 5_000_000))

    assert len(record["detail"]) == 2_000
    assert json.loads(json.dumps(record)) == record


class Unprintable(Exception):
    """An exception whose text raises."""

    def __str__(self) -> str:
        raise RuntimeError


def test_an_error_that_cannot_print_itself_is_described_all_the_same() -> None:
    """A broken ``__str__`` doesn't hide the error behind another one."""
    assert describe(Unprintable())["detail"] == "Unprintable: (its text can't be read)"
