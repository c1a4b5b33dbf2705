"""The command itself: what it imports, what its help says, how it ends."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from autocode.jobs.cli import main as command
from autocode.jobs.cli.commands import app

COMMANDS = (
    (),
    ("export",),
    ("verify",),
    ("artifacts",),
    ("artifacts", "get"),
    ("jobs",),
    ("jobs", "list"),
    ("jobs", "show"),
    ("jobs", "retry"),
    ("jobs", "cancel"),
    ("jobs", "explain"),
    ("doctor",),
    ("up",),
    ("api",),
    ("reconcile",),
    ("worker",),
    ("login",),
    ("token",),
    ("token", "create"),
    ("token", "list"),
    ("token", "revoke"),
    ("audit",),
    ("audit", "list"),
    ("audit", "head"),
    ("audit", "verify"),
    ("config",),
    ("backup",),
    ("restore",),
    ("crash-test",),
)


def imported_by(*arguments: str) -> set[str]:
    """Return the top packages that the command imports when it is run with *arguments*."""
    script = (
        "import json, sys\n"
        "from autocode.jobs.cli.main import run\n"
        "status = run(json.loads(sys.argv[1]))\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)\n"
        "sys.exit(status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "arguments", [("--version",), ("--help",), ("export", "--help"), ("jobs", "list", "-h"), ("up", "--help")]
)
def test_help_and_version_wait_for_no_engine(arguments: tuple[str, ...]) -> None:
    """Help and version import neither Prefect nor a database nor pydantic."""
    imported = imported_by(*arguments)

    assert imported.isdisjoint({"prefect", "sqlalchemy", "pandas", "pydantic", "httpx", "alembic"})


def test_listing_jobs_imports_no_prefect() -> None:
    """Prefect reads its settings when it is imported, so commands that don't need it leave it alone."""
    imported = imported_by("jobs", "list")

    assert "sqlalchemy" in imported
    assert imported.isdisjoint({"prefect", "pandas"})


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_help_has_examples_and_exit_statuses(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command's help fits 80 columns and has examples that are commands, and exit statuses."""
    monkeypatch.setenv("COLUMNS", "80")

    status = command.run([*path, "--help"])

    shown = capsys.readouterr().out
    assert status == 0
    assert f"  autocode-jobs {' '.join(path)}".rstrip() in shown.partition("Examples:")[2]
    assert "Exit status: 0 " in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_commands_of_the_examples_exist(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """No help shows an example that the parser would refuse."""
    command.run([*path, "--help"])
    examples = [
        shlex.split(line.strip().partition("|")[0].partition("   ")[0])
        for line in capsys.readouterr().out.partition("Examples:")[2].strip("\n").splitlines()
        if line.startswith("  autocode-jobs ")
    ]

    for words in examples:
        parsed, _, _ = app.parse_args(words[1:], exit_on_error=False, print_error=False)
        assert parsed.__module__.startswith("autocode.jobs.cli.")
    assert examples != []


@pytest.mark.parametrize(
    ("arguments", "detail", "hint"),
    [
        (["--nonsense"], "Unknown command", "autocode-jobs --help"),
        (["exprot"], 'Did you mean "export"?', "autocode-jobs --help"),
        (["export", "--nonsense"], "Unknown option", "autocode-jobs export --help"),
        (["jobs", "list", "--limit", "many"], "--limit", "autocode-jobs jobs list --help"),
        (["jobs", "list", "--limit", "0"], "Must be >= 1", "autocode-jobs jobs list --help"),
        (["jobs", "show"], "requires an argument", "autocode-jobs jobs show --help"),
        (["artifacts", "get"], "requires an argument", "autocode-jobs artifacts get --help"),
    ],
)
def test_a_mistyped_command_line_is_answered_with_the_right_help(
    arguments: list[str], detail: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake ends with status 2, and the answer is on stderr alone."""
    status = command.run(arguments)

    shown = capsys.readouterr()
    assert status == command.USAGE
    assert shown.out == ""
    assert detail in shown.err
    assert shown.err.splitlines()[-1] == f"  next: {hint}"


def test_a_folder_that_begins_with_a_hyphen_is_no_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Claude Code's project folders begin with a hyphen; the hint says how to name one."""
    monkeypatch.chdir(tmp_path)
    Path("-home-ada-parser").mkdir()

    status = command.run(["export", "-home-ada-parser"])

    assert status == command.USAGE
    assert "Write ./-home-ada-parser" in capsys.readouterr().err


def test_an_error_that_nobody_expected_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fault of ours gives no traceback unless somebody asks for it."""

    def fail(*_: object, json: bool) -> int:
        raise RuntimeError("a fault")

    monkeypatch.setattr("autocode.jobs.cli.jobs.list_jobs", fail)

    status = command.run(["jobs", "list"])

    shown = capsys.readouterr()
    assert status == command.FAILED
    assert "RuntimeError: a fault" in shown.err
    assert "Traceback" not in shown.err
    monkeypatch.setenv("AUTOCODE_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        command.run(["jobs", "list"])


def test_the_command_leaves_behind_exit_handlers_and_before_modules_are_torn_down() -> None:
    """What was registered while it ran is called, output is flushed, the status counts, and that is all."""
    script = (
        "import atexit\n"
        "from autocode.jobs.cli import main as command\n"
        "class Late:\n"
        "    def __del__(self):\n"
        "        print('torn down', flush=True)\n"
        "late = Late()\n"
        "def run(arguments):\n"
        "    atexit.register(print, 'handled')\n"
        "    print('done')\n"
        "    return 3\n"
        "command.run = run\n"
        "command.main()\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (3, "done\nhandled\n", "")
