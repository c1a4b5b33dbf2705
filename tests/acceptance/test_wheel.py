"""The wheel as a user gets it: built, installed into an empty environment with the pins, run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import autocode.jobs
from acceptance.command import PROGRAM, Command
from autocode.jobs.testing.samples import write_samples

ROOT: Final = Path(__file__).resolve().parents[2]

# building the environment takes about a minute with pip on two cores, and downloads what isn't cached
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def _run(command: list[str], *, cwd: Path) -> str:
    """Run *command* without our own environment's traces; return what it prints, fail with all of it."""
    hidden = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(command, cwd=cwd, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel, install it into an empty environment, and return that environment's ``bin``."""
    folder = tmp_path_factory.mktemp("wheel")
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT)
    wheel = str(next(folder.glob("*.whl")))
    python = str(folder / "env" / "bin" / "python")
    uv = shutil.which("uv")
    if uv is not None:
        _run([uv, "venv", "--no-project", "--python", sys.executable, str(folder / "env")], cwd=folder)
        install = [uv, "pip", "install", "--compile-bytecode", "--python", python]
    else:
        _run([sys.executable, "-m", "venv", str(folder / "env")], cwd=folder)
        install = [python, "-m", "pip", "install", "--quiet"]
    _run([*install, "--require-hashes", "-r", str(ROOT / "requirements" / "run.txt")], cwd=folder)
    _run([*install, "--no-deps", wheel], cwd=folder)
    return folder / "env" / "bin"


def test_the_command_tells_its_version(installed: Path, tmp_path: Path) -> None:
    """``autocode-jobs --version``, run from another folder, prints the version of the wheel."""
    printed = _run([str(installed / "autocode-jobs"), "--version"], cwd=tmp_path)

    assert autocode.jobs.__version__ in printed


def test_the_package_comes_from_the_wheel_with_types_and_flows(installed: Path, tmp_path: Path) -> None:
    """The installed package lies in its own environment, and ``py.typed`` and the flows lie beside it."""
    script = "import autocode.jobs as package; print(package.__path__[0])"

    folder = Path(_run([str(installed / "python"), "-c", script], cwd=tmp_path).strip())

    assert folder.is_relative_to(installed.parent)
    assert (folder / "py.typed").is_file()
    assert list((folder / "_flows").glob("*.py")) != []


def test_the_installed_command_exports_what_the_source_tree_does(installed: Path, tmp_path: Path) -> None:
    """From another folder, with a home of its own, the wheel's export gives the source tree's digest."""
    write_samples(tmp_path / "sessions", seed=5, sessions=3, megabytes=0.2)
    arguments = ("export", "../sessions", "-o", ".", "--json")
    jobs = []
    for name, program in (("wheel", installed / "autocode-jobs"), ("tree", PROGRAM)):
        folder = tmp_path / name
        folder.mkdir()
        command = Command(tmp_path / f"home-{name}", program=program)

        done = command.run(*arguments, cwd=folder)

        assert done.status == 0, done.err
        jobs.append(done.job)
        command.wait_until_gone()
    assert jobs[0]["result"]["digest"] == jobs[1]["result"]["digest"]
