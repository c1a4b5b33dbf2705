"""Redaction: secrets in the strings of a session become markers before anything is exported.

A :class:`Policy` is a named list of :class:`Rule` with a digest, a :class:`Redactor` applies it to the
records of one session, and its :class:`RedactionReport` says what was replaced and where, never with what.
"""

from __future__ import annotations

from autocode.jobs.redaction.policy import Policy, Rule
from autocode.jobs.redaction.redactor import Redactor
from autocode.jobs.redaction.report import Place, RedactionReport
from autocode.jobs.redaction.rules import DEFAULT_POLICY

__all__ = ["DEFAULT_POLICY", "Place", "Policy", "RedactionReport", "Redactor", "Rule"]
