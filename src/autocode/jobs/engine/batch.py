"""Many calls of one step: remembered ones are looked up together, the others run side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from autocode.jobs.engine.apart import given
from autocode.jobs.engine.context import AttemptContext
from autocode.jobs.engine.lanes import Lanes, Ready, Work
from autocode.jobs.engine.workers import Worker, processes
from autocode.jobs.errors import UsageError
from autocode.jobs.kinds import Call, Chain, Produced, Step
from autocode.jobs.ledger.checkpoints import MemoKey, StepCommit
from autocode.jobs.store import LocalStore

__all__ = ["Batch"]

_GROUP_SIZE: Final = 256 << 20
_GROUP_CALLS: Final = 500
"""How much one Prefect task run covers at most, beside a chain that is longer by itself."""

_FEW: Final = 12
"""Chains up to which Prefect shows each by itself, since somebody may want to look at them."""

_PATIENCE: Final = 10
_LONGEST_PATIENCE: Final = 0.15
"""How many times as long as the last commit took the next one waits for company, and for how many seconds."""

_WORTH: Final = 8 << 20
"""Bytes from which it pays to start processes."""


@dataclass
class _Link:
    """A chain on its way: its calls, what is remembered of them, and what is committed."""

    calls: Chain[Any]
    remembered: list[tuple[MemoKey, Produced]] = field(default_factory=list)
    done: list[Produced] = field(default_factory=list)

    @property
    def left(self) -> Sequence[Call[Any]]:
        return self.calls[len(self.done) :]

    @property
    def before(self) -> Produced | None:
        return self.done[-1] if self.done else None


class Batch:
    """The calls of one step in one attempt.

    Args:
        context: the attempt.
        step: the step.
        job_id: the job.
        chains: calls that don't wait for one another.
        unit: what their sizes count.
    """

    def __init__(
        self,
        context: AttemptContext,
        step: Step[Any],
        job_id: str,
        chains: Sequence[Chain[Any]],
        unit: str,
    ) -> None:
        store = context.system.store
        if not isinstance(store, LocalStore):
            raise UsageError("Steps run side by side over a local store alone.")
        self._context = context
        self._store = store
        self._step = step
        self._job_id = job_id
        self._links = [_Link(chain) for chain in chains]
        self._unit = unit
        self._total = sum(call.size for chain in chains for call in chain)
        self._workers: list[Worker] = []
        self._done = self._furthest = 0
        self._tried: set[int] = set()
        self.failed: str | None = None
        """The label of the call that failed."""

    @property
    def results(self) -> list[Produced]:
        """What the last call of each chain produced; to be asked for when all are done."""
        return [link.done[-1] for link in self._links]

    def label(self, chains: Sequence[int], many: str) -> str:
        """Return what people call these chains: a call's own label, or *many* with their number."""
        if len(chains) > 1:
            return many.format(len(chains))
        calls = self._links[chains[0]].left
        return calls[0].label if len(calls) == 1 else f"{calls[0].label} and {len(calls) - 1} more"

    def reused(self, chains: Sequence[int]) -> str:
        """Say what was reused of these chains: one digest, or how many steps."""
        done = [produced for chain in chains for produced in self._links[chain].done]
        return done[0].digest if len(done) == 1 else f"{len(done)} steps"

    def look_up(self, chains: Sequence[int] | None = None) -> list[int]:
        """Find what is remembered of *chains* (``None``: all); return those of which something is."""
        wanted = range(len(self._links)) if chains is None else chains
        alive = [chain for chain in wanted if self._links[chain].left]
        while alive:
            keys = {chain: self._next_key(self._links[chain]) for chain in alive}
            found = self._context.recall_all(keys.values())
            alive = []
            for chain, key in keys.items():
                if key in found:
                    link = self._links[chain]
                    link.remembered.append((key, found[key]))
                    if len(link.remembered) < len(link.left):
                        alive.append(chain)
        return [chain for chain in wanted if self._links[chain].remembered]

    def portions(self, chains: Sequence[int]) -> list[Sequence[int]]:
        """Return *chains* one by one where the batch has few, else all together: a Prefect task run each."""
        return [chains] if len(self._links) > _FEW else [[chain] for chain in chains]

    def reuse(self, chains: Sequence[int]) -> bool:
        """Commit what is remembered of *chains* and whole in the store; return whether all of it was."""
        whole = True
        found: list[tuple[_Link, Call[Any], StepCommit]] = []
        links = [self._links[chain] for chain in chains]
        for link in links:
            for (key, produced), call in zip(link.remembered, link.left, strict=False):
                if not self._context.is_whole(key, produced):
                    whole = False
                    break
                found.append((link, call, StepCommit(key, produced, call.label, reused=True)))
        for start in range(0, len(found), _GROUP_CALLS):
            some = found[start : start + _GROUP_CALLS]
            self._context.commit_all([commit for _, _, commit in some])
            for link, call, commit in some:
                link.done.append(commit.produced)
                self._done += call.size
                del link.remembered[0]
            self._tell(0)
        for link in links:
            link.remembered = []
        return whole

    def groups(self) -> list[list[int]]:
        """Return the chains that have calls to perform, in groups for one Prefect task run each."""
        left = [chain for chain, link in enumerate(self._links) if link.left]
        size = sum(call.size for chain in left for call in self._links[chain].left)
        if len(self._links) <= _FEW and size < _WORTH:
            return [[chain] for chain in left]
        groups: list[list[int]] = []
        size = calls = 0
        for chain, link in enumerate(self._links):
            if not link.left:
                continue
            own = sum(call.size for call in link.left)
            if not groups or size + own > _GROUP_SIZE or calls + len(link.left) > _GROUP_CALLS:
                groups.append([])
                size = calls = 0
            groups[-1].append(chain)
            size += own
            calls += len(link.left)
        return groups

    def perform(self, group: Sequence[int]) -> None:
        """Perform what is left of these chains; blocks, and may be called again after an error.

        Each call is committed as soon as it is done, together with those that are done by then.
        """
        if self._tried.intersection(group):
            # the try before may have been committed although it failed
            self.reuse(self.look_up(group))
        self._tried.update(group)
        works = {chain: Work(link.left, link.before) for chain in group if (link := self._links[chain]).left}
        self._hire(works)
        context = self._context
        lanes = Lanes(
            self._store, self._step, works, self._workers, context.check, cache=context.cache_folder()
        )
        try:
            for ready in lanes:
                if ready:
                    began = time.monotonic()
                    self._commit(ready)
                    lanes.patience = min(_PATIENCE * (time.monotonic() - began), _LONGEST_PATIENCE)
                self._tell(sum(list(lanes.under_way.values())))
        except BaseException:
            if lanes.failed is not None:
                chain, number = lanes.failed
                self.failed = works[chain].calls[number].label
            lanes.close()
            # they may be in the middle of something
            self.close()
            raise
        lanes.close()

    def close(self) -> None:
        """End the processes; idempotent."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.close()
        if workers:
            self._store.sweep_temp()

    def _next_key(self, link: _Link) -> MemoKey:
        before = link.remembered[-1][1] if link.remembered else link.before
        call = link.left[len(link.remembered)]
        return self._step.memo_key(self._job_id, given(self._step, call, before))

    def _hire(self, works: Mapping[int, Work]) -> None:
        """Start processes where it pays; those of an earlier group go on."""
        if not self._step.apart or sum(work.size for work in works.values()) < _WORTH:
            return
        wanted = min(processes(), len(works))
        # where the system refuses another process, those that are there do the work, or this one
        with suppress(OSError):
            while processes() > 1 and len(self._workers) < wanted:
                self._workers.append(Worker(self._context.system.home.path, self._step))

    def _commit(self, ready: Sequence[Ready]) -> None:
        """Publish and commit calls that were performed; what can't be is discarded."""
        stagings = [staging for each in ready for staging in each.objects]
        try:
            self._context.publish_all(stagings, self._store)
        finally:
            for staging in stagings:
                staging.discard()
        commits = []
        produced: dict[int, list[Produced]] = {}
        for each in ready:
            link = self._links[each.chain]
            earlier = produced.setdefault(each.chain, [])
            call = link.left[len(earlier)]
            inputs = given(self._step, call, earlier[-1] if earlier else link.before)
            key = self._step.memo_key(self._job_id, inputs)
            commits.append(StepCommit(key, each.produced, call.label, reused=False))
            earlier.append(each.produced)
        self._context.commit_all(commits)
        for chain, new in produced.items():
            link = self._links[chain]
            self._done += sum(call.size for call in link.left[: len(new)])
            link.done += new

    def _tell(self, under_way: int) -> None:
        far = self._done + under_way
        if far > self._furthest:
            self._furthest = far
            self._context.progress(far, self._total, self._unit)
