"""Run the tests in stages, cheap to dear, and print the time of each.

Arguments are options for pytest; without any they come from ``ARGS``, as in ``make test ARGS="-k lease"``. A
path among them replaces the stages. Every stage runs even if one before it failed, unless ``-x`` is given.
What is marked ``long`` is left out unless ``-m`` or a path is given: ``make test-long`` runs it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
NO_TESTS: Final = 5  # pytest's exit code when it collected nothing


class Stage(NamedTuple):
    """Folders whose tests run together, the options that they need, and the script that sets them up."""

    name: str
    folders: tuple[str, ...]
    options: tuple[str, ...] = ()
    set_up: str | None = None


# every stored output of a lesson is compared with what its cell prints now
STRICT: Final = (
    "--nbval",
    "--nbval-current-env",
    "--nbval-sanitize-with=notebooks/sanitize.cfg",
    "--nbval-cell-timeout=120",
    "--nbval-kernel-startup-timeout=120",
)


STAGES: Final[tuple[Stage, ...]] = (
    Stage("unit, contract, docs", ("tests/unit", "tests/contract", "tests/docs")),
    Stage("integration", ("tests/integration",)),
    Stage("browser", ("tests/browser",), set_up="scripts/browser"),
    Stage("acceptance", ("tests/acceptance",)),
    Stage("notebooks", ("notebooks", "tests/notebooks"), STRICT),
)


def main(arguments: list[str]) -> int:
    """Run the stages with pytest's *arguments* and return the exit code: of the first stage that failed."""
    options = arguments or shlex.split(os.environ.get("ARGS", ""))
    stages = STAGES
    chosen = any(option.startswith("-m") for option in options)
    if any((ROOT / option.partition("::")[0]).exists() for option in options if not option.startswith("-")):
        stages, chosen = (Stage("chosen", ()),), True
    if not chosen:
        options = [*options, "-m", "not long"]
    began = time.monotonic()
    codes: list[int] = []
    for stage in stages:
        folders = [folder for folder in stage.folders if (ROOT / folder).is_dir()]
        if stage.folders and not folders:
            continue
        ready = _set_up(stage)
        codes.append(ready or _run(stage.name, [*folders, *stage.options, *options]))
        if codes[-1] not in {0, NO_TESTS} and {"-x", "--exitfirst"} & set(options):
            break
    print(f"== tests: {time.monotonic() - began:.1f} s in all", flush=True)
    return _verdict(codes, chosen=options != ["-m", "not long"])


def _set_up(stage: Stage) -> int:
    if stage.set_up is None:
        return 0
    return subprocess.run(["sh", stage.set_up], cwd=ROOT, check=False, stdout=subprocess.DEVNULL).returncode


def _run(name: str, arguments: list[str]) -> int:
    print(f"== tests: {name}", flush=True)
    began = time.monotonic()
    # one file stays on one worker, so that servers with the life of a module start once; the files begin in
    # the order of tests/conftest.py
    spread = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    # what makes a stage long is seen where it ran, on whatever machine that was
    slowest = ["--durations=15", "--durations-min=4"]
    command = [sys.executable, "-m", "pytest", *spread, *slowest, *arguments]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    print(f"== tests: {name} took {time.monotonic() - began:.1f} s", flush=True)
    return code


def _verdict(codes: list[int], *, chosen: bool) -> int:
    """Fail with the first failure; a stage in which a choice (``-k``) fits nothing is fine if another ran."""
    failures = [code for code in codes if code not in {0, NO_TESTS}]
    if failures:
        return failures[0]
    if NO_TESTS in codes and not (chosen and 0 in codes):
        return NO_TESTS
    return 0 if codes else NO_TESTS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
