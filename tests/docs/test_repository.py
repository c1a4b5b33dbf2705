"""The rules of the house that no linter knows, over everything that git would commit.

Where there is no git (an unpacked archive) every file counts that ``.gitignore`` doesn't leave out. A rule
that is broken fails with the list of places, each as ``file:line: what is wrong``.
"""

from __future__ import annotations

import ast
import fnmatch
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import autocode.jobs

ROOT: Final = Path(__file__).resolve().parents[2]

LONG_MODULES: Final[dict[str, str]] = {
    "src/autocode/jobs/kinds.py": "half of it documents the protocols that every job kind is written against",
}
"""Modules that may have 401 to 500 lines, each with the reason why a split would be worse."""

_INVENTED_PLACES: Final = ("tests/", "notebooks/", "docs/", "src/autocode/jobs/testing/")
INVENTED_USERS: Final = frozenset({"ada", "alex", "alice", "bob", "dev", "grace", "me", "sam", "user", "you"})
"""Owners of home folders that tests and lessons may make up; nobody's real account."""

# in pieces, so that this file doesn't break its own rules
_HOSTS: Final = (
    "pypi" + ".org",
    "python" + "hosted.org",
    "npmjs" + ".org",
    "proxy.golang" + ".org",
    "crates" + ".io",
    "deb.debian" + ".org",
)
_ABSOLUTE: Final = r"(?<![\w.~}\)*+>-])"  # what stands before a path that begins here
_MACHINE_PATHS: Final = re.compile(_ABSOLUTE + r"/(?:work|" + r"root|tmp/wt)/")
_HOMES: Final = re.compile(_ABSOLUTE + r"/(?:home|Users)/([\w.-]+)")
_REQUIREMENT: Final = re.compile(r"[a-z0-9][a-z0-9._-]*(?:\[[a-z0-9,._-]+\])?==[^\s;]+(?: ; [^\\]+)?")


def _tracked() -> list[Path]:
    if (ROOT / ".git").exists():
        # a file that isn't added yet counts too: it's the one most likely to break a rule
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listing = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
        if listing.returncode == 0 and listing.stdout:
            paths = {ROOT / name for name in listing.stdout.split("\0") if name}
            return sorted(path for path in paths if path.is_file())
    patterns = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line.strip()]
    files = (path for path in ROOT.rglob("*") if path.is_file())
    return sorted(path for path in files if not _ignored(path, [*patterns, ".git"]))


def _ignored(path: Path, patterns: list[str]) -> bool:
    parts = path.relative_to(ROOT).parts
    return any(fnmatch.fnmatch(part, pattern) for part in parts for pattern in patterns)


TRACKED: Final = _tracked()


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a text file; nothing for a binary one."""
    content = path.read_bytes()
    if b"\0" not in content[:8192]:
        yield from enumerate(content.decode("utf-8", "replace").splitlines(), start=1)


def _python(*folders: str) -> list[Path]:
    return [path for path in TRACKED if path.suffix == ".py" and _name(path).startswith(folders)]


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), _name(path))


def _at(path: Path, node: ast.stmt | ast.expr, what: str) -> str:
    return f"{_name(path)}:{node.lineno}: {what}"


def test_no_package_registry_is_named() -> None:
    """Which registry serves the packages is the business of whoever installs, so no file names one."""
    places = [
        f"{_name(path)}:{number}: names the host {host}"
        for path in TRACKED
        for number, line in _lines(path)
        for host in _HOSTS
        if host in line.lower()
    ]

    assert places == [], "\n".join(places)


def test_no_path_of_a_machine_is_named() -> None:
    """No file holds the folders of the machine that it was written on."""
    own = {str(ROOT), str(Path.home())} - {"/", "/root", ""}
    places = [
        f"{_name(path)}:{number}: names a path of one machine"
        for path in TRACKED
        for number, line in _lines(path)
        if _MACHINE_PATHS.search(line) or any(folder + "/" in line for folder in own)
    ]

    assert places == [], "\n".join(places)


def test_home_folders_belong_to_invented_users() -> None:
    """Tests, lessons and samples may name a home folder of one of INVENTED_USERS; nothing else names any."""
    places = [
        f"{_name(path)}:{number}: /home of {owner}"
        for path in TRACKED
        for number, line in _lines(path)
        for owner in _HOMES.findall(line)
        if not (owner in INVENTED_USERS and _name(path).startswith(_INVENTED_PLACES))
    ]

    assert places == [], "\n".join(places)


def test_requirements_are_the_only_lock_files() -> None:
    """A lock file of one tool would pin the registry's address and compete with requirements/."""
    locks = {"uv.lock", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "poetry.lock", "Pipfile.lock"}

    found = [_name(path) for path in TRACKED if path.name in locks]

    assert found == [], "\n".join(found)


@pytest.mark.parametrize("flavour", ["run", "dev"])
def test_each_requirement_has_one_version_and_hashes(flavour: str) -> None:
    """A requirements file holds ``name==version`` with hashes and comments, no URL and no option."""
    path = ROOT / "requirements" / f"{flavour}.txt"
    joined = path.read_text().replace("\\\n", " ")
    places = []

    for line in joined.splitlines():
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        requirement, *hashes = words.split(" --hash=")
        if not _REQUIREMENT.fullmatch(requirement.strip()):
            places.append(f"{_name(path)}: not name==version: {words[:80]}")
        if not hashes or any(not entry.strip().startswith("sha256:") for entry in hashes):
            places.append(f"{_name(path)}: no sha256 hash: {words[:80]}")

    assert places == [], "\n".join(places)
    assert "://" not in joined


def test_both_requirements_files_pin_the_same_versions() -> None:
    """Tests run with what users get: dev.txt holds every pin of run.txt; `make requirements` writes both."""
    texts = {name: (ROOT / "requirements" / f"{name}.txt").read_text() for name in ("run", "dev")}

    pins = {name: set(re.findall(r"^[^\s#]+==[^\s;]+", text, re.MULTILINE)) for name, text in texts.items()}

    assert pins["run"] - pins["dev"] == set()


def test_every_dependency_of_the_project_is_pinned() -> None:
    """A dependency added to pyproject.toml comes with `make requirements`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        "run": project["dependencies"],
        "dev": project["dependencies"] + project["optional-dependencies"]["dev"],
    }
    missing = []

    for flavour, requirements in declared.items():
        text = (ROOT / "requirements" / f"{flavour}.txt").read_text()
        pinned = set(re.findall(r"^([a-z0-9._-]+)(?:\[[^\]]*\])?==", text, re.MULTILINE))
        names = {re.split(r"[^A-Za-z0-9._-]", entry)[0].lower().replace("_", "-") for entry in requirements}
        missing += [f"requirements/{flavour}.txt: {name} isn't pinned" for name in sorted(names - pinned)]

    assert missing == [], "\n".join(missing)


def test_modules_are_short() -> None:
    """A module of src or flows has at most 400 lines, or a reason in LONG_MODULES and at most 500."""
    places = []

    for path in _python("src/", "flows/"):
        count = len(path.read_text(encoding="utf-8").splitlines())
        if count > (500 if _name(path) in LONG_MODULES else 400):
            places.append(f"{_name(path)}: {count} lines; split it")

    assert places == [], "\n".join(places)


def test_no_module_is_a_drawer() -> None:
    """A module is named after what it's about: utils, helpers and common are names for anything."""
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}

    found = [_name(path) for path in TRACKED if path.suffix == ".py" and path.stem.strip("_") in drawers]

    assert found == [], "\n".join(found)


def test_every_test_says_what_it_states() -> None:
    """Each test function has a docstring: the behaviour, in a sentence."""
    places = [
        _at(path, node, f"{node.name} has no docstring")
        for path in _python("tests/")
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]

    assert places == [], "\n".join(places)


def test_every_public_name_is_documented() -> None:
    """Each public class, function and method of src has a docstring."""
    places = [
        _at(path, node, f"{node.name} has no docstring")
        for path in _python("src/")
        if "migrations" not in path.parts  # a migration's upgrade() is named and called by Alembic
        for node in _public(_tree(path).body)
        if not ast.get_docstring(node)
    ]

    assert places == [], "\n".join(places)


def _public(body: list[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("_") or _inherits_docstring(node):
            continue
        yield node
        if isinstance(node, ast.ClassDef):
            yield from _public(node.body)


def _inherits_docstring(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Say whether another definition speaks for this one: an overload, a setter, an override."""
    decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return bool(decorators & {"overload", "override", "setter", "deleter"})


def test_tests_wait_for_conditions_and_never_sleep() -> None:
    """No test calls time.sleep, or asyncio.sleep with a second or more: a sleep is too short or too long."""
    places = [
        _at(path, call, "sleeps; wait for a condition with a deadline")
        for path in _python("tests/")
        for call in _sleeps(_tree(path))
    ]

    assert places == [], "\n".join(places)


def _sleeps(tree: ast.Module) -> Iterator[ast.Call]:
    origins = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        origin = origins.get(called, called)
        if origin == "time.sleep" or (origin in {"asyncio.sleep", "anyio.sleep"} and not _is_short(node)):
            yield node


def _is_short(call: ast.Call) -> bool:
    seconds = call.args[0] if call.args else None
    return isinstance(seconds, ast.Constant) and isinstance(seconds.value, int | float) and seconds.value < 1


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import time\ntime.sleep(0)", [2]),
        ("from time import sleep as nap\nnap(1)", [2]),
        ("import asyncio\nasyncio.sleep(1)\nasyncio.sleep(0.01)\nasyncio.sleep(n)", [2, 4]),
        ("sleep = print\nsleep(3)", []),
    ],
)
def test_the_search_for_sleeps_finds_them(source: str, lines: list[int]) -> None:
    """Aliases and variables count as sleeps; a short asyncio.sleep and another name's call don't."""
    found = [call.lineno for call in _sleeps(ast.parse(source))]

    assert found == lines


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("cd " + "/wo" + "rk/main", True),
        ('"/ro' + 'ot/.cache"', True),
        ("https://host.example/wo" + "rk/main", False),
        ("homework/wo" + "rk/x", False),
        ("${HOME}/wo" + "rk/x", False),
    ],
)
def test_the_search_for_machine_paths_finds_them(line: str, found: bool) -> None:
    """An absolute path counts; the same folder inside a longer path or a URL doesn't."""
    match = _MACHINE_PATHS.search(line)

    assert (match is not None) is found


def test_the_changelog_has_a_place_for_the_next_change() -> None:
    """CHANGELOG.md opens with an Unreleased section, and its released versions are in order, newest first."""
    headings = re.findall(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = [tuple(map(int, heading.split("."))) for heading in headings[1:]]

    assert headings[:1] == ["Unreleased"]
    assert released == sorted(released, reverse=True)


def test_decisions_are_numbered_without_gaps() -> None:
    """docs/decisions holds 0001, 0002, …, and its README lists each."""
    folder = ROOT / "docs" / "decisions"
    records = sorted(path.name for path in folder.glob("[0-9]*.md"))
    index = (folder / "README.md").read_text()

    assert [name[:4] for name in records] == [f"{number:04}" for number in range(1, len(records) + 1)]
    assert [name for name in records if f"({name})" not in index] == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from this folder, offline."""
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    built = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return next(target.glob("*.whl"))


def test_the_wheel_carries_the_version_of_the_package(wheel: Path) -> None:
    """The file's name, its metadata and ``__version__`` agree."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()

    assert re.findall(r"^Version: (.*)$", metadata, re.MULTILINE) == [autocode.jobs.__version__]
    assert wheel.name.split("-")[:2] == ["autocode_jobs", autocode.jobs.__version__]


def test_the_wheel_holds_the_package_and_the_flows_and_nothing_else(wheel: Path) -> None:
    """Every file of src and flows is in the wheel (flows as data of the package), and no other."""
    wanted = {_name(path).removeprefix("src/") for path in TRACKED if _name(path).startswith("src/")}
    flows = [_name(path) for path in TRACKED if _name(path).startswith("flows/")]
    wanted |= {name.replace("flows/", "autocode/jobs/_flows/", 1) for name in flows}

    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert flows != []
    assert wanted - packed == set()
    assert packed - wanted == set()


def test_the_source_archive_holds_what_builds_and_tests_the_package(tmp_path: Path) -> None:
    """Every file of src, flows, scripts and tests is in the sdist, data files too."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    folders = ("src/", "flows/", "scripts/", "tests/")

    built = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)

    assert built.returncode == 0, built.stderr
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {_name(path) for path in TRACKED if _name(path).startswith(folders)}
    assert "src/autocode/jobs/engine/prefect_schema.sql" in wanted
    assert wanted - packed == set()
