"""Reading a request: its body as strict JSON, and the headers that carry a value of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from autocode.jobs.errors import UsageError
from autocode.jobs.request_errors import PreconditionMissing, RequestInvalid, RequestTooLarge

__all__ = [
    "idempotency_key",
    "if_match",
    "model_of",
    "parse_json",
    "pointer",
    "read_json",
    "read_text",
    "wait_seconds",
]

M = TypeVar("M", bound=BaseModel)

_KEY: Final = re.compile(r'"([!#-\[\]-~ ]{1,255})"|([!#-+\--~]{1,255})')
"""A string of RFC 8941 without escapes, as the draft on Idempotency-Key has it; or without the quotes."""

_REVISION: Final = re.compile(r'"([0-9]{1,18})"')
_WAIT: Final = re.compile(r"(?:^|,)\s*wait\s*=\s*([0-9]{1,6})\s*(?:;[^,]*)?(?=,|$)", re.IGNORECASE)


async def read_text(request: Request, limit: int) -> str:
    """Return the body as text.

    Raises:
        RequestTooLarge: it has more than *limit* bytes; no more than these are kept.
        RequestInvalid: it isn't UTF-8.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise RequestTooLarge(f"The body has more than {limit:,} bytes.", limit=limit)
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestInvalid(f"The body isn't UTF-8: {error.reason} at byte {error.start}.") from None


async def read_json(request: Request, limit: int) -> dict[str, Any]:
    """Return the body as a JSON object. Integers of any size stay what they are.

    Raises:
        RequestTooLarge: it has more than *limit* bytes.
        RequestInvalid: it isn't JSON as RFC 8259 has it, isn't an object, or names a member twice.
    """
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise RequestInvalid(f"The body must be application/json, not {media_type[:100]}.")
    return parse_json(await read_text(request, limit))


def parse_json(text: str) -> dict[str, Any]:
    """Return *text* as a JSON object.

    Raises:
        RequestInvalid: it isn't JSON as RFC 8259 has it, isn't an object, or names a member twice.
    """
    try:
        value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object)
    except RecursionError:
        raise RequestInvalid("The body is nested too deeply.") from None
    except ValueError as error:
        raise RequestInvalid(f"The body isn't JSON: {error}.") from None
    if not isinstance(value, dict):
        raise RequestInvalid("The body must be a JSON object.")
    return value


def model_of(model: type[M], value: Mapping[str, Any]) -> M:
    """Return *value* as *model*.

    Raises:
        UsageError: it doesn't fit; ``data['fields']`` has a pointer and a sentence for each field.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        fields = [
            {"pointer": pointer(item["loc"]), "detail": item["msg"]}
            for item in error.errors(include_url=False, include_input=False, include_context=False)
        ]
        told = "; ".join(f"{item['pointer']}: {item['detail']}" for item in fields)
        raise UsageError(
            f"The request is off: {told}.", hint="Correct the fields named in `errors`.", fields=fields
        ) from None


def pointer(path: tuple[int | str, ...]) -> str:
    """Return *path* as a JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def idempotency_key(request: Request) -> str | None:
    """Return the value of ``Idempotency-Key``, with or without the quotes that its draft wants.

    Raises:
        RequestInvalid: it is no string of printable ASCII, or given twice.
    """
    given = request.headers.getlist("idempotency-key")
    if not given:
        return None
    parts = _KEY.fullmatch(given[0].strip())
    if len(given) > 1 or parts is None:
        raise RequestInvalid(
            "Idempotency-Key isn't a string of 1 to 255 printable ASCII characters.",
            hint='Send a fresh value for each request, such as Idempotency-Key: "<a UUID>".',
        )
    return parts[1] or parts[2]


def if_match(request: Request) -> int:
    """Return the revision that ``If-Match`` names.

    Raises:
        PreconditionMissing: there is none.
        RequestInvalid: it isn't an ETag of a job.
    """
    given = request.headers.getlist("if-match")
    if not given:
        raise PreconditionMissing("The request has no If-Match.")
    parts = _REVISION.fullmatch(given[0].strip())
    if len(given) > 1 or parts is None:
        raise RequestInvalid(
            "If-Match isn't the ETag of a job.", hint='Read the job and send its ETag, as in If-Match: "7".'
        )
    return int(parts[1])


def wait_seconds(request: Request, most: float) -> float | None:
    """Return how long ``Prefer: wait=N`` lets the answer take, at most *most*; ``None`` without it."""
    found = _WAIT.search(", ".join(request.headers.getlist("prefer")))
    return None if found is None else min(float(found[1]), most)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the member {twice[:100]!r} is given twice")
    return value
