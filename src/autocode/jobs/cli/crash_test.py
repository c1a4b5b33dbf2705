"""``autocode-jobs crash-test``: many cases on a service of its own, each told as soon as it is judged."""

from __future__ import annotations

import json as jsonlib
import secrets
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from autocode.jobs.cli.screen import Screen, plural, visible
from autocode.jobs.errors import DiskFull, UsageError
from autocode.jobs.testing.crashes.cases import Case
from autocode.jobs.testing.crashes.pairs import pairwise
from autocode.jobs.testing.crashes.report import Judged, Summary, repeat_command, verdict_json
from autocode.jobs.testing.crashes.report_forms import (
    as_markdown,
    as_table,
    as_text,
    check_page,
    conditions,
    into_page,
)
from autocode.jobs.testing.crashes.space import Course, committed, draw, is_legal

if TYPE_CHECKING:
    from autocode.jobs.testing.crashes.workloads import Workload

__all__ = ["Options", "crash_test"]

_USERS_LIMIT: Final = 24
"""How many cases a kind of one's own gets: each point, each fault with each victim, and more kills."""


_ROOM_BYTES: Final = 500_000_000
"""What a service writes within an hour of cases, PostgreSQL's files included."""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for on the command line."""

    spec: str | None = None
    cases: tuple[str, ...] = ()
    rounds: int | None = None
    seed: int | None = None
    payload: str | None = None
    listing: bool = False
    write: Path | None = None
    keep: bool = False
    json: bool = False

    @property
    def kind(self) -> tuple[str, ...]:
        """The words of the command line that name the kind."""
        named = () if self.spec is None else (self.spec,)
        return named if self.payload is None else (*named, "--payload", self.payload)


def crash_test(options: Options) -> int:
    """Run the cases, tell each, and then what all came to; return 1 if a job didn't come through.

    On Ctrl-C the service is taken down, and what was found so far is told.

    Raises:
        UsageError: the options contradict each other, or a case or the page to write makes no sense.
    """
    screen = Screen(json_mode=options.json)
    _check(options)
    workloads = _workloads(options)
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    cases = _chosen(options, workloads, seed)
    if options.listing:
        _list(screen, cases)
        _tell_seed(screen, options, seed)
        return 0
    _check_room()
    screen.note(f"Running {plural(len(cases), 'case')} on a service of their own.")
    _tell_seed(screen, options, seed)
    verdicts: list[Judged] = []
    try:
        _run(screen, options, workloads, cases, verdicts)
    except BaseException:
        # a Ctrl-C after an hour of rounds, too
        if verdicts:
            _tell_all(screen, options, Summary.of(verdicts), wanted=len(cases))
        raise
    summary = Summary.of(verdicts)
    _tell_all(screen, options, summary, wanted=len(cases))
    if options.write is not None:
        into_page(options.write, as_markdown(summary, conditions()))
    return 0 if summary.ok else 1


def _check(options: Options) -> None:
    if options.payload is not None and options.spec is None:
        raise UsageError("--payload is for a kind of your own; name it as MODULE:KIND.")
    if options.cases and options.rounds is not None:
        raise UsageError("--case names cases and --rounds draws some; one of the two.")
    if options.seed is not None and options.rounds is None:
        raise UsageError("--seed says which cases --rounds draws; give that too.")
    if options.write is not None:
        check_page(options.write)


def _tell_seed(screen: Screen, options: Options, seed: int) -> None:
    if options.rounds is not None:
        again = shlex.join([*options.kind, "--rounds", str(options.rounds), "--seed", str(seed)])
        screen.note(f"The same cases again: autocode-jobs crash-test {again}")


def _check_room() -> None:
    """Make sure that the temporary folder can hold a service.

    Raises:
        DiskFull: it can't.
    """
    folder = tempfile.gettempdir()
    if shutil.disk_usage(folder).free < _ROOM_BYTES:
        raise DiskFull(
            f"{folder} has less than {_ROOM_BYTES // 1_000_000} MB left, which a service of its own needs.",
            hint="Make room there, or set TMPDIR to a folder that has some.",
        )


def _workloads(options: Options) -> list[Workload]:
    # these bring in the kinds and what they stand on, which a wrong option doesn't wait for
    from autocode.jobs.testing.crashes.workloads import of_user, own  # noqa: PLC0415 - see above

    if options.spec is None:
        return own()
    payload = _payload(options.payload)
    _prepare_for_prefect()
    # a module beside which somebody stands is found, as by `python -m`
    sys.path.insert(0, str(Path.cwd()))
    return [of_user(options.spec, payload)]


def _prepare_for_prefect() -> None:
    """Keep Prefect quiet and at home: a team's module may import it."""
    from autocode.jobs.engine.environment import configure_client  # noqa: PLC0415 - as above
    from autocode.jobs.settings import Home  # noqa: PLC0415 - as above

    configure_client(Home.from_environment())


def _payload(text: str | None) -> dict[str, Any]:
    if text is None:
        raise UsageError(
            "A kind of your own needs a payload.",
            hint='Give --payload, as in --payload \'{"url": "{witness}"}\'; or --payload @FILE.',
        )
    try:
        payload = jsonlib.loads(Path(text[1:]).read_text("utf-8") if text.startswith("@") else text)
    except OSError as error:
        raise UsageError(f"The payload's file can't be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise UsageError(f"--payload is no JSON: {error}.") from error
    if not isinstance(payload, dict):
        raise UsageError("--payload is no JSON object.", hint='Write it as in \'{"url": "{witness}"}\'.')
    return payload


def _chosen(options: Options, courses: Sequence[Course], seed: int) -> list[Case]:
    if options.cases:
        cases = [Case.parse(text) for text in options.cases]
        for case in cases:
            _check_case(case, courses)
        return cases
    if options.rounds is not None:
        return draw(seed, options.rounds, courses)
    return committed() if options.spec is None else pairwise(courses, limit=_USERS_LIMIT)


def _check_case(case: Case, courses: Sequence[Course]) -> None:
    names = [course.name for course in courses]
    if case.kind not in names:
        raise UsageError(
            f"There is no kind {case.kind!r} to disturb; there is: {', '.join(names)}.",
            hint="Name the module of your own kind first, as MODULE:KIND.",
        )
    if not is_legal(case.point, (case.fault, case.victim)):
        raise UsageError(
            f"No child passes {case.point}, so the fault of {str(case)!r} can't strike there.",
            hint="autocode-jobs crash-test --list",
        )


def _list(screen: Screen, cases: Sequence[Case]) -> None:
    for case in cases:
        if screen.json_mode:
            screen.emit({"case": str(case)})
        else:
            screen.say(str(case))


def _run(
    screen: Screen,
    options: Options,
    workloads: Sequence[Workload],
    cases: Sequence[Case],
    verdicts: list[Judged],
) -> None:
    # brings in the whole service, which --list doesn't wait for
    from autocode.jobs.testing.crashes.runner import Matrix  # noqa: PLC0415 - see above

    with _bar(screen, len(cases)) as advance, Matrix(workloads, keep=options.keep) as matrix:
        try:
            for case in cases:
                advance(str(case), 0)
                verdict = matrix.run(case)
                verdicts.append(verdict)
                _tell(screen, verdict)
                advance("", 1)
        except KeyboardInterrupt:
            screen.note("Interrupted: taking the service down, which may need some seconds.")
            raise
        kept = matrix.homes if options.keep else ()
    for home in kept:
        screen.note(f"Kept: {home}")


def _tell(screen: Screen, verdict: Judged) -> None:
    if screen.json_mode:
        screen.emit({"event": "case", **verdict_json(verdict)})
    mark, style = ("ok  ", "green") if verdict.reached else ("miss", "yellow")
    if verdict.unjudged is not None:
        mark, style = "????", "bold yellow"
    elif verdict.violations:
        mark, style = "FAIL", "bold red"
    screen.say(Text.assemble((f"{mark}  ", style), visible(f"{verdict.case}  "), (_how(verdict), "dim")))
    for violation in verdict.violations:
        screen.say(f"      {violation}")
    if verdict.unjudged is not None:
        screen.say(f"      not judged: {verdict.unjudged}")


def _how(verdict: Judged) -> str:
    times = verdict.times
    told = {"noticed": times.notice, "next attempt": times.next_attempt, "complete": times.complete}
    # what was over in the very moment isn't said to have been over before it
    known = {what: round(seconds, 1) + 0.0 for what, seconds in told.items() if seconds is not None}
    after = [f"{what} after {seconds:.1f} s" for what, seconds in known.items()]
    missed = [] if verdict.reached else ["it never came to that point"]
    return ", ".join([*missed, *after, f"{verdict.seconds:.0f} s in all"])


def _tell_all(screen: Screen, options: Options, summary: Summary, *, wanted: int) -> None:
    screen.say()
    if screen.width is None:
        screen.say(Text(as_text(summary).rstrip("\n")))
    else:
        screen.out.print(as_table(summary))
    screen.say()
    for verdict in summary.failed:
        screen.say(f"again: {repeat_command(verdict.case, *options.kind)}")
    screen.say(_sentence(summary, wanted), style="green" if summary.ok else "red")
    if screen.json_mode:
        screen.emit({"event": "summary", "wanted": wanted, **summary.to_json()})


def _sentence(summary: Summary, wanted: int) -> str:
    total = summary.total
    if total.cases < wanted:
        begun = f"Stopped after {total.cases} of {plural(wanted, 'case')}"
    else:
        begun = f"{plural(total.cases, 'case')} in {summary.seconds:.0f} s"
    broken = sum(bool(verdict.violations) for verdict in summary.failed)
    found = [f"{plural(broken, 'case')} with violations"] if broken else []
    if total.not_judged:
        found.append(f"{plural(total.not_judged, 'case')} not judged")
    if found:
        return f"{begun}: {', '.join(found)}."
    if total.cases and not summary.ok:
        return f"{begun}: no job came to its crash point, so nothing is proven."
    missed = f" ({total.not_reached} never came to their crash point)" if total.not_reached else ""
    return f"{begun}: no violation{missed}."


@contextmanager
def _bar(screen: Screen, total: int) -> Iterator[Callable[[str, int], None]]:
    """Show how far it is; give the function that says what is run and how many are done."""
    bar = Progress(
        MofNCompleteColumn(),
        BarColumn(bar_width=28),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=screen.err,
        transient=True,
        disable=not screen.live,
        # what a file or a program reads must not go to the terminal
        redirect_stdout=screen.width is not None and not screen.json_mode,
    )
    line = bar.add_task("", total=total)
    with bar:
        yield lambda text, done: bar.update(line, description=visible(text), advance=done)
