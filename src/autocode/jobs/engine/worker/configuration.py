"""What a run's deployment and work pool may ask of the worker."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import UUID

from prefect.client.schemas.objects import Flow, FlowRun, WorkPool
from prefect.client.schemas.responses import DeploymentResponse
from prefect.workers.base import BaseJobConfiguration, BaseVariables
from pydantic import Field, PrivateAttr
from typing_extensions import override

from autocode.jobs.engine.worker.related import Named, name_all
from autocode.jobs.errors import UsageError

__all__ = ["JobsConfiguration", "JobsVariables", "grace_seconds"]

_GRACE_SECONDS: Final = 5.0

_ENTER: Final = "prefect.deployments.steps.set_working_directory"

_OWNED_BY_RUNNER: Final = {"PREFECT__ENABLE_CANCELLATION_AND_CRASHED_HOOKS": "false"}
"""The worker, not the child, moves a cancelled run to Cancelled and runs its hooks (``runner/``)."""


class JobsVariables(BaseVariables):
    """The job variables of a work pool of type ``autocode-jobs``."""

    working_dir: Path | None = Field(
        default=None,
        title="Working Directory",
        description="Where the flow runs. By default the worker's own folder for a flow named by an absolute "
        "entrypoint, and a temporary folder for a flow that is fetched by pull steps.",
    )
    niceness: int | None = Field(
        default=None,
        ge=0,
        le=19,
        title="Niceness",
        description="Added to the nice value of the run's process; by default the worker's setting.",
    )


class JobsConfiguration(BaseJobConfiguration):
    """How one run is started."""

    working_dir: Path | None = None
    niceness: int | None = None
    _command: str | None = PrivateAttr(default=None)
    _deployment: DeploymentResponse | None = PrivateAttr(default=None)
    _related: list[Named] = PrivateAttr(default_factory=list)

    @classmethod
    @cache
    @override
    def _base_environment(cls) -> dict[str, str]:
        """Return what stays the same for as long as a worker lives; Prefect works it out for each run."""
        return super()._base_environment()

    @override
    def prepare_for_flow_run(
        self,
        flow_run: FlowRun,
        deployment: DeploymentResponse | None = None,
        flow: Flow | None = None,
        work_pool: WorkPool | None = None,
        worker_name: str | None = None,
        worker_id: UUID | None = None,
    ) -> None:
        """Note where the flow comes from, and complete the environment of the run."""
        # Prefect fills in a command of its own where none was asked for
        self._command = self.command
        self._deployment = deployment
        self._related = name_all(flow_run, deployment, flow, work_pool)
        super().prepare_for_flow_run(flow_run, deployment, flow, work_pool, worker_name, worker_id)
        self.env = {**self.env, **_OWNED_BY_RUNNER}

    @property
    def entrypoint(self) -> str | None:
        """The absolute ``file:function`` of the flow; ``None`` where Prefect has to fetch or find it."""
        deployment = self._deployment
        if deployment is None or deployment.storage_document_id:
            return None
        file, colon, _ = (deployment.entrypoint or "").rpartition(":")
        if not colon or not Path(file).is_absolute():
            return None
        if deployment.pull_steps and self._entered is None:
            return None
        return deployment.entrypoint

    @property
    def _entered(self) -> str | None:
        """The folder of the flow's file, where entering it is all that the deployment's pull steps do.

        Prefect would ask its server for the deployment once more, and load the flow's file anew.
        """
        deployment = self._deployment
        if deployment is None or not deployment.pull_steps:
            return None
        folder = str(Path((deployment.entrypoint or "").rpartition(":")[0]).parent)
        return folder if deployment.pull_steps == [{_ENTER: {"directory": folder}}] else None

    @property
    def related(self) -> list[Named]:
        """What the run belongs to."""
        return self._related

    def check(self) -> None:
        """Refuse what this type of worker can't do.

        Raises:
            UsageError: a command was asked for, or the folder to work in doesn't exist.
        """
        if self._command is not None:
            raise UsageError(
                "The job variable 'command' is set, but an autocode-jobs worker starts no command: it forks "
                "a process that has imported everything.",
                hint="Remove the variable, or use a work pool of type 'process' for this deployment.",
            )
        if self.working_dir is not None and not self.working_dir.is_dir():
            raise UsageError(
                f"The job variable 'working_dir' names {self.working_dir}, which is no folder here.",
                hint="Make the folder, or change the variable.",
            )

    def folder(self, stack: ExitStack) -> str | None:
        """Return the folder to work in; one that is made for this run is removed with *stack*."""
        if self.working_dir is not None:
            return str(self.working_dir)
        if self.entrypoint is not None:
            # a folder that is gone has taken the flow's file with it, and that is what the run will say
            return self._entered if self._entered and Path(self._entered).is_dir() else None
        # a flow may leave files that its user can't remove
        made: Any = TemporaryDirectory(prefix="autocode-run-", ignore_cleanup_errors=True)
        return str(stack.enter_context(made))


def grace_seconds() -> float:
    """Return the seconds that runs get when the worker is stopped: ``AUTOCODE_WORKER_GRACE``, else 5."""
    with suppress(ValueError):
        return max(0.0, float(os.environ.get("AUTOCODE_WORKER_GRACE", "")))
    return _GRACE_SECONDS
