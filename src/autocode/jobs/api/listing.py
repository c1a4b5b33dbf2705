"""``GET /v1/jobs`` and ``GET /v1/counts``: one filter for both."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from autocode.jobs.api import resources
from autocode.jobs.api.access import Viewer
from autocode.jobs.api.models import JobFilter, JobPage
from autocode.jobs.api.problems import JsonResponse
from autocode.jobs.api.service import Calls, Shared
from autocode.jobs.errors import NotAllowed
from autocode.jobs.ledger import listing
from autocode.jobs.ledger.access import Principal
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.listing import Filter
from autocode.jobs.resource import Counts, JobList

__all__ = ["router"]

router: Final = APIRouter(tags=["jobs"])

_LARGEST_PAGE: Final = 200
