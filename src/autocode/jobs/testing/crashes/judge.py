"""Whether a job that was disturbed ended as one that nobody disturbed, and left nothing behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from autocode.jobs.settings import LEASE_SECONDS
from autocode.jobs.testing.crashes.evidence import AppliedEffect, Evidence
from autocode.jobs.testing.crashes.rules import RULES, Expected, Peaceful
from autocode.jobs.testing.crashes.violations import Violation

__all__ = ["SHOWN_SECONDS", "judge"]

SHOWN_SECONDS: Final = LEASE_SECONDS + 2.0
"""How long the contract lets a dead attempt be shown as running, while a reconciler lives."""


def judge(
    evidence: Evidence,
    *,
    undisturbed: Peaceful,
    effects: Sequence[AppliedEffect] = (),
    max_attempts_expected: int,
    one_attempt: bool = False,
    may_redeliver: bool = False,
    own_retries: int = 0,
    clocks_agree: bool = True,
    bound: float = SHOWN_SECONDS,
) -> list[Violation]:
    """Return what is wrong, one violation each; empty where nothing is. Pure.

    Args:
        evidence: what is left of the job.
        undisturbed: the same job without a fault.
        effects: what that one did to the world.
        max_attempts_expected: how many attempts the fault may cost, and one.
        one_attempt: nothing that ran the job was struck.
        may_redeliver: the fault may fall between an effect and its record.
        own_retries: how many steps the fault gives an error that they may cure by themselves.
        clocks_agree: nobody put a clock wrong.
        bound: for how many seconds a dead attempt may be shown as running.
    """
    expected = Expected(
        undisturbed=undisturbed,
        effects=effects,
        max_attempts=max_attempts_expected,
        one_attempt=one_attempt,
        may_redeliver=may_redeliver,
        own_retries=own_retries,
        clocks_agree=clocks_agree,
        shown_seconds=bound,
    )
    return [
        Violation(evidence.job_id, name, wanted, found)
        for name, rule in RULES.items()
        for wanted, found in rule(evidence, expected)
    ]
