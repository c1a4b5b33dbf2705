"""What the lessons in ``notebooks/`` stand on: real runs that can be killed, and witnesses that saw them.

A lesson starts with :func:`start` and ends with :meth:`Lesson.stop`. How to write one is on the page
``docs/lessons.md``.
"""

from __future__ import annotations

from autocode.jobs.testing.lessons.lesson import Lesson, start
from autocode.jobs.testing.lessons.runs import Run
from autocode.jobs.testing.lessons.tables import Table, Text

__all__ = ["Lesson", "Run", "Table", "Text", "start"]
