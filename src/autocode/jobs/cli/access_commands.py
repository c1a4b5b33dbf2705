"""The commands about access: ``token`` for those who may call, ``audit`` for what they did.

Each body imports its work when it is called, so that ``--help`` waits for no database and no engine.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

__all__ = ["register"]

_TOKENS: Final = App(
    name="token",
    help="Make, list and revoke the tokens by which others call the service.",
    help_epilogue="""\
Examples:
  autocode-jobs token create ci --role operator --expires 30d
  autocode-jobs token list
  autocode-jobs token revoke 0123456789abcdef

Exit status: 0 done, 1 it failed, 2 usage (nothing was changed),
130 interrupted.""",
)
_AUDIT: Final = App(
    name="audit",
    help="Read and check the audit: who did what, when and why.",
    help_epilogue="""\
Examples:
  autocode-jobs audit list --target nightly-7
  autocode-jobs audit head
  autocode-jobs audit verify --expect "$HEAD"

Exit status: 0 done, 1 it failed, 2 usage, 3 the chain is broken,
4 the saved head isn't in it, 130 interrupted.""",
)

Json = Annotated[bool, Parameter(negative="", show_default=False, help="Print it as JSON, one a line.")]


def register(app: App) -> None:
    """Add the commands to *app*."""
    app.command(_TOKENS)
    app.command(_AUDIT)


@_TOKENS.command(
    name="create",
    help_epilogue="""\
Examples:
  autocode-jobs token create ci --role operator --expires 30d
  autocode-jobs token create guest --role viewer --session 7f3c2a

The token is printed once, and kept nowhere.

Exit status: 0 made, 2 usage (nothing was changed).""",
)
def create_token(
    name: Annotated[str, Parameter(name="NAME", help="Whom the audit names for what is done with it.")],
    /,
    *,
    role: Annotated[
        Literal["viewer", "operator", "admin"],
        Parameter(help="viewer: read; operator: also submit, retry and cancel; admin: everything."),
    ],
    session: Annotated[
        list[str] | None,
        Parameter(
            name="--session",
            negative="",
            consume_multiple=False,
            help="Only for jobs of this session; give it several times for several.",
        ),
    ] = None,
    expires: Annotated[
        str | None, Parameter(help="When it ends: 90m, 12h, 30d, 8w. Never if not given.")
    ] = None,
    json: Json = False,
) -> int:
    """Make a token, and print it."""
    from autocode.jobs.cli import token as work  # noqa: PLC0415 - see the module's docstring

    return work.create(name, role, session, expires, json=json)


@_TOKENS.command(
    name="list",
    help_epilogue="""\
Examples:
  autocode-jobs token list
  autocode-jobs token list --all --json

Exit status: 0 listed, 2 usage.""",
)
def list_tokens(
    *,
    every: Annotated[
        bool,
        Parameter(
            name="--all",
            negative="",
            show_default=False,
            help="Also those that expired or were revoked.",
        ),
    ] = False,
    json: Json = False,
) -> int:
    """List the tokens that work, without what lets anybody in."""
    from autocode.jobs.cli import token as work  # noqa: PLC0415 - see the module's docstring

    return work.list_tokens(every=every, json=json)


@_TOKENS.command(
    name="revoke",
    help_epilogue="""\
Examples:
  autocode-jobs token revoke 0123456789abcdef

Exit status: 0 revoked, now or before, 2 no such token.""",
)
def revoke_token(
    token_id: Annotated[str, Parameter(name="ID", help="The token's id, as `token list` shows it.")],
    /,
    *,
    reason: Annotated[str, Parameter(name=["--reason", "-m"], help="Why; kept in the audit.")] = "",
) -> int:
    """End a token at once."""
    from autocode.jobs.cli import token as work  # noqa: PLC0415 - see the module's docstring

    return work.revoke(token_id, reason)


@_AUDIT.command(
    name="list",
    help_epilogue="""\
Examples:
  autocode-jobs audit list
  autocode-jobs audit list --target nightly-7 --json
  autocode-jobs audit list --action token.create --limit 1000

Exit status: 0 listed, 2 usage.""",
)
def list_audit(
    *,
    target: Annotated[str | None, Parameter(help="Only about this, such as a job's id.")] = None,
    actor: Annotated[str | None, Parameter(help="Only by those with this text in their name.")] = None,
    action: Annotated[str | None, Parameter(help="Only this: enqueue, retry, cancel, token.create …")] = None,
    limit: Annotated[int, Parameter(help="At most so many.", validator=Number(gte=1, lte=1_000_000))] = 50,
    json: Json = False,
) -> int:
    """List who did what, the newest first."""
    from autocode.jobs.cli import audit as work  # noqa: PLC0415 - see the module's docstring

    return work.list_entries(target, actor, action, limit, json=json)


@_AUDIT.command(
    name="head",
    help_epilogue="""\
Examples:
  autocode-jobs audit head

Exit status: 0 printed, 2 usage.""",
)
def head() -> int:
    """Print number and digest of the newest entry, to be kept where nobody who writes the audit can write."""
    from autocode.jobs.cli import audit as work  # noqa: PLC0415 - see the module's docstring

    return work.head()


@_AUDIT.command(
    name="verify",
    help_epilogue="""\
Examples:
  autocode-jobs audit verify
  autocode-jobs audit verify --expect "$HEAD"

Exit status: 0 all is sound, 2 usage, 3 the chain is broken, 4 the saved head
isn't in it.""",
)
def verify(
    *,
    expect: Annotated[
        str | None, Parameter(help="A head that was saved before: it must still be in the chain.")
    ] = None,
    json: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print the finding as one line of JSON.")
    ] = False,
) -> int:
    """Check every entry against the one before it, and the chain against a saved head.

    With a head, every change to the entries up to it is found, also where the whole chain was made anew.
    """
    from autocode.jobs.cli import audit as work  # noqa: PLC0415 - see the module's docstring

    return work.verify(expect, json=json)
