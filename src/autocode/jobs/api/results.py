"""Results over HTTP: the artifact, its files, and views made of it; each through a job that one may see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from autocode.jobs.api.access import Viewer
from autocode.jobs.api.bundles import files_of, member_content
from autocode.jobs.api.content import Content, answer, file_content, object_content
from autocode.jobs.api.reading import visible_job
from autocode.jobs.api.service import Calls, Service, Shared
from autocode.jobs.api.threads import RequestCalls
from autocode.jobs.api.views import Made
from autocode.jobs.ledger.access import Principal
from autocode.jobs.model import TERMINAL, JobStatus
from autocode.jobs.operations.export.payload import MANIFEST_TYPE
from autocode.jobs.operations.export.views import bag_name
from autocode.jobs.request_errors import MemberNotFound, ResultExpired, ResultNotReady
from autocode.jobs.resource import Job, Result

__all__ = ["router"]

F = TypeVar("F", bound=Callable[..., Any])

router: Final = APIRouter(tags=["results"])

_BINARY: Final[dict[str, Any]] = {"schema": {"type": "string", "format": "binary"}}
_PAUSE: Final = 2

_ENDINGS: Final = {
    MANIFEST_TYPE: ".json",
    "application/json": ".json",
    "text/plain": ".txt",
    "text/csv": ".csv",
    "text/html": ".html",
}


def _answers(media_type: str) -> dict[int | str, dict[str, Any]]:
    content = {media_type: _BINARY}
    return {
        200: {"description": "the bytes; `ETag` is strong, `Accept-Ranges: bytes`", "content": content},
        206: {"description": "the range that was asked for", "content": content},
        304: {"description": "it is what `If-None-Match` names"},
        401: {"description": "no token that works"},
        403: {"description": "the token's role is too small"},
        404: {"description": "no such job that you may see, or no such file of it"},
        409: {"description": "not complete; `Retry-After` while it may become so"},
        410: {"description": "retention removed it"},
        416: {
            "description": "the range begins behind the end; `Content-Range` has the size",
        },
        503: {
            "description": "`result-damaged`; or `view-not-ready` or the ledger, with `Retry-After`",
        },
        507: {"description": "the disk has no room for a view"},
    }


def _routes(path: str, media_type: str) -> Callable[[F], F]:
    """Declare a route for GET and for HEAD."""

    def declare(function: F) -> F:
        options: dict[str, Any] = {"response_model": None, "responses": _answers(media_type)}
        router.head(path, **options)(function)
        router.get(path, **options)(function)
        return function

    return declare


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request, and what it is answered with."""

    request: Request
    service: Service
    calls: RequestCalls
    caller: Principal

    async def result(self, job_id: str) -> tuple[Job, Result]:
        """Return a job that the caller may see, and its result.

        Raises:
            JobNotFound: there is none.
            ResultExpired: it had one.
            ResultNotReady: it has none, or none yet.
        """
        job = await visible_job(self.service, self.calls, self.caller, job_id)
        if job.status is not JobStatus.COMPLETE or job.result is None:
            detail = f"Job {job_id} is {job.status}."
            if job.status in TERMINAL:
                hint = "A person may retry it: see `links.retry` of the job."
                raise ResultNotReady(detail, hint=hint, job_status=str(job.status))
            raise ResultNotReady(detail, job_status=str(job.status), retry_after=_PAUSE)
        if job.result.expired_at is not None:
            at = job.result.expired_at
            raise ResultExpired(f"The result of job {job_id} was removed at {at}.", expired_at=at)
        return job, job.result

    async def export(self, job_id: str) -> Result:
        """Return the result of a job that is an export; raises as :meth:`result`.

        Raises:
            MemberNotFound: it is none, so it has neither files nor views.
        """
        job, made = await self.result(job_id)
        if made.media_type != MANIFEST_TYPE:
            raise MemberNotFound(
                f"The result of job {job_id!r} (kind {job.kind!r}) is no export: no files, no views.",
                hint=f"Read the result itself: GET {made.href}",
            )
        return made

    async def view(self, name: str, digest: str) -> Made:
        """Return a view of an export."""
        service = self.service
        return await service.views.get(service.files, name, digest, seconds=service.settings.view_seconds)

    async def page(self, view: str, job_id: str, page: str | None) -> Response:
        """Answer with a page of a view; ``None``: with the one that it begins with."""
        exported = await self.export(job_id)
        made = await self.view(view, exported.digest)

        def content() -> Content:
            path = made.folder / made.front if page is None else made.page(page)
            return file_content(
                path,
                tag=made.tag(page if page is not None else "front"),
                media_type=f"text/{view}; charset=utf-8",
                name=f"{bag_name(exported.digest)}{path.suffix}" if page is None else path.name,
                policy=made.policy,
            )

        return await self.answer(await self.service.files(content))

    async def answer(self, content: Content) -> Response:
        """Answer with *content*."""
        return await answer(self.request, self.service.files, content)


async def _asked(request: Request, service: Shared, calls: Calls, caller: Viewer) -> _Asked:
    return _Asked(request, service, calls, caller)


Asked = Annotated[_Asked, Depends(_asked)]


@_routes("/v1/jobs/{job_id}/result", "*/*")
async def result(job_id: str, asked: Asked) -> Response:
    """Read a job's result as it is; for an export that is its manifest. `Content-Type` is the result's."""
    _, made = await asked.result(job_id)
    return await asked.answer(
        object_content(
            asked.service.system.store,
            made.digest,
            size=made.size,
            media_type=made.media_type,
            name=f"{job_id}{_ENDINGS.get(made.media_type, '.bin')}",
        )
    )


@_routes("/v1/jobs/{job_id}/result.zip", "application/zip")
async def zipped(job_id: str, asked: Asked) -> Response:
    """Read an export as one zip file. A large one is made first: `503` says when to come again."""
    made = await asked.export(job_id)
    view = await asked.view("zip", made.digest)
    content = await asked.service.files(
        file_content,
        view.place,
        tag=view.tag(),
        media_type="application/zip",
        name=f"{bag_name(made.digest)}.zip",
        digest=view.digest,
    )
    return await asked.answer(content)


@_routes("/v1/jobs/{job_id}/result.html", "text/html")
async def html(job_id: str, asked: Asked) -> Response:
    """Read an export as a page: its only session, or an index with links to each."""
    return await asked.page("html", job_id, None)


@_routes("/v1/jobs/{job_id}/result.md", "text/markdown")
async def markdown(job_id: str, asked: Asked) -> Response:
    """Read an export as Markdown: its only session, or an index with links to each."""
    return await asked.page("markdown", job_id, None)


@_routes("/v1/jobs/{job_id}/result/html/{page:path}", "text/html")
async def html_page(job_id: str, page: str, asked: Asked) -> Response:
    """Read a page of the HTML view."""
    return await asked.page("html", job_id, page)


@_routes("/v1/jobs/{job_id}/result/markdown/{page:path}", "text/markdown")
async def markdown_page(job_id: str, page: str, asked: Asked) -> Response:
    """Read a file of the Markdown view."""
    return await asked.page("markdown", job_id, page)


@_routes("/v1/jobs/{job_id}/result/{member:path}", "*/*")
async def member(job_id: str, member: str, asked: Asked) -> Response:
    """Read a file of an export's bundle by its path, such as `manifest.json` or `data/sessions/…`."""
    made = await asked.export(job_id)
    store = asked.service.system.store
    found = await asked.service.files(files_of, store, made)
    if member not in found:
        raise MemberNotFound(f"The result of job {job_id!r} has no such file.")
    return await asked.answer(member_content(store, found[member]))
