"""``autocode-jobs notify``: who is told that a job ended, and what came of it.

Each body imports its work when it is called, so that ``--help`` waits for no database and no engine.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

__all__ = ["register"]

Json = Annotated[bool, Parameter(negative="", show_default=False, help="Print JSON, one object a line.")]
SubscriptionId = Annotated[str, Parameter(name="ID", help="The id, as `notify list` shows it.")]

_STATUSES: Final = """\
Exit status: 0 done, 1 it failed, 2 usage (nothing was changed),
130 interrupted."""


def register(app: App) -> None:
    """Add the commands to *app*."""
    group = App(
        name="notify",
        help="Tell somebody, by webhook or by e-mail, when a job ends.",
        help_epilogue=f"""\
Examples:
  autocode-jobs notify add --webhook https://hooks.example.com/jobs
  autocode-jobs notify deliveries --dead

{_STATUSES}""",
    )
    app.command(group)
    group.command(add, help_epilogue=_ADD_EXAMPLES)
    group.command(list_, name="list", help_epilogue=_LIST_EXAMPLES)
    group.command(remove, help_epilogue=_REMOVE_EXAMPLES)
    group.command(enable, help_epilogue=_ENABLE_EXAMPLES)
    group.command(try_out, name="test", help_epilogue=_TEST_EXAMPLES)
    group.command(deliveries, help_epilogue=_DELIVERIES_EXAMPLES)
    group.command(replay, help_epilogue=_REPLAY_EXAMPLES)


_ADD_EXAMPLES: Final = f"""\
Examples:
  autocode-jobs notify add --webhook https://hooks.example.com/jobs
  autocode-jobs notify add --email ada@example.org --kind export --on dead

What signs a webhook is printed once: keep it with the receiver.

{_STATUSES}"""


def add(
    *,
    webhook: Annotated[str | None, Parameter(help="The URL that gets a signed POST request.")] = None,
    email: Annotated[str | None, Parameter(help="The address that gets a message.")] = None,
    kind: Annotated[str | None, Parameter(help="Only of jobs of this kind.")] = None,
    session: Annotated[str | None, Parameter(help="Only of jobs of this session.")] = None,
    on: Annotated[
        str,
        Parameter(help="Of which ends: complete, dead (but for what a person called off), cancelled."),
    ] = "complete,dead",
    json: Json = False,
) -> int:
    """Tell somebody of ends from now on."""
    from autocode.jobs.cli import notify as work  # noqa: PLC0415 - see the module's docstring

    return work.add(webhook=webhook, email=email, kind=kind, session=session, on=on, json=json)


_LIST_EXAMPLES: Final = f"""\
Examples:
  autocode-jobs notify list

{_STATUSES}"""


def list_(*, json: Json = False) -> int:
    """Show who is told."""
    from autocode.jobs.cli import notify as work  # noqa: PLC0415 - see the module's docstring

    return work.show(json=json)


_REMOVE_EXAMPLES: Final = f"""\
Examples:
  autocode-jobs notify remove sub_3f2a1c00000000000000000000000000

{_STATUSES}"""


def remove(subscription_id: SubscriptionId, /) -> int:
    """Tell somebody nothing any more; what wasn't sent yet never is."""
    from autocode.jobs.cli import notify as work  # noqa: PLC0415 - see the module's docstring

    return work.remove(subscription_id)


_ENABLE_EXAMPLES: Final = f"""\
Examples:
  autocode-jobs notify enable sub_3f2a1c00000000000000000000000000

{_STATUSES}"""


def enable(subscription_id: SubscriptionId, /) -> int:
    """Tell a receiver again that had answered that it is gone."""
    from autocode.jobs.cli import notify as work  # noqa: PLC0415 - see the module's docstring

    return work.enable(subscription_id)


_TEST_EXAMPLES: Final = """\
Examples:
  autocode-jobs notify test sub_3f2a1c00000000000000000000000000

Exit status: 0 the receiver got it, 1 it didn't, or no service runs that
could send it, 2 usage, 130 interrupted."""


def try_out(subscription_id: SubscriptionId, /, *, json: Json = False) -> int:
    """Send a test the way that everything goes, and say what came of it."""
    from autocode.jobs.cli import notify as work  # noqa: PLC0415 - see the module's docstring

    return work.try_out(subscription_id, json=json)


_DELIVERIES_EXAMPLES: Final = f"""\
Examples:
  autocode-jobs notify deliveries
  autocode-jobs notify deliveries --dead --json
  autocode-jobs notify deliveries --job nightly-7

{_STATUSES}"""


def deliveries(
    *,
    dead: Annotated[
        bool, Parameter(negative="", show_default=False, help="Only those that were given up.")
    ] = False,
    state: Annotated[
        Literal["planned", "sending", "done", "dead"] | None, Parameter(help="Only those in this state.")
    ] = None,
    job: Annotated[str | None, Parameter(help="Only those about this job.")] = None,
    limit: Annotated[int, Parameter(help="How many at most.", validator=Number(gte=1, lte=10_000))] = 50,
    json: Json = False,
) -> int:
    """Show what was sent, what waits and what was given up, newest first."""
    from autocode.jobs.cli import notify as work  # noqa: PLC0415 - see the module's docstring

    return work.deliveries(state="dead" if dead else state, job=job, limit=limit, json=json)


_REPLAY_EXAMPLES: Final = """\
Examples:
  autocode-jobs notify replay msg_3f2a1c00000000000000000000000000
  autocode-jobs notify replay --all-dead --reason "the receiver is back"

A delivery keeps its id, so a receiver that has it already can tell.

Exit status: 0 planned, 1 refused, 2 usage (nothing was changed),
130 interrupted."""


def replay(
    ids: Annotated[
        list[str] | None, Parameter(name="ID", help="The deliveries' ids, as `notify deliveries` shows them.")
    ] = None,
    /,
    *,
    all_dead: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Send all that were given up, instead of some."),
    ] = False,
    reason: Annotated[str, Parameter(name=["--reason", "-m"], help="Why; kept in the audit.")] = "",
    json: Json = False,
) -> int:
    """Send deliveries again that are over."""
    from autocode.jobs.cli import notify as work  # noqa: PLC0415 - see the module's docstring

    return work.replay(ids or [], all_dead=all_dead, reason=reason, json=json)
