"""Write the table of rules in docs/redaction.md anew from the rules and their examples."""

from __future__ import annotations

from pathlib import Path

from autocode.jobs.redaction import DEFAULT_POLICY
from autocode.jobs.testing.rule_examples import table

BEGIN, END = "<!-- rules: begin -->\n", "<!-- rules: end -->"

page = Path(__file__).resolve().parents[1] / "docs" / "redaction.md"
before, _, rest = page.read_text("utf-8").partition(BEGIN)
after = rest.partition(END)[2]
written = table({rule.id: rule.kind for rule in DEFAULT_POLICY.rules})
page.write_text(f"{before}{BEGIN}\n{written}\n{END}{after}", "utf-8")
