"""The whole check of a lesson: the rules of hygiene, then every cell run anew and compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from notebooks.hygiene import problems

__all__ = ["failures"]

ROOT: Final = Path(__file__).resolve().parents[2]


def failures(notebook: Path, *, temporary: Path, text: Path | None = None) -> list[str]:
    """Return what is wrong with *notebook*: broken rules, or else the first cell that prints otherwise.

    Args:
        notebook: the stored lesson.
        temporary: where it may make its temporary folders.
        text: its text, where that isn't the file of the same name in ``notebooks/``.
    """
    found = problems(notebook, text=text)
    return found or _compared(notebook, temporary)


def _compared(notebook: Path, temporary: Path) -> list[str]:
    # the same options as the stage of `make test`, and an end at the first difference
    spec = (ROOT / "scripts" / "test.py").read_text("utf-8")
    strict = re.findall(r'^    "(--nbval[^"]*)",$', spec, re.MULTILINE)
    assert len(strict) == 5, strict
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", "-x", "-q", "--color=no", *strict, str(notebook)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        check=False,
        capture_output=True,
        text=True,
        timeout=170,
    )
    if done.returncode == 0:
        return []
    failed = re.findall(r"^FAILED (.*)$", done.stdout, re.MULTILINE)
    return failed or [
        f"pytest ended with status {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    ]
