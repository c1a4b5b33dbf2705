"""What can be said on the command line: every command with its options, its help and its examples.

Each body imports its work when it is called, so that ``--help`` waits for no database and no engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from autocode.jobs._version import __version__
from autocode.jobs.cli import (
    access_commands,
    backup_commands,
    crash_commands,
    job_commands,
    notify_commands,
    service_commands,
)

__all__ = ["app"]

_STATUSES: Final = """\
Exit status: 0 done, 1 it failed, 2 usage (nothing was changed),\n130 interrupted."""

app: Final = App(
    name="autocode-jobs",
    help="Durable jobs over the sessions that coding agents leave on disk.",
    version=__version__,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
    help_epilogue=f"""\
Examples:
  autocode-jobs export                   what the agents left in their folders
  autocode-jobs export PATH --preview    what would be redacted and lost
  autocode-jobs jobs list
  autocode-jobs verify
  autocode-jobs up                       the whole service, until Ctrl-C

Data is kept in AUTOCODE_HOME, by default in the platform's data folder.
NO_COLOR is respected.

{_STATUSES}""",
)
_jobs = App(
    name="jobs",
    help="Show jobs: what was asked for, and how it went.",
    help_epilogue=f"""\
Examples:
  autocode-jobs jobs list --limit 10
  autocode-jobs jobs show export-20260105-101500-3f2a1c
  autocode-jobs jobs explain export-20260105-101500-3f2a1c
  autocode-jobs jobs retry --dead-letters --reason "disk is free again"

{_STATUSES}""",
)
_artifacts = App(
    name="artifacts",
    help="Get finished artifacts out of the store.",
    help_epilogue=f"""\
Examples:
  autocode-jobs artifacts get sha256:1f0c2ab3 -o /tmp

{_STATUSES}""",
)
app.command(_jobs)
app.command(_artifacts)
service_commands.register(app)
access_commands.register(app)
backup_commands.register(app)
crash_commands.register(app)
notify_commands.register(app)
job_commands.register(_jobs)

Output = Annotated[
    Path, Parameter(name=["--output", "-o"], help="Folder that gets the bundle; made if it is missing.")
]
Zip = Annotated[bool, Parameter(name="--zip", negative="", show_default=False, help="The same as --as zip.")]
# spelt out once more, so that --help waits for no view; a test compares them with the registry
ViewName = Literal["folder", "zip", "html", "markdown", "sqlite"]
Views = Annotated[
    list[ViewName] | None,
    Parameter(
        name="--as",
        negative="",
        consume_multiple=False,
        help="What to write: folder (the bundle, the default), zip (the same in one file), html (pages to "
        "read offline), markdown (a file a session), sqlite (tables for SQL and datasette). "
        "Give it several times for several.",
    ),
]
Digests = Annotated[
    list[str] | None, Parameter(name="DIGEST", help="Artifacts to check; the whole store if none.")
]


@app.command(
    help_epilogue="""\
Examples:
  autocode-jobs export
  autocode-jobs export ~/.claude/projects/-home-ada-parser -o /backup
  autocode-jobs export session.jsonl --preview
  autocode-jobs export session.jsonl --rules acme.toml --allow-list
  autocode-jobs export --yes --json | tail -n 1
  autocode-jobs export --no-wait          with `autocode-jobs up` running

Exit status: 0 complete, 1 dead or the bundle could not be written,
2 usage (nothing was changed), 130 interrupted."""
)
def export(
    paths: Annotated[
        list[Path] | None,
        Parameter(name="PATH", help="Folders or files with sessions; the agents' usual folders if none."),
    ] = None,
    /,
    *,
    redact: Annotated[
        bool, Parameter(help="Replace secrets by markers. --no-redact keeps them, and adds the raw files.")
    ] = True,
    root: Annotated[
        list[str] | None,
        Parameter(
            name="--root",
            negative="",
            consume_multiple=False,
            help="With AUTOCODE_URL: a folder that the service there knows by this name.",
        ),
    ] = None,
    rules: Annotated[
        Path | None,
        Parameter(
            name="--rules",
            help="Rules and an allow list of your own (TOML); else redaction.toml in the data folder.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        Parameter(
            name=["--output", "-o"],
            help="Folder that gets the bundle; made if it is missing. This one if none.",
        ),
    ] = None,
    views: Views = None,
    zipped: Zip = False,
    preview: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="List redactions and losses by place, and write nothing."
        ),
    ] = False,
    allow_list: Annotated[
        bool,
        Parameter(
            name="--allow-list",
            negative="",
            show_default=False,
            help="Preview what is found as entries to paste into the allow list.",
        ),
    ] = False,
    rehash: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Read every file, also those that nobody has touched since an earlier export.",
        ),
    ] = False,
    yes: Annotated[
        bool,
        Parameter(
            name=["--yes", "-y"],
            negative="",
            show_default=False,
            help="Export the usual folders without asking.",
        ),
    ] = False,
    wait: Annotated[
        bool,
        Parameter(
            name="--wait",
            show_default=False,
            help="--no-wait hands the job to the service that runs here, prints it, and returns at once, "
            "without a bundle: `artifacts get` writes it later.",
        ),
    ] = True,
    json: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Print the job resource as the last line; all else to stderr.",
        ),
    ] = False,
) -> int:
    """Export agent sessions into a bundle that proves what is in it.

    The same command after Ctrl-C, a crash or a power cut goes on where it stopped.
    """
    from autocode.jobs.cli import export as work  # noqa: PLC0415 - see the module's docstring

    options = work.Options(
        paths=tuple(paths or ()),
        roots=tuple(root or ()),
        redact=redact,
        rules=rules,
        allow_list=allow_list,
        rehash=rehash,
        output=output,
        zipped=zipped,
        views=tuple(views or ()),
        yes=yes,
        wait=wait,
        json=json,
    )
    return work.preview(options) if preview or allow_list else work.export(options)


@app.command(
    help_epilogue="""\
Examples:
  autocode-jobs verify
  autocode-jobs verify sha256:1f0c2ab3

Exit status: 0 all is sound, 1 something is damaged or missing, 2 usage,
130 interrupted."""
)
def verify(
    digests: Digests = None,
    /,
    *,
    json: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print the findings as one line of JSON.")
    ] = False,
) -> int:
    """Check stored objects against their digests, and artifacts for missing objects.

    Damaged objects are moved to quarantine; the next export that needs them makes them anew. A check of the
    whole store that was interrupted goes on where it stopped.
    """
    from autocode.jobs.cli import verify as work  # noqa: PLC0415 - see the module's docstring

    return work.verify_artifacts(digests, json=json) if digests else work.verify_everything(json=json)


@_artifacts.command(
    help_epilogue="""\
Examples:
  autocode-jobs artifacts get sha256:1f0c2ab3 -o /tmp
  autocode-jobs artifacts get 1f0c2ab3d4e5 --as zip

Exit status: 0 written, 1 it failed, 2 usage (no such artifact), 130 interrupted."""
)
def get(
    digest: Annotated[
        str, Parameter(name="DIGEST", help="The artifact's sha256:…, or 8 or more of its first digits.")
    ],
    /,
    *,
    output: Output = Path(),
    views: Views = None,
    zipped: Zip = False,
) -> int:
    """Write an exported bundle to a folder; every byte is checked on the way."""
    from autocode.jobs.cli import artifacts as work  # noqa: PLC0415 - see the module's docstring

    return work.get(digest, output, views, zipped=zipped)


@_jobs.command(
    name="list",
    help_epilogue="""\
Examples:
  autocode-jobs jobs list
  autocode-jobs jobs list --status running --status retrying
  autocode-jobs jobs list --json --limit 1000

Exit status: 0 listed, 2 usage.""",
)
def list_jobs(
    *,
    limit: Annotated[int, Parameter(help="At most so many.", validator=Number(gte=1, lte=1_000_000))] = 50,
    status: Annotated[
        list[Literal["queued", "running", "retrying", "complete", "dead"]] | None,
        Parameter(
            name="--status",
            negative="",
            consume_multiple=False,
            help="Only jobs in this state; give it several times for several.",
        ),
    ] = None,
    kind: Annotated[str | None, Parameter(help="Only jobs of this kind.")] = None,
    session: Annotated[str | None, Parameter(help="Only jobs of this session, by its id.")] = None,
    search: Annotated[str | None, Parameter(help="Only jobs with this text in an id or their kind.")] = None,
    json: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print job resources as JSON, one a line.")
    ] = False,
) -> int:
    """List jobs, the newest first."""
    from autocode.jobs.cli import jobs as work  # noqa: PLC0415 - see the module's docstring

    wanted = work.Wanted(tuple(status or ()), kind, session, search)
    return work.list_jobs(limit, wanted, json=json)


@_jobs.command(
    name="show",
    help_epilogue="""\
Examples:
  autocode-jobs jobs show export-20260105-101500-3f2a1c
  autocode-jobs jobs show export-20260105-101500-3f2a1c --json

Exit status: 0 shown, 2 no such job.""",
)
def show_job(
    job_id: Annotated[str, Parameter(name="ID", help="The job's id, as `jobs list` shows it.")],
    /,
    *,
    json: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print the job resource as one line of JSON.")
    ] = False,
) -> int:
    """Show one job: its status, times, checkpoints, result and last error."""
    from autocode.jobs.cli import jobs as work  # noqa: PLC0415 - see the module's docstring

    return work.show_job(job_id, json=json)


@app.command(
    help_epilogue="""\
Examples:
  autocode-jobs doctor
  autocode-jobs doctor --json

Exit status: 0 nothing is wrong, 1 something is."""
)
def doctor(
    *,
    json: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print the findings as one line of JSON.")
    ] = False,
) -> int:
    """Check the installation, the data folder and the places where agents keep sessions."""
    from autocode.jobs.cli import doctor as work  # noqa: PLC0415 - see the module's docstring

    return work.doctor(json=json)
