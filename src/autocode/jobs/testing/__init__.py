"""Public test material: contract suites for those who bring an implementation of their own.

Needs pytest, which the package itself doesn't depend on.
"""

from __future__ import annotations

import pytest

# a failing assert in a suite then shows its values, as it would in a test file
pytest.register_assert_rewrite("autocode.jobs.testing.store_contract")
