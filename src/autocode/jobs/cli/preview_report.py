"""What ``export --preview`` tells: for each file what would be exported, replaced and lost, and where."""

from __future__ import annotations

from typing import Final

from autocode.jobs.cli.export_report import counts_text
from autocode.jobs.cli.progress import counting
from autocode.jobs.cli.screen import Screen, bytes_text, plural
from autocode.jobs.operations.export.preview import Preview, PreviewedFile

__all__ = ["show_preview"]

_EXPORTED: Final = {
    "normal-form": "",
    "raw": "raw bytes only",
    "both": "normal form and raw bytes",
    "no": "listed by digest and size only",
}


def show_preview(screen: Screen, preview: Preview) -> None:
    """List what an export would redact, lose and leave out, by place, while the files are read."""
    with counting(screen, "reading", "files") as seen:
        for number, file in enumerate(preview, start=1):
            seen(number)
            _show_file(screen, file)
    for left in preview.left_out:
        screen.say(f"{left.name}: left out, {left.reason}")
    totals = preview.totals
    told = f"{plural(totals['sessions'], 'session')}, {plural(totals['records'], 'record')}"
    screen.say()
    screen.say(f"An export would hold {told}, from {bytes_text(totals['bytes'])} of files.", style="bold")
    screen.row("redacted", plural(totals["redacted"], "secret"))
    screen.row("damaged", plural(totals["damaged"], "span"))
    screen.row("not read", plural(totals["unread"], "file"))
    if preview.reasons:
        screen.row("left out", counts_text(preview.reasons), wrap=True)
    if preview.skipped_folders:
        screen.row("skipped", counts_text(preview.skipped_folders), wrap=True)
    if totals["problems"]:
        screen.row("problems", f"{plural(totals['problems'], 'file')}: the export would fail", style="red")
    screen.note("Nothing was written.")


def _show_file(screen: Screen, file: PreviewedFile) -> None:
    words = [file.kind, bytes_text(file.size), _EXPORTED[file.exported] if file.problem is None else ""]
    screen.say(f"{' = '.join(file.names)}: {', '.join(word for word in words if word)}")
    if file.problem is not None:
        screen.row("problem", file.problem["detail"], style="red")
        screen.row("next", file.problem["hint"])
    report = file.report or {}
    if report.get("lost"):
        screen.row("loses", counts_text(report["lost"]), wrap=True)
    for span in report.get("damaged", ()):
        screen.row("damaged", f"{bytes_text(span['length'])} at byte {span['offset']:,}: {span['reason']}")
    _more(screen, "damaged", report.get("damaged_total", 0) - len(report.get("damaged", ())))
    redaction = file.redaction or {}
    for place in redaction.get("places", ()):
        screen.row(
            "redacts",
            f"[REDACTED:{place['kind']}:{place['n']}] in record {place['record']} at {place['pointer']}",
        )
    _more(screen, "redacts", redaction.get("places_left_out", 0))


def _more(screen: Screen, label: str, count: int) -> None:
    if count > 0:
        screen.row(label, f"{count:,} more")
