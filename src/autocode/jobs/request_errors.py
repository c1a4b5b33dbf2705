"""Errors of a request: what the HTTP interface refuses, and what a client of it meets.

::

    JobsError
    ├── NotAllowed           the caller is known, and may not do that
    ├── PreconditionMissing  a change must name the revision that it was decided on
    ├── RequestInvalid       the HTTP request can't be read
    ├── RequestRefused       the request came by way of a foreign name or page
    ├── RequestTooLarge
    ├── TokenInvalid         nobody is known by this token or login
    └── Transient
        ├── ServiceUnavailable   the service doesn't answer
        └── TooManyRequests      more than the caller may send now
"""

from __future__ import annotations

from autocode.jobs.errors import JobsError, Transient

__all__ = [
    "NotAllowed",
    "PreconditionMissing",
    "RequestInvalid",
    "RequestRefused",
    "RequestTooLarge",
    "ServiceUnavailable",
    "TokenInvalid",
    "TooManyRequests",
]


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


class RequestTooLarge(JobsError):
    """The body is larger than this call takes. ``data['limit']`` is the limit in bytes."""

    type = "request-too-large"
    title = "The request's body is too large"
    default_hint = "Send less: a payload names its input, and doesn't contain it."


class ServiceUnavailable(Transient):
    """The service's HTTP interface doesn't answer, or something else answers in its place."""

    type = "service-unavailable"
    title = "The service doesn't answer"
    default_hint = "Check that it runs (`autocode-jobs up`) and that AUTOCODE_URL is its address."


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
