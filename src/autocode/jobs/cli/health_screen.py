"""How the parts of the service are: a table that is redrawn, plain lines, or lines of JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from autocode.jobs.cli.screen import Screen, local_time, visible
from autocode.jobs.clock import rfc3339
from autocode.jobs.ledger.listing import Counts
from autocode.jobs.service.health import Health, State

__all__ = ["HealthScreen", "describe"]

_STYLES: Final = {
    State.READY: "green",
    State.RESTARTING: "yellow",
    State.FAILING: "red",
}


class HealthScreen:
    """Shows what the supervisor sees.

    Args:
        screen: where to.
        home: the data folder, to be named.
        logs: the folder with the logs.
        counts: gives how many jobs are in which state, once that is known.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        screen: Screen,
        home: Path,
        logs: Path,
        *,
        counts: Callable[[], Counts | None],
        clock: Callable[[], float],
    ) -> None:
        self._screen = screen
        self._home = home
        self._logs = logs
        self._counts = counts
        self._clock = clock
        self._began = clock()
        self._ready_after: float | None = None
        self._live: Live | None = None
        if screen.live and not screen.json_mode:
            self._live = Live(console=screen.err, auto_refresh=False, transient=False)

    @property
    def is_live(self) -> bool:
        """Whether somebody looks at a terminal, and nothing that is shown ends in a file."""
        return self._live is not None

    def start(self) -> None:
        """Begin to show."""
        if self._live is not None:
            self._live.start()
        elif not self._screen.json_mode:
            self._screen.say(f"Starting the service of {self._home}; logs are in {self._logs}")

    def stop(self) -> None:
        """Leave what was shown last on the screen."""
        if self._live is not None:
            self._live.stop()

    def told(self, health: Health) -> None:
        """Take note of a change of one part."""
        if self._screen.json_mode:
            self._screen.emit({"event": "health", **health.to_json()})
        elif self._live is None:
            self._screen.say(f"{health.name} {describe(health)}")

    def looked(self, healths: Sequence[Health]) -> None:
        """Redraw the table; say once that everything is ready."""
        if self._ready_after is None and all(health.state is State.READY for health in healths):
            self._ready_after = self._clock() - self._began
            self._say_ready(healths, self._ready_after)
        if self._live is not None:
            self._live.update(self._drawn(healths), refresh=True)

    def line(self, text: str) -> None:
        """Print a line that stays, to stderr."""
        self._screen.err.print(Text(visible(text)))

    def login(self, url: str) -> None:
        """Print the link that opens a browser session; to the terminal and nowhere else."""
        self._screen.err.print(
            Text("Log in: ", style="bold").append(Text(url, style="default")).append("  (works once)", "dim")
        )

    def _say_ready(self, healths: Sequence[Health], seconds: float) -> None:
        if self._screen.json_mode:
            self._screen.emit(
                {
                    "event": "ready",
                    "seconds": round(seconds, 2),
                    "urls": {health.name: health.url for health in healths if health.url},
                    "logs": str(self._logs),
                }
            )
        elif self._live is None:
            self._screen.say(f"Ready after {seconds:.1f} s. Stop it with Ctrl-C or SIGTERM.")

    def _drawn(self, healths: Sequence[Health]) -> Group:
        table = Table(box=None, pad_edge=False, show_header=False)
        for health in healths:
            table.add_row(
                Text(health.name, style="bold"),
                Text(visible(describe(health)), style=_STYLES.get(health.state, "dim"), overflow="fold"),
            )
        ready = "" if self._ready_after is None else f", ready after {self._ready_after:.1f} s"
        rows: list[Text | Table] = [
            Text(f"autocode-jobs up, {visible(str(self._home))}{ready}", style="dim"),
            table,
            Text(f"jobs  {_counted(self._counts())}", style="default"),
            Text(f"logs  {visible(str(self._logs))}", style="dim"),
        ]
        return Group(*rows)


def describe(health: Health) -> str:
    """Return in a line how a part is."""
    since = local_time(rfc3339(health.since))[11:]
    if health.state is State.STOPPED and health.pid is not None:
        return f"stays (process {health.pid}): another command needs it, and it ends after that one"
    words = {
        State.WAITING: "waits for the others",
        State.READY: f"ready in {health.ready_seconds or 0:.1f} s",
        State.RESTARTING: f"restarting since {since}",
        State.FAILING: f"failing since {since}",
    }.get(health.state, str(health.state))
    told = [words]
    if health.url and health.state is State.READY:
        told.append(f"at {health.url}")
    if health.restarts:
        told.append(f"restarts: {health.restarts}")
    if health.detail:
        told.append(" / ".join(health.detail))
        if health.log is not None and health.state is State.FAILING:
            told.append(f"log: {health.log}")
        if health.hint:
            told.append(f"next: {health.hint}")
    return ", ".join(told)


def _counted(counts: Counts | None) -> str:
    if counts is None:
        return "not known yet"
    shown = ", ".join(f"{number:,} {status}" for status, number in counts.by_status.items() if number)
    return f"{shown or 'none yet'} (as of {local_time(rfc3339(counts.as_of))[11:]})"
