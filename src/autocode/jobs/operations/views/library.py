"""The sessions of a bundle as a view goes through them: which page each gets, and where its subagents are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from autocode.jobs.operations.export.views import Manifest, Progress
from autocode.jobs.operations.views.overview import Overview, survey
from autocode.jobs.operations.views.sources import (
    Record,
    SessionSource,
    bundle_sources,
    by_session,
    records_of,
    report_of,
)
from autocode.jobs.store import ObjectStore

__all__ = ["Entry", "Library", "Session", "by_folder"]


@dataclass(slots=True)
class Entry:
    """A session in the index: its page, and those of its subagents as (title, address)."""

    source: SessionSource
    overview: Overview
    page: str
    agents: list[tuple[str, str]] = field(default_factory=list)

    @property
    def folder(self) -> str:
        """The folder in which the tool worked; empty where that isn't known."""
        return str(self.overview.session.get("cwd") or "")


@dataclass(frozen=True, slots=True)
class Session:
    """A session on its way to a page; its records can be taken once."""

    source: SessionSource
    report: dict[str, Any]
    overview: Overview
    page: str
    records: Iterator[Record]
    count: int
    """How many sessions its source has."""

    @property
    def last(self) -> bool:
        """Whether it is its source's last: where subagents go that no call names."""
        return self.overview.number == self.count - 1


class Library:
    """Goes through a bundle. Each source is read twice: for its overviews, and for its pages.

    Args:
        store: where the export's objects are.
        manifest: the export.
        suffix: of the pages' names.
        progress: told the bytes done and in all; may raise to stop.
    """

    def __init__(
        self, store: ObjectStore, manifest: Manifest, suffix: str, progress: Progress | None = None
    ) -> None:
        self._store = store
        self._suffix = suffix
        self._progress = progress
        self._done = 0
        self._names: set[str] = {f"index{suffix}"}
        sources = bundle_sources(manifest)
        self.total = 2 * sum(source.size for source in sources)
        paths = {source.path for source in sources}
        self._agents: dict[str, list[SessionSource]] = defaultdict(list)
        self._tops = []
        for source in sources:
            if source.parent_path in paths:
                self._agents[str(source.parent_path)].append(source)
            else:
                self._tops.append(source)

    def sessions(self, sources: Iterable[SessionSource] | None = None) -> Iterator[Session]:
        """Yield every session of *sources*; by default of those that are nobody's subagents."""
        for source in self._tops if sources is None else sources:
            report, overviews = self.survey(source)
            pages = [self._page(source, each.number, len(overviews)) for each in overviews]
            for number, records in by_session(self.records(source)):
                yield Session(source, report, overviews[number], pages[number], records, len(overviews))

    def survey(self, source: SessionSource) -> tuple[dict[str, Any], list[Overview]]:
        """Return the report of *source* and the overviews of its sessions: the first pass."""
        report = report_of(self._store, source)
        return report, survey(self.records(source), report.get("report") or {})

    def records(self, source: SessionSource) -> Iterator[Record]:
        """Yield the records of *source*, and tell how far that is."""
        return records_of(self._store, source, self._tick)

    def agents_of(self, source: SessionSource) -> list[SessionSource]:
        """Return the subagents' transcripts of *source*."""
        return list(self._agents.get(source.path, ()))

    def _tick(self, size: int) -> None:
        self._done += size
        if self._progress is not None:
            self._progress(self._done, self.total)

    def _page(self, source: SessionSource, number: int, count: int) -> str:
        """Return a page's path, one that no other page has where case doesn't count."""
        stem = source.path.removeprefix("data/") + (f".{number + 1:04}" if count > 1 else "")
        name, again = f"{stem}{self._suffix}", 1
        while name.casefold() in self._names:
            again += 1
            name = f"{stem}~{again}{self._suffix}"
        self._names.add(name.casefold())
        return name


def by_folder(entries: Iterable[Entry]) -> list[tuple[str, list[Entry]]]:
    """Return *entries* by the folder in which the tool worked, the newest first; so are the folders."""

    def age(entry: Entry) -> tuple[str, str]:
        return entry.overview.begun or "", entry.page

    groups: dict[str, list[Entry]] = defaultdict(list)
    for entry in sorted(entries, key=age, reverse=True):
        groups[entry.folder].append(entry)
    return sorted(groups.items(), key=lambda group: (age(group[1][0]), group[0]), reverse=True)
