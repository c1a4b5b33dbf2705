"""A session's page, written block by block while its records are read."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any, Final, TextIO

from autocode.jobs.operations.views.account import account_of, caution_of, facts_of
from autocode.jobs.operations.views.blocks import (
    Block,
    Branch,
    Call,
    Marker,
    Message,
    Notices,
    Result,
    Thought,
    Unknown,
)
from autocode.jobs.operations.views.html.assets import environment, load_assets
from autocode.jobs.operations.views.html.highlight import Highlighter
from autocode.jobs.operations.views.html.models import Models
from autocode.jobs.operations.views.html.pieces import View
from autocode.jobs.operations.views.library import Library, Session
from autocode.jobs.operations.views.overview import Overview
from autocode.jobs.operations.views.sources import SessionSource, by_session
from autocode.jobs.operations.views.turns import blocks_of
from autocode.jobs.operations.views.wording import gap_text, plural, readable

__all__ = ["INLINE", "SessionPage"]

INLINE: Final = 512 << 10
"""Bytes of records up to which a subagent's transcript lies in its parent's page, not in its own."""

_INLINE_IN_ALL: Final = 4 << 20
Shown = Message | Thought | Call | Result | Marker | Notices | Unknown
"""Blocks that have a macro each."""

_DEEPEST: Final = 3
_BRANCH_END: Final = "</div></details></section>\n"


class SessionPage:
    """Writes one page.

    Args:
        out: the page.
        session: what to write.
        library: gives the subagents' records.
        parent: title and address of the session whose subagent this is.
    """

    def __init__(
        self, out: TextIO, session: Session, library: Library, parent: tuple[str, str] | None = None
    ) -> None:
        self._out = out
        self._session = session
        self._library = library
        self._parent = parent
        self._macros: Any = environment().get_template("blocks.html").module
        self._highlighter = Highlighter()
        self._left = _INLINE_IN_ALL
        self._agents = {agent.path: agent for agent in library.agents_of(session.source)}
        self.agents: list[tuple[str, str]] = []
        """Title and address, seen from the page, of each subagent's transcript that is on the page."""
        self.elsewhere: list[SessionSource] = []
        """Subagents that need a page of their own."""

    def write(self, agent_pages: dict[str, str]) -> None:
        """Write the page; *agent_pages* has the pages of long subagents' transcripts by their paths."""
        session, overview = self._session, self._session.overview
        is_agent = self._session.source.parent_path is not None
        self._render(
            "session_head.html",
            assets=load_assets(),
            title=readable(overview.headline),
            page_class="session",
            kind="Subagent" if is_agent else "Session",
            index=self._relative("index.html"),
            o=overview,
            facts=facts_of(overview, session.source),
            caution=caution_of(session.source, session.report, overview, session.count),
            parent=self._parent,
        )
        models = Models(_cwd(overview), "r-", is_agent, self._highlighter)
        self._blocks(blocks_of(session.records, agent=is_agent), models, overview, agent_pages, 0)
        if session.last and self._agents:
            words = f"{plural(len(self._agents), 'subagent')} that no call on this page names"
            self._out.write(self._macros.rule({"cls": "", "id": "", "text": words, "body": None}))
            for agent in list(self._agents.values()):
                self._agent(agent, "", agent_pages, 0)
        sections = account_of(session.source, session.report, overview)
        self._render("session_foot.html", assets=load_assets(), account=sections)

    def _blocks(
        self,
        blocks: Iterator[Block],
        models: Models,
        overview: Overview,
        agent_pages: dict[str, str],
        depth: int,
    ) -> None:
        is_open = False
        for block in blocks:
            if isinstance(block, Branch):
                self._out.write(_BRANCH_END if is_open else "")
                is_open = block.begins
                self._out.write(self._macros.branch_open(models.branch(block)) if is_open else "")
                continue
            pause = models.pause(block.stamp)
            if pause is not None:
                self._out.write(self._macros.rule(pause))
            self._out.write(self._block(block, models))
            if isinstance(block, Call) and block.call_id in overview.agents:
                name = overview.agents[block.call_id]
                for agent in [each for each in self._agents.values() if each.agent_name == name]:
                    self._agent(agent, _task(block), agent_pages, depth)
        self._out.write(_BRANCH_END if is_open else "")

    def _block(self, block: Shown, models: Models) -> str:
        name, model = _modelled(block, models)
        return str(getattr(self._macros, name)(model))

    def _agent(self, source: SessionSource, task: str, agent_pages: dict[str, str], depth: int) -> None:
        self._agents.pop(source.path, None)
        if source.path in agent_pages:
            href = self._relative(agent_pages[source.path])
            view = {
                "href": href,
                "title": readable(task or source.agent_name),
                "facts": "on a page of its own",
            }
            self._out.write(self._macros.agent_link(view))
            return
        _, overviews = self._library.survey(source)
        for number, records in by_session(self._library.records(source)):
            overview = overviews[number]
            # the file's name, which no other of its folder has, where the id can be that of several
            name = source.path.rpartition("/")[2] + (f".{number + 1}" if number else "")
            anchor = f"agent-{name}"
            title = task or overview.headline
            view = {
                "id": anchor,
                "name": source.agent_name,
                "title": readable(title),
                "facts": _facts(overview),
            }
            self._out.write(self._macros.agent_open(view))
            models = Models(_cwd(overview), f"a-{name}-", agent=True, highlighter=self._highlighter)
            if depth < _DEEPEST:
                self._blocks(blocks_of(records, agent=True), models, overview, agent_pages, depth + 1)
            self._out.write(_BRANCH_END)
            self.agents.append((title, f"{self._session.page}#{anchor}"))

    def _render(self, template: str, **values: Any) -> None:
        self._out.writelines(environment().get_template(template).generate(**values))

    def _relative(self, page: str) -> str:
        return posixpath.relpath(page, posixpath.dirname(self._session.page) or ".")


def _modelled(block: Shown, models: Models) -> tuple[str, View]:
    """Return the macro for *block* and what it is given."""
    if isinstance(block, Message):
        if block.origin == "interruption":
            return "rule", models.interruption(block)
        if block.origin in {"context", "summary"}:
            return "step", models.aside(block)
        return "message", models.message(block)
    if isinstance(block, Marker):
        return "rule", models.rule(block)
    if isinstance(block, Notices):
        return "notices", models.notices(block)
    steps: dict[type, Any] = {
        Thought: models.thought,
        Call: models.call,
        Result: models.result,
        Unknown: models.unknown,
    }
    return "step", steps[type(block)](block)


def _cwd(overview: Overview) -> str | None:
    cwd = overview.session.get("cwd")
    return cwd if isinstance(cwd, str) else None


def _facts(overview: Overview) -> str:
    parts = [plural(overview.calls.total(), "tool call")] if overview.calls else []
    parts += [gap_text(overview.seconds)] if overview.seconds else []
    parts += [", ".join(overview.models)] if overview.models else []
    return " · ".join(parts)


def _task(call: Call) -> str:
    value = call.input if isinstance(call.input, dict) else {}
    return str(value.get("description") or value.get("subject") or "")
