"""Write anew the committed list of the kill matrix, after a change of kinds, points, faults or victims."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from autocode.jobs.testing.crashes.pairs import pairwise
from autocode.jobs.testing.crashes.workloads import own

MATRIX: Final = Path(__file__).parents[1] / "src/autocode/jobs/testing/crashes/matrix.txt"
HEAD: Final = """\
# The committed list of the kill matrix, made by scripts/crash_matrix.py: KIND POINT:NTH FAULT [VICTIM]
# It has every legal pair of a kind and a point, every legal pair of a kind and a fault with its victim, and
# as many pairs of a point and a fault with its victim as fit into 60 cases, kills first.
"""


def main() -> None:
    """Write the list, with a title for each kind."""
    lines = [HEAD]
    kind = ""
    for case in pairwise(own()):
        if case.kind != kind:
            kind = case.kind
            lines.append(f"\n# {kind}\n")
        lines.append(f"{case}\n")
    MATRIX.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
