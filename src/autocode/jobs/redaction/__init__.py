"""Redaction: secrets in the strings of a session become markers before anything is exported.

A :class:`Policy` is a named list of :class:`Rule` with a digest, a :class:`Redactor` applies it to the
records of one session, and its :class:`RedactionReport` says what was replaced and where, never with what.
"""

from __future__ import annotations

from autocode.jobs.redaction.allow import Allowance, digest_of_value
from autocode.jobs.redaction.custom import CustomRules, policy_with
from autocode.jobs.redaction.policy import Policy, Rule, marker
from autocode.jobs.redaction.redactor import Redactor
from autocode.jobs.redaction.report import Place, RedactionReport
from autocode.jobs.redaction.rules import DEFAULT_POLICY
from autocode.jobs.redaction.rules_file import read_rules

__all__ = [
    "DEFAULT_POLICY",
    "Allowance",
    "CustomRules",
    "Place",
    "Policy",
    "RedactionReport",
    "Redactor",
    "Rule",
    "digest_of_value",
    "marker",
    "policy_with",
    "read_rules",
]
