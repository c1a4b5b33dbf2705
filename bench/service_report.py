"""From the measurements of a service to tables that a person reads."""

from __future__ import annotations

from statistics import median, quantiles
from typing import Any, Final

from bench.processes import PARTS
from bench.report import conditions_of, table

__all__ = ["as_markdown"]

_MB: Final = 1_000_000
_MS: Final = 1000
_HUNDREDTHS: Final = 100
_NONE: Final = "-"


def as_markdown(document: dict[str, Any]) -> str:
    """Return the results as tables in Markdown."""
    return "\n".join(
        (_conditions(document), _jobs(document), _deaths(document), _starts(document), _parts(document))
    )


def _conditions(document: dict[str, Any]) -> str:
    loads = ", ".join(f"{load:.1f} before {what}" for what, load in document["loads"].items())
    return (
        f"{conditions_of(document['about'])} Medians (least to most); {document['workers']} jobs at once. "
        f"Load {loads}. {document['seconds']} s in all.\n"
    )


def _jobs(document: dict[str, Any]) -> str:
    ones, bursts, peer = document["ones"], document["bursts"], document["peer"]
    idle = [each["enqueue"] for each in ones]
    busy = [seconds for each in bursts for seconds in each["enqueue"]]
    rows = [
        ("enqueue: request → 202, nothing else to do", *_milliseconds(idle), "p50 15 ms, p99 60 ms", _NONE),
        (f"the same, {document['sizes']['burst']} in a row", *_milliseconds(busy), _NONE, _NONE),
    ]
    slow = _NONE if peer is None else f"{_seconds(peer['latency'])}, n = {len(peer['latency'])}"
    rows += [
        (
            f"submit → complete, {what}",
            *_milliseconds([each[name] for each in ones]),
            "p50 400 ms",
            slow,
        )
        for what, name in (("as the ledger has it", "ledger"), ("as its client sees it", "seen"))
    ]
    rates = [each["per_second"] for each in bursts]
    beside = _NONE
    if peer is not None:
        ratio = median(rates) / peer["per_second"]
        beside = f"{peer['per_second']:.2f} a second (n = {peer['jobs']}); ours is {ratio:.0f} times that"
    rows.append(
        (
            f"jobs a second, {document['sizes']['burst']} at once",
            _spread(rates, ""),
            _NONE,
            str(len(rates)),
            "20 times the process worker",
            beside,
        )
    )
    return table(("what", "p50", "p99", "n", "budget", "Prefect's process worker"), rows)


def _deaths(document: dict[str, Any]) -> str:
    rows = [
        (
            f"SIGKILL of {what}",
            _seconds([each["ended"] for each in document[name]]),
            _seconds([each["backoff"] for each in document[name]]),
            _seconds([each["running"] for each in document[name]]),
            str(len(document[name])),
            budget,
        )
        for what, name, budget in (
            ("an attempt's process", "kills_of_child", "2 s + backoff"),
            ("the worker and all its processes", "kills_of_tree", "lease (5 s) + 5 s + backoff"),
        )
    ]
    return table(("what", "attempt ended", "backoff", "next attempt's step runs", "n", "budget"), rows)


def _starts(document: dict[str, Any]) -> str:
    rows = []
    for what, name, budget in (("empty home", "cold", "20 s"), ("used home", "warm", "10 s")):
        starts = document[name]
        if not starts:
            continue
        rows.append(
            (
                f"`up`, {what}",
                _seconds([each["seconds"] for each in starts]),
                _seconds([sum(each["cpu"].values()) for each in starts]),
                *(
                    _seconds([each["parts"][part] for each in starts], spread=False)
                    for part in ("postgres", "prefect", "api", "reconcile", "worker")
                ),
                str(len(starts)),
                budget,
            )
        )
    head = ("what", "ready", "processor", "postgres", "prefect", "api", "reconcile", "worker", "n", "budget")
    return table(head, rows)


def _parts(document: dict[str, Any]) -> str:
    idle, bursts = document["idle"], document["bursts"]
    memory = {part: f"{size / _MB:.0f} MB" for part, size in idle["memory"].items()}
    used = {part: f"{share * _HUNDREDTHS:.1f} %" for part, share in idle["cpu"].items()}
    job = {part: f"{median(each['cpu'][part] for each in bursts) * _MS:.0f} ms" for part in PARTS}
    whole = (
        f"{sum(idle['memory'].values()) / _MB:.0f} MB",
        f"{sum(idle['cpu'].values()) * _HUNDREDTHS:.1f} %",
        f"{median(sum(each['cpu'].values()) for each in bursts) * _MS:.0f} ms",
    )
    starts = document["warm"] or document["cold"]
    started = {part: f"{median(each['cpu'][part] for each in starts):.1f} s" for part in PARTS}
    whole_start = f"{median(sum(each['cpu'].values()) for each in starts):.1f} s"
    rows = [
        ("processor until ready", *(started[part] for part in PARTS), whole_start),
        ("idle: memory (PSS)", *(memory[part] for part in PARTS), whole[0]),
        (f"idle: processor, over {idle['seconds']:.0f} s", *(used[part] for part in PARTS), whole[1]),
        ("processor a job, many at once", *(job[part] for part in PARTS), whole[2]),
    ]
    return table(("what", *PARTS, "all"), rows)


def _milliseconds(seconds: list[float]) -> tuple[str, str, str]:
    values = [each * _MS for each in seconds]
    last = quantiles(values, n=_HUNDREDTHS, method="inclusive")[-1] if len(values) > 1 else values[0]
    return (
        f"{median(values):.0f} ms ({min(values):.0f} to {max(values):.0f})",
        f"{last:.0f} ms",
        str(len(values)),
    )


def _seconds(values: list[float], *, spread: bool = True) -> str:
    if not values:
        return _NONE
    return _spread(values, " s") if spread else f"{median(values):.1f} s"


def _spread(values: list[float], unit: str) -> str:
    return f"{median(values):.2f}{unit} ({min(values):.2f} to {max(values):.2f})"
