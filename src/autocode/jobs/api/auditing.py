"""``GET /v1/audit``: who did what, when and why, and what was refused."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from autocode.jobs.api.access import Viewer
from autocode.jobs.api.models import AuditQuery
from autocode.jobs.api.problems import JsonResponse
from autocode.jobs.api.service import Calls, Shared
from autocode.jobs.ledger import audit_log
from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.audit_log import LARGEST_PAGE, Chosen
from autocode.jobs.ledger.listing import Filter
from autocode.jobs.resource import AuditPage

__all__ = ["router"]

router: Final = APIRouter(tags=["audit"])

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {200: {"model": AuditPage}}


@router.get("/v1/audit", response_model=None, responses=_ANSWERS)
async def list_audit(
    query: Annotated[AuditQuery, Query()], service: Shared, calls: Calls, caller: Viewer
) -> Response:
    """List the entries of the audit, newest first, with the head of the chain.

    An admin sees all of them, everybody else those about jobs that they may see.
    """
    everything = caller.role.covers(Role.ADMIN) and caller.sessions is None
    chosen = Chosen(
        target=query.target,
        actor=query.actor,
        action=query.action,
        jobs=None if everything else Filter(sessions=caller.sessions),
    )
    size = min(query.page_size, LARGEST_PAGE)
    found = await calls(audit_log.page, service.db, chosen, size=size, token=query.page_token)
    return JsonResponse(
        {
            "entries": [audit_log.entry(row) for row in found.entries],
            "next_page_token": found.next_token,
            "head": {"seq": found.head.seq, "digest": found.head.digest},
        }
    )
