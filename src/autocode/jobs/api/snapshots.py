"""Snapshots: named sets of uploaded objects, which an export can name as its source."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from autocode.jobs.api import refusals
from autocode.jobs.api.access import Operator, Viewer
from autocode.jobs.api.bodies import model_of, parse_json, read_text
from autocode.jobs.api.models import Id
from autocode.jobs.api.problems import JsonResponse
from autocode.jobs.api.receiving import is_stored, put_object
from autocode.jobs.api.service import Calls, Shared
from autocode.jobs.canonical import digest_of, is_digest
from autocode.jobs.clock import rfc3339
from autocode.jobs.errors import ObjectCorrupt, ObjectMissing, PayloadInvalid, UsageError
from autocode.jobs.ledger import scopes, uploads
from autocode.jobs.ledger.uploads import Named
from autocode.jobs.operations.paths import clash
from autocode.jobs.operations.snapshots import (
    MOST_MEMBERS,
    Digest,
    MemberPath,
    Snapshot,
    SnapshotMember,
    SnapshotResource,
    load_snapshot,
)
from autocode.jobs.request_errors import NotAllowed, RequestInvalid, ResultDamaged, SnapshotNotFound
from autocode.jobs.store import ObjectStore

__all__ = ["router"]

router: Final = APIRouter(tags=["uploads"])

_LIMIT: Final = 16 << 20
"""Bytes of a body: 20,000 files with paths of some 700 bytes."""


class SnapshotFile(BaseModel):
    """One file of a snapshot: its path below the folder that it comes from, and its uploaded bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: MemberPath
    digest: Digest


class SnapshotBody(BaseModel):
    """A request to name a set of uploaded objects."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    members: Annotated[list[SnapshotFile], Field(min_length=1, max_length=MOST_MEMBERS)]
    session_id: Id | None = None


_NAME: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": SnapshotResource, "description": "you named it before"},
    201: {"model": SnapshotResource, "description": "it has a name, and its objects are kept"},
    400: {"description": "no JSON object"},
    401: {"description": "no token that works"},
    403: {
        "description": "the role is too small, or the session isn't one of the token's",
    },
    413: {"description": "the body is too large; `limit` has the bytes"},
    422: {
        "description": "a path or a digest is off, or an object isn't yours: `errors`",
    },
    503: {"description": "the ledger can't be reached"},
    507: {"description": "the disk is full"},
}
_READ: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": SnapshotResource, "description": "the snapshot with its files"},
    401: {"description": "no token that works"},
    403: {"description": "the token's role is too small"},
    404: {"description": "no such snapshot, or none that this token may see"},
    503: {"description": "its object is damaged, or the ledger can't be reached"},
}
_SENT: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": SnapshotBody.model_json_schema()}},
    }
}


@router.post(
    "/v1/snapshots",
    name="snapshot",
    response_model=None,
    status_code=201,
    responses=_NAME,
    openapi_extra=_SENT,
)
async def name_snapshot(request: Request, service: Shared, calls: Calls, caller: Operator) -> Response:
    """Name a set of uploaded objects. The same files make the same digest; asking again is safe.

    With `session_id` it belongs to that session: those who see the session's jobs see it, and only jobs of
    the session may name it.
    """
    _check_type(request)
    text = await read_text(request, _LIMIT)
    # thousands of files: not on the loop
    body = await service.files(lambda: model_of(SnapshotBody, parse_json(text)))
    if not caller.sees(scopes.sessions_of(body.session_id, ())):
        raise NotAllowed(
            f"The token {caller.token_id} is for some sessions only, and the request names none of them.",
            hint="Send the session_id that the files belong to.",
        )
    _check_paths(body.members)
    calls.renew()
    digests = [member.digest for member in body.members]
    sizes = await calls(uploads.visible_objects, service.db, caller, digests)
    present = await service.files(_present, service.system.store, sizes)
    _check_uploaded(body.members, present)
    snapshot = Snapshot(
        members=[
            SnapshotMember(path=each.path, digest=each.digest, size=sizes[each.digest])
            for each in body.members
        ]
    )
    data = await service.files(snapshot.to_bytes)
    await put_object(service, calls, caller, _once(data), digest=digest_of(data), length=len(data))
    calls.renew()
    named, created = await calls(
        uploads.name_snapshot,
        service.db,
        caller,
        body.session_id,
        digest_of(data),
        digests,
        request_id=refusals.request_id(request),
    )
    shown = _resource(named, snapshot)
    headers = {"Location": shown.links["self"]}
    return JsonResponse(
        shown.model_copy(update={"members": ()}).to_json(),
        status_code=201 if created else 200,
        headers=headers,
    )


@router.get("/v1/snapshots/{digest}", response_model=None, responses=_READ)
async def read_snapshot(digest: str, service: Shared, calls: Calls, caller: Viewer) -> Response:
    """Read a snapshot: its files by path, digest and size."""
    named = None
    if is_digest(digest):
        named = await calls(uploads.find_snapshot, service.db, caller, digest)
    if named is None:
        raise SnapshotNotFound(f"There is no snapshot {digest[:100]!r}.")
    try:
        snapshot = await service.files(load_snapshot, service.system.store, digest)
    except (ObjectMissing, ObjectCorrupt) as error:
        raise ResultDamaged(error.detail, hint="Upload the files and name the snapshot again.") from error
    return JsonResponse(_resource(named, snapshot).to_json())


def _check_type(request: Request) -> None:
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise RequestInvalid(f"The body must be application/json, not {media_type[:100]}.")


def _check_paths(members: Sequence[SnapshotFile]) -> None:
    both = clash(member.path for member in members)
    if both is not None:
        place = next(n for n, member in reversed(list(enumerate(members))) if member.path == both[1])
        field = {"pointer": f"/members/{place}/path", "detail": f"can't lie beside {both[0]!r}"}
        raise UsageError(
            f"The paths {both[0]!r} and {both[1]!r} can't lie side by side.",
            hint="Give each file a path of its own, where case doesn't count.",
            fields=[field],
        )


def _present(store: ObjectStore, sizes: Mapping[str, int]) -> frozenset[str]:
    return frozenset(digest for digest in sizes if is_stored(store, digest))


def _check_uploaded(members: Sequence[SnapshotFile], present: frozenset[str]) -> None:
    fields = [
        {"pointer": f"/members/{place}/digest", "detail": "You have not uploaded this object."}
        for place, member in enumerate(members)
        if member.digest not in present
    ]
    if fields:
        raise PayloadInvalid(
            f"{len(fields)} of {len(members)} objects aren't uploaded.",
            hint="PUT each of them to /v1/objects/{digest}, and send this again.",
            fields=fields,
        )


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _resource(named: Named, snapshot: Snapshot) -> SnapshotResource:
    return SnapshotResource(
        digest=named.digest,
        session_id=named.session_id,
        created_at=rfc3339(named.created_at) or "",
        files=len(snapshot.members),
        bytes=sum(member.size for member in snapshot.members),
        members=tuple(sorted(snapshot.members, key=lambda member: member.path)),
        links={"self": f"/v1/snapshots/{named.digest}"},
    )
