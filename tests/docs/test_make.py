"""What `make` promises: a list of targets, an environment that follows its files, stages with one verdict."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
_TOOLS: Final = ("sh", "dirname", "cksum", "cat", "grep", "sed", "rm", "mv", "mkdir", "cp", "chmod")

_PYTHON: Final = """#!/bin/sh
# plays an interpreter, and notes what it was asked to install
case "$*" in
    --version) echo "Python 3.12.0" ;;
    *"print(sys.executable)"*) echo "$0" ;;
    "-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python && echo venv >> calls ;;
    *"pip install"*) echo "$*" | sed 's/.*pip install --quiet //' >> calls ;;
esac
"""
_OLD_PYTHON: Final = '#!/bin/sh\n[ "$1" != --version ] || echo "Python 3.9.2"\n'

_FULL: Final = [
    "venv",
    "--require-hashes -r requirements/dev.txt",
    "--no-deps --no-build-isolation -e .",
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Lay out a checkout in a folder with a space, and a PATH of the needed tools and nothing else."""
    folder = tmp_path / "my checkout"
    (folder / "scripts").mkdir(parents=True)
    (folder / "requirements").mkdir()
    (folder / "src/autocode/jobs").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "install", folder / "scripts")
    for name in (
        "pyproject.toml",
        "src/autocode/jobs/_version.py",
        "requirements/run.txt",
        "requirements/dev.txt",
    ):
        (folder / name).write_text("first\n")
    (folder / "requirements" / "dev.txt").write_text("first\n")
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in _TOOLS:
        (tools / tool).symlink_to(shutil.which(tool) or "missing")
    return folder


def _program(checkout: Path, name: str, text: str) -> None:
    path = checkout.parent / "bin" / name
    path.write_text(text)
    path.chmod(0o755)


def _install(checkout: Path, flavour: str = "dev", **variables: str) -> tuple[int, str, list[str]]:
    """Run scripts/install and return its exit code, its complaint, and what it installed in this call."""
    calls = checkout / "calls"
    calls.write_text("")
    environment = {"PATH": str(checkout.parent / "bin"), **variables}
    done = subprocess.run(
        ["sh", "scripts/install", flavour],
        cwd=checkout,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stderr, calls.read_text().splitlines()


def test_make_alone_lists_every_target() -> None:
    """`make` prints a line for each target that is meant to be called."""
    targets = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split()

    printed = subprocess.run(["make"], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    assert re.findall(r"^  make ([\w-]+) +\S", printed, re.MULTILINE) == targets


def test_a_second_install_does_nothing(checkout: Path) -> None:
    """The first call makes the environment; the second finds it as the files ask for."""
    _program(checkout, "python3", _PYTHON)

    first, second = _install(checkout), _install(checkout)

    assert first == (0, "", _FULL)
    assert second == (0, "", [])


def test_changed_requirements_install_anew(checkout: Path) -> None:
    """Another content of the requirements file, whatever its time stamp, makes a fresh environment."""
    _program(checkout, "python3", _PYTHON)
    _install(checkout)
    (checkout / "requirements" / "dev.txt").write_text("second\n")

    result = _install(checkout)

    assert result == (0, "", _FULL)


def test_a_new_version_of_the_project_is_all_that_is_installed_again(checkout: Path) -> None:
    """A change in the project's own metadata leaves the other packages alone."""
    _program(checkout, "python3", _PYTHON)
    _install(checkout)
    (checkout / "src/autocode/jobs/_version.py").write_text("second\n")

    result = _install(checkout)

    assert result == (0, "", _FULL[2:])


def test_a_moved_checkout_installs_anew(checkout: Path) -> None:
    """An environment doesn't survive a move of its folder, so it is made again."""
    _program(checkout, "python3", _PYTHON)
    _install(checkout)
    moved = checkout.rename(checkout.with_name("elsewhere"))

    result = _install(moved)

    assert result == (0, "", _FULL)


def test_work_builds_on_what_the_demo_installed(checkout: Path) -> None:
    """`run` then `dev` adds to the environment; `run` after `dev` has nothing to add."""
    _program(checkout, "python3", _PYTHON)
    _install(checkout, "run")

    dev, run = _install(checkout, "dev"), _install(checkout, "run")

    assert dev == (0, "", _FULL[1:])
    assert run == (0, "", [])


def test_another_interpreter_makes_another_environment(checkout: Path) -> None:
    """PYTHON selects the interpreter; without it the environment stays with the one that it has."""
    _program(checkout, "python3", _PYTHON)
    _program(checkout, "python3.12", _PYTHON)
    _install(checkout, PYTHON="python3")

    selected, kept = _install(checkout, PYTHON="python3.12"), _install(checkout)

    assert selected == (0, "", _FULL)
    assert kept == (0, "", [])


@pytest.mark.parametrize(
    ("text", "variables", "complaint"),
    [
        (_OLD_PYTHON, {}, "No Python 3.11 or newer was found on PATH (python3 is Python 3.9.2)."),
        (
            _OLD_PYTHON,
            {"PYTHON": "python3"},
            "PYTHON=python3 is Python 3.9.2, but Python 3.11 or newer",
        ),
        ("#!/bin/sh\nexit 127\n", {"PYTHON": "python3"}, "PYTHON=python3 is no Python that runs, but"),
    ],
)
def test_an_unfit_interpreter_is_refused_with_a_way_out(
    checkout: Path, text: str, variables: dict[str, str], complaint: str
) -> None:
    """A Python that is too old, or a shim that runs none, is named, and so is what to do."""
    _program(checkout, "python3", text)

    code, printed, calls = _install(checkout, **variables)

    assert code == 1
    assert complaint in printed
    assert "PYTHON=" in printed.splitlines()[1]
    assert calls == []


@pytest.fixture(scope="module")
def stages() -> ModuleType:
    """Load scripts/test.py as a module."""
    spec = importlib.util.spec_from_file_location("stages", ROOT / "scripts" / "test.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("codes", "chosen", "verdict"),
    [
        ([0, 0, 0], False, 0),
        ([0, 1, 2], False, 1),
        ([5, 0, 5], True, 0),
        ([5, 5, 5], True, 5),
        ([0, 5, 0], False, 5),
        ([5, 1, 0], True, 1),
        ([], False, 5),
    ],
)
def test_the_verdict_of_the_stages(stages: ModuleType, codes: list[int], chosen: bool, verdict: int) -> None:
    """The first failure decides; a stage without tests is a failure unless a choice left it empty."""
    code = stages._verdict(codes, chosen=chosen)

    assert code == verdict
