"""Every error that this package raises on purpose.

::

    JobsError
    ├── Transient            worth another try with nothing changed
    │   ├── DiskFull
    │   ├── HomeUnusable     the data folder is read-only, newer, or broken; no job's fault
    │   ├── LedgerUnavailable
    │   ├── ObjectCorrupt
    │   ├── ObjectMissing
    │   ├── ServerUnavailable
    │   ├── StepTimedOut
    │   └── UnexpectedError  somebody else's exception, made presentable
    ├── Permanent            the same input can never succeed
    │   ├── BackupDamaged
    │   ├── BackupIncomplete
    │   ├── BundleDamaged
    │   ├── NoSessions
    │   ├── PayloadInvalid
    │   ├── RedactionFailed
    │   ├── SourceChanged
    │   └── SourceUnreadable
    ├── AttemptEnded         this process no longer owns the attempt; stop, touch nothing
    │   └── JobCancelled     it still does, but the job was called off: end it
    ├── JobConflict          the id is taken by a different request
    ├── JobFinished          too late to call the job off
    ├── JobNotDead           only what is dead can be retried by hand
    ├── JobNotFound
    ├── KindUnknown
    ├── LeadershipLost       this process no longer leads; stand by, write nothing
    ├── IllegalTransition    the job's status forbids what was asked for
    ├── ServiceRunning       the home already has a service
    ├── RevisionMoved        the job isn't any more as the caller saw it
    └── UsageError           the command line or a call asks for something that makes no sense

A class carries a stable ``type`` (a slug that clients may rely on), a ``title`` and a ``hint`` that says
what to do next. An exception from elsewhere counts as transient: see :func:`is_transient`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

__all__ = [
    "AttemptEnded",
    "BackupDamaged",
    "BackupIncomplete",
    "BundleDamaged",
    "DiskFull",
    "HomeUnusable",
    "IllegalTransition",
    "JobCancelled",
    "JobConflict",
    "JobFinished",
    "JobNotDead",
    "JobNotFound",
    "JobsError",
    "KindUnknown",
    "LeadershipLost",
    "LedgerUnavailable",
    "NoSessions",
    "ObjectCorrupt",
    "ObjectMissing",
    "PayloadInvalid",
    "Permanent",
    "RedactionFailed",
    "RevisionMoved",
    "ServerUnavailable",
    "ServiceRunning",
    "SourceChanged",
    "SourceUnreadable",
    "StepTimedOut",
    "Transient",
    "UnexpectedError",
    "UsageError",
    "describe",
    "is_transient",
]

_LONGEST_DETAIL: Final = 2_000


class JobsError(Exception):
    """Root of the tree.

    Args:
        detail: what happened, in one sentence, with the names that matter.
        hint: what to do next; the class's own hint where none is given.
        data: machine-readable facts about the error, JSON values only.
    """

    type: ClassVar[str] = "internal"
    title: ClassVar[str] = "Something went wrong"
    default_hint: ClassVar[str] = "Run `autocode-jobs doctor` and report what it prints."

    def __init__(self, detail: str, *, hint: str | None = None, **data: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.hint = hint if hint is not None else self.default_hint
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args), self.__dict__

    def __str__(self) -> str:
        return self.detail


def _rebuild(cls: type[JobsError], args: tuple[Any, ...]) -> JobsError:
    # not through __init__: a subclass with another signature, and notes that were added, survive as well
    return cls.__new__(cls, *args)


class Transient(JobsError):
    """Worth another try with nothing changed: a network blip, a rate limit, a full disk."""

    type = "transient"
    title = "A temporary failure"
    default_hint = "It is retried by itself; if it ends as a dead letter, retry it once the cause is gone."


class Permanent(JobsError):
    """The same input can never succeed; the job goes to the dead letters at once."""

    type = "permanent"
    title = "This input can't succeed"
    default_hint = "Change the input, then start a new job."


class DiskFull(Transient):
    """A write failed because the disk or the quota is full; nothing half-written is left behind."""

    type = "disk-full"
    title = "The disk is full"
    default_hint = "Free some space and run the same command again; finished steps are reused."


class LedgerUnavailable(Transient):
    """The ledger's database can't be reached or stayed locked."""

    type = "ledger-unavailable"
    title = "The ledger can't be reached"
    default_hint = "Check that the database is up and that its disk has room, then try again."


class ObjectMissing(Transient):
    """An object that a record names isn't in the store; the step that makes it runs again."""

    type = "object-missing"
    title = "An object is missing from the store"
    default_hint = "Run the job again: the step that produces the object is repeated."


class ObjectCorrupt(Transient):
    """An object's bytes don't match its digest; it was moved to ``quarantine/``."""

    type = "object-corrupt"
    title = "An object in the store is damaged"
    default_hint = "Run the job again to rebuild it, and `autocode-jobs verify` to look for more damage."


class ServerUnavailable(Transient):
    """The Prefect server did not start or doesn't answer."""

    type = "server-unavailable"
    title = "The Prefect server doesn't answer"
    default_hint = "Look at the end of the server's log, named in the detail, and try again."


class StepTimedOut(Transient):
    """A step or an attempt ran longer than its time limit."""

    type = "timed-out"
    title = "The time limit was reached"
    default_hint = "Retry it, or raise the kind's time limit."


class UnexpectedError(Transient):
    """Code raised an exception that isn't one of ours; the detail has its class and its text."""

    type = "unexpected"
    title = "The job's code raised an error"
    default_hint = "Look for the cause in the detail; retry the job once it is gone."


class BackupDamaged(Permanent):
    """A backup is no backup, was cut off, or holds something else than its manifest says."""

    type = "backup-damaged"
    title = "The backup is damaged"
    default_hint = (
        "Take another copy of it, or an older backup; `autocode-jobs restore FILE --check` checks one."
    )


class BackupIncomplete(Permanent):
    """The store lacks objects that the ledger needs. ``data['missing']`` names each, why, and whose it is."""

    type = "backup-incomplete"
    title = "Objects that a backup needs are missing or damaged"
    default_hint = (
        "Make them anew by the same exports, or leave them out: `autocode-jobs backup FILE --allow-missing`."
    )


class BundleDamaged(Permanent):
    """A file of an unpacked or zipped bundle is missing, or isn't what its manifest says."""

    type = "bundle-damaged"
    title = "The bundle is damaged"
    default_hint = "Write it again with `autocode-jobs artifacts get DIGEST`, or get another copy."


class NoSessions(Permanent):
    """The selection holds nothing that any reader understands."""

    type = "no-sessions"
    title = "No session was found"
    default_hint = "Point at a folder with agent sessions; `autocode-jobs doctor` shows the usual places."


class PayloadInvalid(Permanent):
    """The payload doesn't fit the kind's payload model. ``data['fields']`` points at each field."""

    type = "payload-invalid"
    title = "The payload doesn't fit the kind"
    default_hint = "Correct the fields named in the detail and submit again."


class RedactionFailed(Permanent):
    """A redaction rule raised; the export stops rather than leak (it fails closed)."""

    type = "redaction-failed"
    title = "A redaction rule failed"
    default_hint = "Report the rule; exporting with --no-redact includes every secret in the text."


class SourceChanged(Permanent):
    """A source file no longer starts with the bytes that ``scan`` recorded."""

    type = "source-changed"
    title = "A session file changed while it was exported"
    default_hint = "Start the export again: a new job scans the file as it is now."


class SourceUnreadable(Permanent):
    """A source file can't be opened or read."""

    type = "source-unreadable"
    title = "A session file can't be read"
    default_hint = "Check the file's permissions, or leave it out of the selection."


class AttemptEnded(JobsError):
    """This process no longer owns the attempt (its lease was lost or the job was cancelled)."""

    type = "attempt-ended"
    title = "This attempt was ended by somebody else"
    default_hint = "Nothing to do: the job goes on in its next attempt."


class JobCancelled(AttemptEnded):
    """The job was called off while this attempt runs; the attempt ends itself as cancelled."""

    type = "job-cancelled"
    title = "The job was called off"
    default_hint = "Nothing to do: the job is dead and can be retried by hand."


class IllegalTransition(JobsError):
    """The job's status forbids the move that was asked for. ``data['status']`` is the status it has."""

    type = "illegal-transition"
    title = "The job's status doesn't allow that"
    default_hint = "Read the job again: somebody else may have moved it."


class JobConflict(JobsError):
    """The job id exists with a different request. ``data['differs']`` names the fields."""

    type = "job-conflict"
    title = "The id is already taken by a different request"
    default_hint = "Use another id, or send the same payload again."


class JobFinished(JobsError):
    """The job can't be called off: its result is committed, or it is over. ``data['status']`` says which."""

    type = "job-finished"
    title = "It is too late to call the job off"
    default_hint = "Nothing to do: read the job to see how it ended."


class JobNotDead(JobsError):
    """Only a dead job can be retried by hand. ``data['status']`` is the status it has."""

    type = "job-not-dead"
    title = "Only a dead job can be retried"
    default_hint = "Wait until the job is dead, or cancel it first; `autocode-jobs jobs show ID` tells."


class JobNotFound(JobsError):
    """No job has this id."""

    type = "job-not-found"
    title = "No such job"
    default_hint = "`autocode-jobs jobs list` shows the ids that exist."


class KindUnknown(JobsError):
    """No job kind of this name is registered."""

    type = "kind-unknown"
    title = "No such job kind"
    default_hint = "Check the spelling, and that the module that declares the kind is imported."


class LeadershipLost(JobsError):
    """This process no longer leads: another took over while it was held up, or it has left."""

    type = "leadership-lost"
    title = "Another process leads now"
    default_hint = "Nothing to do: this process stands by until the leader goes."


class RevisionMoved(JobsError):
    """Somebody else changed the job since the caller read it. ``data['rev']`` is the revision it has now."""

    type = "revision-moved"
    title = "The job changed meanwhile"
    default_hint = "Read the job again and decide anew: somebody else was first."


class HomeUnusable(Transient):
    """The data folder (``AUTOCODE_HOME``) can't be used."""

    type = "home-unusable"
    title = "The data folder can't be used"
    default_hint = "Point AUTOCODE_HOME at a folder that you may write to."


class ServiceRunning(JobsError):
    """The home already has a service. ``data`` has its ``pid``, and its ``url`` once it answers."""

    type = "service-running"
    title = "The service already runs"
    default_hint = "Use the one that runs, or stop it: kill -TERM PID, with the process named above."


class UsageError(JobsError):
    """The call or the command line asks for something that makes no sense."""

    type = "usage"
    title = "That can't be asked for"
    default_hint = "See --help."


def is_transient(error: BaseException) -> bool:
    """Say whether another try with nothing changed may succeed.

    An exception that isn't ours is transient: an unknown failure gets its retries and then becomes a
    dead letter, which loses nothing; calling it permanent would give up on what a second try may cure.
    """
    if isinstance(error, JobsError):
        return isinstance(error, Transient)
    return isinstance(error, Exception)


def describe(error: BaseException) -> dict[str, Any]:
    """Return *error* as a record that a client can act on: JSON values, no traceback, bounded in size.

    The keys are ``type``, ``title``, ``detail``, ``hint`` and ``retryable``. An exception that isn't ours
    gets the type ``unexpected`` and keeps the name of its class in the detail. Nothing is redacted here.
    """
    if isinstance(error, JobsError):
        shown = error
    else:
        shown = UnexpectedError(f"{type(error).__name__}: {_text_of(error)}".removesuffix(": "))
    detail = shown.detail
    if len(detail) > _LONGEST_DETAIL:
        detail = detail[: _LONGEST_DETAIL - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return {
        "type": shown.type,
        "title": shown.title,
        "detail": detail,
        "hint": shown.hint,
        "retryable": is_transient(error),
    }


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ of foreign code mustn't hide the error itself
        return "(its text can't be read)"
