"""The main job on embedded parts: export sessions, kill the process half-way, run the same command again.

Everything happens in ``.demo/``: sample sessions in the tools' own layouts, and two data folders. One export
is left alone; the other is killed by SIGKILL while it writes, and started again. Then they are compared.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from autocode.jobs.testing.samples import write_samples

FOLDER: Final = Path(".demo")
KILLED_AT: Final = "step.mid-write:6"
"""The sixth object: the third session's normal form, half on disk."""

console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the command: its exit status, the job that it printed last, and how long it took."""

    status: int
    job: dict[str, Any]
    seconds: float


def main() -> int:
    """Run the demo; return 0 if everything is as promised."""
    began = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    samples = write_samples(FOLDER / "sessions", seed=7, sessions=8, megabytes=4)
    size = sum(file.size for file in samples.files) / 1e6
    written = f"{len(samples.files)} files, {size:.1f} MB, in {samples.folder}"
    console.print(f"[bold]Sample sessions[/]: {written}\n")

    undisturbed = export("undisturbed", "1. An export that nobody disturbs")
    killed = export("killed", f"2. The same export, killed by SIGKILL at {KILLED_AT}", crash=KILLED_AT)
    resumed = export("killed", "3. The same command again")
    checked = check(resumed)
    good = show(undisturbed, killed, resumed, checked=checked)
    console.print(f"\n{time.monotonic() - began:.0f} s in all.")
    what_next()
    return 0 if good else 1


def export(name: str, title: str, *, crash: str | None = None) -> Run:
    """Run ``autocode-jobs export`` as its own process on a data folder of its own."""
    console.print(f"[bold]{title}[/]")
    environment = {**os.environ, "AUTOCODE_HOME": str((FOLDER / f"home-{name}").absolute())}
    environment.pop("AUTOCODE_CRASH", None)
    if crash:
        environment["AUTOCODE_CRASH"] = crash
    command = ["export", str(FOLDER / "sessions"), "-o", str(FOLDER / f"bundle-{name}"), "--json"]
    console.print(f"   autocode-jobs {' '.join(command)}", style="dim")
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "autocode.jobs.cli.main", *command],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    lines = done.stdout.splitlines()
    died = f"killed by {signal.Signals(-done.returncode).name}" if done.returncode < 0 else "ended"
    console.print(f"   {died} after {seconds:.1f} s\n")
    return Run(done.returncode, json.loads(lines[-1]) if lines else {}, seconds)


def check(run: Run) -> bool:
    """Let ``sha256sum`` check the bundle, with none of our code."""
    if not run.job.get("result"):
        return False
    bundle = next((FOLDER / "bundle-killed").glob("autocode-export-*"))
    program = shutil.which("sha256sum")
    command = [program, "--quiet", "-c"] if program else ["shasum", "-a", "256", "--quiet", "-c"]
    return subprocess.run([*command, "manifest-sha256.txt"], cwd=bundle, check=False).returncode == 0


def show(undisturbed: Run, killed: Run, resumed: Run, *, checked: bool) -> bool:
    """Print the evidence; return whether all of it is as it should be."""
    history = resumed.job.get("history", [])
    by_attempt = {n: sum(entry["attempt"] == n for entry in history) for n in (1, 2)}
    jobs = (undisturbed.job, resumed.job)
    digests = [job["result"]["digest"] if job.get("result") else "none" for job in jobs]
    attempts = resumed.job.get("attempts")
    evidence = [
        ("status of the run that was killed", str(killed.status), killed.status == -signal.SIGKILL),
        ("attempts of the killed job", str(attempts), attempts == 2),
        ("steps of attempt 1, reused", str(by_attempt[1]), by_attempt[1] > 0),
        ("steps of attempt 2", str(by_attempt[2]), by_attempt[2] > 0),
        ("undisturbed digest", digests[0][:26] + "…", digests[0] != "none"),
        ("digest after the kill", digests[1][:26] + "…", digests[1] == digests[0]),
        ("sha256sum -c manifest-sha256.txt", "passes" if checked else "fails", checked),
    ]
    table = Table(title="Evidence", title_justify="left", box=None, pad_edge=False)
    for column in ("what", "seen", ""):
        table.add_column(column)
    for what, seen, good in evidence:
        table.add_row(what, seen, "[green]ok[/]" if good else "[bold red]NOT as promised[/]")
    console.print(table)
    return all(good for _, _, good in evidence)


def what_next() -> None:
    """Say what to try."""
    home = f"AUTOCODE_HOME={FOLDER}/home-killed"
    console.print(
        "\n[bold]Try next[/]\n"
        f"  {home} .venv/bin/autocode-jobs jobs list\n"
        f"  {home} .venv/bin/autocode-jobs verify\n"
        f"  .venv/bin/autocode-jobs export {FOLDER}/sessions --preview  what would be redacted, and where\n"
        "  .venv/bin/autocode-jobs export                         your own sessions\n"
    )


if __name__ == "__main__":
    sys.exit(main())
