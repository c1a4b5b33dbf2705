"""The whole round on one home: export, list, show, verify, get, check; and what stdout and stderr hold."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from acceptance.command import PROGRAM, Command, Done
from acceptance.machine import bound_by_permissions, terminal, text_of
from autocode.jobs.engine.server import private_server
from autocode.jobs.resource import Job
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore
from autocode.jobs.testing.samples import write_samples

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Exported:
    """A home with one finished export, whose server the tests keep alive."""

    command: Command
    sessions: Path
    out: Path
    done: Done

    @property
    def digest(self) -> str:
        """The artifact."""
        return str(self.done.job["result"]["digest"])

    @property
    def name(self) -> str:
        """The bundle's name."""
        return f"autocode-export-{self.digest[7:19]}"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    """Export sample sessions once, in JSON mode."""
    folder = tmp_path_factory.mktemp("exported")
    write_samples(folder / "sessions", seed=11, sessions=3, megabytes=0.2)
    command = Command(folder / "home")
    Home(command.home).prepare()
    with private_server(Home(command.home)):
        done = command.run("export", folder / "sessions", "-o", folder / "out", "--json")
        assert done.status == 0, done.err
        yield Exported(command, folder / "sessions", folder / "out", done)


def rows(command: Command) -> list[str]:
    """Return everything that the ledger holds."""
    with closing(sqlite3.connect(command.home / "ledger.db")) as ledger:
        return list(ledger.iterdump())


def sha256sum(bundle: Path) -> None:
    """Check the bundle as anybody would, without this program."""
    for manifest in ("manifest-sha256.txt", "tagmanifest-sha256.txt"):
        subprocess.run(["sha256sum", "--check", "--quiet", "--strict", manifest], cwd=bundle, check=True)


def test_with_json_stdout_is_the_job_resource_and_nothing_else(exported: Exported) -> None:
    """The only line on stdout is the resource; people read the same facts on stderr, in order."""
    done = exported.done

    job = Job.model_validate_json(done.out)

    assert done.out.count("\n") == 1
    assert job.status == "complete"
    assert job.result is not None
    for told in (job.result.digest, job.job_id, exported.name, "sha256sum -c manifest-sha256.txt"):
        assert told in done.err


def test_a_normal_run_says_nothing_that_isnt_for_its_user(exported: Exported) -> None:
    """No log line of a library, no warning and no traceback reaches stderr."""
    for line in exported.done.err.splitlines():
        assert not re.search(r"Traceback|Warning|INFO|DEBUG|prefect\.|\| ", line), line


def test_the_bundle_checks_without_this_program(exported: Exported) -> None:
    """``sha256sum -c`` passes, and the digest that was told is that of manifest.json."""
    bundle = exported.out / exported.name

    sha256sum(bundle)

    told = subprocess.run(["sha256sum", bundle / "manifest.json"], capture_output=True, text=True, check=True)
    assert f"sha256:{told.stdout.split()[0]}" == exported.digest


def test_the_job_is_listed_and_shown(exported: Exported) -> None:
    """Into a pipe the list is whole; ``show`` has each checkpoint; both give the resource with --json."""
    job = exported.done.job

    listed = exported.command.run("jobs", "list")
    shown = exported.command.run("jobs", "show", job["job_id"])
    as_json = exported.command.run("jobs", "show", job["job_id"], "--json")

    assert (listed.status, shown.status, as_json.status) == (0, 0, 0)
    line = next(line for line in listed.out.splitlines() if line.startswith(job["job_id"]))
    assert line.split()[:3] == [job["job_id"], "complete", exported.digest]
    for entry in job["history"]:
        assert f"{entry['digest']}  {entry['step']}" in shown.out
    assert json.loads(as_json.out) == job
    assert [
        json.loads(line)["job_id"] for line in exported.command.run("jobs", "list", "--json").out.splitlines()
    ]
    assert listed.err + shown.err + as_json.err == ""


def test_the_store_and_the_artifact_verify(exported: Exported) -> None:
    """Both forms of verify find nothing, and say how much they looked at."""
    everything = exported.command.run("verify", "--json")
    artifact = exported.command.run("verify", exported.digest[:19])

    assert (everything.status, artifact.status) == (0, 0)
    found = json.loads(everything.out)
    assert found["ok"] is True
    assert found["checked"] > len(exported.done.job["history"])
    assert "Every object matches its digest" in artifact.out


@pytest.mark.parametrize("zipped", [False, True], ids=["folder", "zip"])
def test_an_artifact_is_written_again_from_a_short_digest(
    exported: Exported, tmp_path: Path, *, zipped: bool
) -> None:
    """``artifacts get`` writes the bundle that the export wrote, into a folder that it makes."""
    out = tmp_path / "new" / "out"
    more = ["--zip"] if zipped else []

    done = exported.command.run("artifacts", "get", exported.digest[7:19], "-o", out, *more)

    assert done.status == 0, done.err
    written = Path(done.out.strip())
    assert written.parent == out
    assert list(out.iterdir()) == [written]
    if zipped:
        with zipfile.ZipFile(written) as archive:
            archive.extractall(tmp_path / "unzipped")
        written = tmp_path / "unzipped" / exported.name
    sha256sum(written)
    first = exported.out / exported.name
    assert {path.relative_to(written) for path in written.rglob("*")} == {
        path.relative_to(first) for path in first.rglob("*")
    }


def test_the_same_export_again_reuses_every_step_and_says_so(exported: Exported, tmp_path: Path) -> None:
    """A second export looks at the files, reads none of them, and ends with the same bundle."""
    again = exported.command.run("export", exported.sessions, "-o", tmp_path)

    assert again.status == 0, again.err
    assert exported.digest in again.out
    reused = len(exported.done.job["history"]) - 1
    assert f"1 done in attempt 1, {reused} reused from earlier jobs (read x{reused - 1}, bundle)" in again.out
    sha256sum(tmp_path / exported.name)


def test_who_reads_one_line_and_leaves_hears_no_complaint(exported: Exported) -> None:
    """``jobs show | head -1`` ends quietly, as any filter does."""
    script = '"$0" jobs show "$1" | head -n 1; "$0" export "$2" --preview | head -n 1'
    done = subprocess.run(
        ["sh", "-c", script, PROGRAM, exported.done.job["job_id"], exported.sessions],
        env=exported.command.environ(),
        capture_output=True,
        text=True,
        check=True,
    )

    assert len(done.stdout.splitlines()) == 2
    assert done.stderr.replace("Nothing was written.\n", "") == ""


def test_output_that_can_t_be_written_is_an_error(exported: Exported) -> None:
    """A full disk behind stdout ends with status 1 and a sentence."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [PROGRAM, "jobs", "list"],
            env=exported.command.environ(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr.startswith("error: No space left on device.\n")


def test_a_preview_tells_redactions_and_losses_by_place_and_writes_nothing(
    exported: Exported, tmp_path: Path
) -> None:
    """``--preview`` lists rule, record and pointer; no secret, no home, no bundle."""
    command = Command(tmp_path / "home")
    planted = write_samples(tmp_path / "same", seed=11, sessions=3, megabytes=0.2).secrets

    done = command.run("export", exported.sessions, "--preview", "-o", tmp_path / "out")
    as_json = command.run("export", exported.sessions, "--preview", "--json")

    assert (done.status, as_json.status) == (0, 0)
    place = r"^redacts  [a-z0-9-]+ in record \d+ \(\w+(?: of \S+)?\) at /\S*$"
    redacted = re.findall(place, done.out, re.MULTILINE)
    manifest = json.loads((exported.out / exported.name / "manifest.json").read_text())
    assert len(redacted) == manifest["totals"]["redacted"] == json.loads(as_json.out)["totals"]["redacted"]
    assert re.search(r"^damaged  \d+ B at byte [\d,]+: truncated$", done.out, re.MULTILINE)
    assert re.search(r"^loses    .*thinking-signature", done.out, re.MULTILINE)
    assert not any(secret.text in done.out + as_json.out for secret in planted)
    assert not command.home.exists()
    assert not (tmp_path / "out").exists()


def test_a_damaged_object_is_found_and_made_anew(exported: Exported, tmp_path: Path) -> None:
    """``verify`` moves it to quarantine and ends with 1, until the same export has repaired the artifact."""
    command = Command(tmp_path / "home")
    shutil.copytree(exported.command.home, command.home, ignore=shutil.ignore_patterns("run", "prefect"))
    manifest = json.loads((exported.out / exported.name / "manifest.json").read_text())
    member = next(each["sha256"] for each in manifest["members"] if each["path"].endswith(".jsonl"))
    victim = LocalStore(command.home / "store").path_of(member)
    victim.chmod(0o600)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 0xFF
    victim.write_bytes(data)

    found = command.run("verify", "--json")
    still = command.run("verify")
    got = command.run("artifacts", "get", exported.digest, "-o", tmp_path / "broken")
    again = command.run("export", exported.sessions, "-o", tmp_path / "mended", "--json")
    sound = command.run("verify")

    assert (found.status, still.status, got.status) == (1, 1, 1)
    assert json.loads(found.out)["damaged"] == [member]
    assert f"missing  {member}" in still.out
    assert f"needed by {exported.digest}" in still.out
    assert not (tmp_path / "broken").exists()
    assert again.status == 0, again.err
    assert again.job["result"]["digest"] == exported.digest
    sha256sum(tmp_path / "mended" / exported.name)
    assert sound.status == 0, sound.out
    command.wait_until_gone()


def test_only_other_tools_files_is_a_dead_job_that_says_what_was_found(
    exported: Exported, tmp_path: Path
) -> None:
    """Status 1, the resource says permanent, and the message counts what lies there."""
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    (sessions / "empty.jsonl").write_bytes(b"")
    (sessions / "notes.txt").write_bytes(b"no session at all")

    done = exported.command.run("export", sessions, "-o", tmp_path / "out", "--json")

    assert done.status == 1
    assert (done.job["status"], done.job["reason"]) == ("dead", "permanent")
    assert "error: The selection holds no session that a reader understands" in done.err
    assert done.err.splitlines()[-1].startswith("  next: ")
    assert not (tmp_path / "out").exists()


def test_what_can_t_be_read_is_left_out_and_counted(exported: Exported, tmp_path: Path) -> None:
    """An empty file, an unreadable one and an unreadable folder don't keep the rest from being exported."""
    sessions = tmp_path / "sessions"
    shutil.copytree(exported.sessions, sessions)
    (sessions / "empty.jsonl").write_bytes(b"")
    (sessions / "secret.jsonl").write_bytes(b"{}")
    (sessions / "secret.jsonl").chmod(0)
    (sessions / "closed").mkdir(mode=0)
    command = Command(exported.command.home)

    done = subprocess.run(
        bound_by_permissions(PROGRAM, "export", sessions, "-o", tmp_path / "out"),
        env=command.environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "left out 2: unreadable-file 1, unreadable-folder 1" in done.stdout
    assert re.search(r"^not read .*empty 1", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "detail"),
    [
        (["export", "{sessions}s"], "can't be looked at: No such file or directory"),
        (["export", "/dev/null"], "is neither a folder nor a regular file"),
        (["export", "{sessions}", "-o", "/dev/null/x"], "/dev/null is no folder"),
        (["export", "{sessions}", "--shiny"], "Unknown option"),
        (["artifacts", "get", "sha256:xyz"], "is no digest"),
        (["artifacts", "get", "sha256:" + "0" * 64], "No artifact begins with"),
        (["artifacts", "get", "00000000"], "No artifact begins with"),
        (["artifacts", "get", "{entry}"], "is no manifest"),
        (["verify", "sha256:123"], "is no digest"),
        (["jobs", "show", "export-nonsense"], "There is no job 'export-nonsense'"),
        (["jobs", "show", ""], "There is no job ''"),
    ],
)
def test_what_makes_no_sense_is_status_2_and_changes_nothing(
    exported: Exported, arguments: list[str], detail: str
) -> None:
    """Each mistake is told with what to do next, on stderr alone, and the ledger stays as it was."""
    entry = next(each["digest"] for each in exported.done.job["history"] if each["step"].startswith("read "))
    before = rows(exported.command)

    done = exported.command.run(*(each.format(sessions=exported.sessions, entry=entry) for each in arguments))

    assert done.status == 2
    assert done.out == ""
    assert detail in done.err
    assert "\n  next: " in done.err
    assert rows(exported.command) == before


def test_a_mistyped_folder_gets_a_near_match(exported: Exported) -> None:
    """The hint names the folder that was probably meant."""
    done = exported.command.run("export", f"{exported.sessions}s")

    assert f"Did you mean {exported.sessions}?" in done.err


def test_a_nonsense_crash_point_is_answered_with_the_list(tmp_path: Path) -> None:
    """``AUTOCODE_CRASH`` is checked before anything is made."""
    command = Command(tmp_path / "home")

    done = command.run("jobs", "list", AUTOCODE_CRASH="nonsense")

    assert done.status == 2
    assert "step.after-checkpoint" in done.err
    assert not command.home.exists()


class TestWithoutAPath:
    """``export`` without a path: the agents' usual folders, and a question."""

    @pytest.fixture
    def user(self, exported: Exported, tmp_path: Path) -> Command:
        """Return the command of a user with sessions of three agents, on the shared home."""
        home = tmp_path / "ada"
        shutil.copytree(exported.sessions / "claude-code", home / ".claude")
        shutil.copytree(exported.sessions / "codex", home / ".codex")
        shutil.copytree(exported.sessions / "gemini-cli", home / ".gemini")
        unset = {"CLAUDE_CONFIG_DIR": "", "CODEX_HOME": ""}
        return Command(exported.command.home, {"HOME": str(home), **unset})

    def test_nobody_to_ask_is_told_to_say_yes(self, user: Command, tmp_path: Path) -> None:
        """Without a terminal and without --yes nothing is exported; the counts are shown all the same."""
        done = user.run("export", "-o", tmp_path / "out")

        assert done.status == 2
        assert re.search(r"claude-code +\S+/\.claude/projects +\d+ files, [\d.]+ kB", done.err)
        assert "Say --yes" in done.err
        assert not (tmp_path / "out").exists()

    def test_yes_exports_them(self, user: Command, exported: Exported, tmp_path: Path) -> None:
        """With --yes the usual folders are exported, each as a root of its own."""
        done = user.run("export", "--yes", "-o", tmp_path / "out", "--json")

        assert done.status == 0, done.err
        manifest = json.loads(next((tmp_path / "out").glob("*/manifest.json")).read_text())
        assert manifest["totals"]["sessions"] == len(
            [entry for entry in exported.done.job["history"] if entry["step"].startswith("read ")]
        )

    @pytest.mark.parametrize("said", ["n\n", "what?\nNO\n", "\x04"])
    def test_no_exports_nothing(self, user: Command, tmp_path: Path, said: str) -> None:
        """Who answers n, or closes the input, gets status 2 and no job."""
        with terminal([PROGRAM, "export", "-o", tmp_path / "out"], user.environ()) as screen:
            screen.read_until("Export all of this? [Y/n]")
            screen.press(said)
            status = screen.end()

        assert status == 2
        assert "Nothing was exported." in text_of(screen.seen)
        assert not (tmp_path / "out").exists()

    def test_ctrl_c_at_the_question_is_quiet(self, user: Command, tmp_path: Path) -> None:
        """Ctrl-C at the question ends with 130 and no traceback."""
        with terminal([PROGRAM, "export", "-o", tmp_path / "out"], user.environ()) as screen:
            screen.read_until("Export all of this? [Y/n]")
            screen.press("\x03")
            status = screen.end(within=10)

        assert status == 130
        assert "Traceback" not in screen.seen

    def test_a_user_without_agents_is_told_where_to_go(self, exported: Exported, tmp_path: Path) -> None:
        """No usual folder: status 2, and the next step is a path."""
        command = Command(exported.command.home, {"HOME": str(tmp_path)})

        done = command.run("export", "--yes")

        assert done.status == 2
        assert "Name a folder: autocode-jobs export PATH" in done.err


class TestOnATerminal:
    """What a person sees."""

    def test_a_bar_moves_and_goes_away(self, exported: Exported, tmp_path: Path) -> None:
        """On a terminal a line is redrawn while the job runs, nothing of Prefect shows, the report stays."""
        with terminal(
            [PROGRAM, "export", exported.sessions, "-o", tmp_path], exported.command.environ()
        ) as screen:
            status = screen.end()

        assert status == 0
        assert "attempt 1" in screen.seen
        assert "\x1b[2K" in screen.seen
        shown = text_of(screen.seen)
        assert "Prefect collects" not in shown
        assert exported.digest in shown

    @pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
    def test_a_list_without_colours(self, exported: Exported, environment: dict[str, str]) -> None:
        """``NO_COLOR`` and a dumb terminal get no escape sequence at all."""
        with terminal([PROGRAM, "jobs", "list"], exported.command.environ(**environment)) as screen:
            status = screen.end()

        assert status == 0
        assert "\x1b" not in screen.seen

    @pytest.mark.parametrize("columns", [80, 200])
    def test_a_list_fits_the_terminal(self, exported: Exported, columns: int) -> None:
        """Ids, statuses and digests are whole or as short as other commands take them, and no line wraps."""
        job_id = exported.done.job["job_id"]

        with terminal([PROGRAM, "jobs", "list"], exported.command.environ(), columns=columns) as screen:
            status = screen.end()

        lines = text_of(screen.seen).splitlines()
        digest = exported.digest if columns == 200 else exported.digest[:19]
        assert status == 0
        assert max(map(len, lines)) <= columns
        assert next(line for line in lines if line.startswith(job_id)).split()[1:3] == ["complete", digest]


def test_doctor_finds_nothing_wrong(exported: Exported) -> None:
    """On a sound home doctor ends with 0, and its JSON has what it printed."""
    done = exported.command.run("doctor", "--json", HOME=str(exported.sessions))

    found = json.loads(done.out)
    assert (done.status, found["ok"]) == (0, True)
    for finding in found["findings"]:
        assert finding["what"] in done.err


def test_names_from_outside_move_no_cursor(exported: Exported, tmp_path: Path) -> None:
    """A file name with an escape sequence in it is spelt out, in messages as in the preview."""
    evil = tmp_path / "evil\x1b[2J"
    evil.mkdir()
    (evil / "\x1b[31m.txt").write_bytes(b"x")

    missing = exported.command.run("export", tmp_path / "\x1b[31mmissing")
    preview = exported.command.run("export", evil, "--preview")

    assert (missing.status, preview.status) == (2, 0)
    assert "\x1b" not in missing.err + preview.out + preview.err
