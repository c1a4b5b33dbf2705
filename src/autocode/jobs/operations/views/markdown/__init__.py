"""The Markdown view: an index and a file a session, for GitHub, Obsidian, a terminal and a diff."""

from __future__ import annotations

from autocode.jobs.operations.views.markdown.write import write_markdown

__all__ = ["write_markdown"]
