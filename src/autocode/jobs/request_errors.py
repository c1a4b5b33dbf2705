"""Errors of a request: what the HTTP interface refuses, and what a client of it meets.

::

    JobsError
    ├── DigestMismatch       the bytes that came aren't those that their name promises
    ├── MemberNotFound       the result has no such file or view
    ├── NotAllowed           the caller is known, and may not do that
    ├── PreconditionMissing  a change must name the revision that it was decided on
    ├── RangeUnsatisfiable   a byte range that begins behind the end
    ├── RequestInvalid       the HTTP request can't be read
    ├── RequestRefused       the request came by way of a foreign name or page
    ├── RequestStalled       the body stopped coming
    ├── RequestTooLarge
    ├── ResultDamaged        the result's bytes in the store are damaged or missing
    ├── ResultExpired        retention removed the result's bytes
    ├── ResultNotReady       the job has no result, or none yet
    ├── SnapshotNotFound
    ├── TokenInvalid         nobody is known by this token or login
    └── Transient
        ├── ServiceBusy          too many do the same at once
        ├── ServiceUnavailable   the service doesn't answer
        ├── TooManyRequests      more than the caller may send now
        └── ViewNotReady         a view is still being made
"""

from __future__ import annotations

from autocode.jobs.errors import JobsError, Transient

__all__ = [
    "DigestMismatch",
    "MemberNotFound",
    "NotAllowed",
    "PreconditionMissing",
    "RangeUnsatisfiable",
    "RequestInvalid",
    "RequestRefused",
    "RequestStalled",
    "RequestTooLarge",
    "ResultDamaged",
    "ResultExpired",
    "ResultNotReady",
    "ServiceBusy",
    "ServiceUnavailable",
    "SnapshotNotFound",
    "TokenInvalid",
    "TooManyRequests",
    "ViewNotReady",
]


class DigestMismatch(JobsError):
    """The bytes that were sent have another digest than their address. ``data['digest']`` is theirs."""

    type = "digest-mismatch"
    title = "The bytes aren't those that their digest promises"
    default_hint = "Take the SHA-256 of the bytes as they are sent, and send them again; nothing was kept."


class MemberNotFound(JobsError):
    """The result has no file of this path, or no view of this name."""

    type = "member-not-found"
    title = "The result has no such file"
    default_hint = "An export's files are listed in its manifest: GET /v1/jobs/{id}/result."


class NotAllowed(JobsError):
    """The caller is known, and its role or its sessions don't cover what was asked for."""

    type = "not-allowed"
    title = "This token may not do that"
    default_hint = "Use a token with the role that the detail names, or ask somebody who has one."


class PreconditionMissing(JobsError):
    """A change must name the revision of the job that it was decided on."""

    type = "precondition-missing"
    title = "The request must say which revision it is about"
    default_hint = 'Read the job, and send its ETag as If-Match: "<rev>".'


class RangeUnsatisfiable(JobsError):
    """The byte range begins behind the end. ``data['size']`` is the number of bytes."""

    type = "range-unsatisfiable"
    title = "The range begins behind the end"
    default_hint = "Leave Range out, or begin before the size that Content-Range names."


class RequestInvalid(JobsError):
    """The HTTP request can't be read: its JSON, a header, or the address."""

    type = "request-invalid"
    title = "The request can't be read"
    default_hint = "Correct what the detail names; /openapi.json describes every call."


class RequestRefused(JobsError):
    """The request names a host that isn't ours, or comes from another site's page."""

    type = "request-refused"
    title = "The request came by way of a foreign name or page"
    default_hint = (
        "Use the address that the service printed; a host of your own must be allowed in its settings."
    )


class RequestStalled(JobsError):
    """The body stopped coming before its end."""

    type = "request-stalled"
    title = "The request's body stopped coming"
    default_hint = "Send it again; nothing was kept."


class RequestTooLarge(JobsError):
    """The body is larger than this call takes. ``data['limit']`` is the limit in bytes."""

    type = "request-too-large"
    title = "The request's body is too large"
    default_hint = "Send less: a payload names its input, and doesn't contain it."


class ResultDamaged(JobsError):
    """The result was committed and verified once, and its bytes are damaged or missing now."""

    type = "result-damaged"
    title = "The result's bytes are damaged or missing"
    default_hint = "Ask for the same job under a new id; `autocode-jobs verify` looks for more damage."


class ResultExpired(JobsError):
    """Retention removed the result's bytes. ``data['expired_at']`` says when."""

    type = "result-expired"
    title = "The result was kept for its time, and is gone"
    default_hint = "Ask for the same job under a new id."


class ResultNotReady(JobsError):
    """The job isn't complete. ``data['job_status']`` is its state."""

    type = "result-not-ready"
    title = "The job has no result yet"
    default_hint = "Wait until it is complete: GET the job with `Prefer: wait=30`."


class ServiceBusy(Transient):
    """Too many callers do the same at this moment."""

    type = "service-busy"
    title = "The service does too much of this at once"
    default_hint = "Send it again in a moment."


class ServiceUnavailable(Transient):
    """The service's HTTP interface doesn't answer, or something else answers in its place."""

    type = "service-unavailable"
    title = "The service doesn't answer"
    default_hint = "Check that it runs (`autocode-jobs up`) and that AUTOCODE_URL is its address."


class SnapshotNotFound(JobsError):
    """There is no snapshot of this digest, or the caller may not see it."""

    type = "snapshot-not-found"
    title = "No such snapshot"
    default_hint = "Name one with POST /v1/snapshots; its digest is in the answer."


class TokenInvalid(JobsError):
    """The request has no token, or one that is unknown, expired or revoked."""

    type = "token-invalid"
    title = "A valid token is needed"
    default_hint = "Send `Authorization: Bearer <token>`, or open the login link that the service printed."


class TooManyRequests(Transient):
    """The caller sent more requests than it may; ``data['retry_after']`` is how many seconds to wait."""

    type = "too-many-requests"
    title = "Too many requests"
    default_hint = "Wait for as long as Retry-After says, then send the same request again."


class ViewNotReady(Transient):
    """The view is being made, and isn't complete."""

    type = "view-not-ready"
    title = "The view is still being made"
    default_hint = "Ask again after the seconds in Retry-After; it goes on being made meanwhile."
