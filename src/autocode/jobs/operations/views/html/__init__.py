"""The offline HTML view: one index and a page a session, without a request, a cookie or a foreign script.

Text of transcripts reaches a page in two ways only: escaped, by jinja2 or :mod:`.safe`; or rendered from
Markdown with its HTML switched off and sanitised after that. The pages forbid everything else themselves, by
a Content-Security-Policy that names the digests of their own style and scripts.
"""

from __future__ import annotations

from autocode.jobs.operations.views.html.site import write_html

__all__ = ["write_html"]
