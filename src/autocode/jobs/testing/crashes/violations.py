"""What must not be, found in a job that was disturbed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

__all__ = ["Sort", "Violation"]

Sort = Literal["repeat", "loss", "other"]

_COUNTED: Final = frozenset({"checkpoints", "effects"})
_RESULTS: Final = frozenset({"status", "result", "objects"})


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a job broke; its text is what people read.

    Args:
        job_id: the job.
        rule: the rule's name, one of ``rules.RULES``.
        expected: what had to be.
        found: what was.
    """

    job_id: str
    rule: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.job_id}: {self.rule}: expected {self.expected}, found {self.found}"

    @property
    def sort(self) -> Sort:
        """Whether something was lost, or done twice, or is wrong in another way."""
        if self.rule in _RESULTS or (self.rule in _COUNTED and self.found == "never"):
            return "loss"
        return "repeat" if self.rule in _COUNTED or self.rule == "deliveries" else "other"

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {"rule": self.rule, "expected": self.expected, "found": self.found, "sort": self.sort}
