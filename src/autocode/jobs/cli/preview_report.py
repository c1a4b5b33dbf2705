"""What ``export --preview`` tells: for each file what would be exported, replaced and lost, and where."""

from __future__ import annotations

from typing import Final

from autocode.jobs.cli.export_report import counts_text, show_losses
from autocode.jobs.cli.progress import counting
from autocode.jobs.cli.screen import Screen, bytes_text, plural
from autocode.jobs.operations.export.places import ShownPlace
from autocode.jobs.operations.export.preview import Preview, PreviewedFile

__all__ = ["show_allow_list", "show_preview"]

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
    files = f"{bytes_text(totals['bytes'])} in {plural(totals['files'], 'file')}"
    screen.say(f"An export would hold {told}, from {files}.", style="bold")
    screen.row("redacted", plural(totals["redacted"], "secret"))
    for group, count in sorted(preview.groups.items(), key=lambda each: (-each[1], each[0])):
        tool = f" of {group.tool}" if group.tool else ""
        screen.row("", f"{count:,} {group.rule} in {group.type}{tool} at {group.pointer}")
    screen.row("damaged", plural(totals["damaged"], "span"))
    screen.row("not read", plural(totals["unread"], "file"))
    if preview.reasons:
        screen.row("left out", counts_text(preview.reasons), wrap=True)
    if preview.skipped_folders:
        screen.row("skipped", counts_text(preview.skipped_folders), wrap=True)
    if totals["problems"]:
        screen.row("problems", f"{plural(totals['problems'], 'file')}: the export would fail", style="red")
    screen.note("Nothing was written.")
    if totals["redacted"]:
        screen.note("Is one of them no secret? --allow-list prints entries for the rules file.")


def show_allow_list(screen: Screen, preview: Preview) -> None:
    """Print an entry of the allow list for each different find, in TOML; comments say where it was.

    A comment never has the text that was found; its digest lets short secrets be guessed.
    """
    known: set[tuple[str, str | None]] = set()
    screen.say(
        "# What was found, as entries of a rules file: keep those that are no secrets, drop the others."
    )
    screen.say("# From its digest a short password can be guessed; don't hand this list on.")
    with counting(screen, "reading", "files") as seen:
        for number, file in enumerate(preview, start=1):
            seen(number)
            for place in file.places:
                if (place.rule, place.sha256) not in known:
                    known.add((place.rule, place.sha256))
                    for line in _entry(file.names[0], place):
                        screen.say(line)


def _entry(name: str, place: ShownPlace) -> list[str]:
    where = f"{name}, record {place.record} at {place.pointer}, {place.length} characters"
    excerpt = [] if place.excerpt is None else [f"# {place.excerpt}"]
    return ["", f"# {where}", *excerpt, "[[allow]]", f'rule = "{place.rule}"', f'sha256 = "{place.sha256}"']


def _show_file(screen: Screen, file: PreviewedFile) -> None:
    words = [file.kind, bytes_text(file.size), _EXPORTED[file.exported] if file.problem is None else ""]
    screen.say(f"{' = '.join(file.names)}: {', '.join(word for word in words if word)}")
    if file.problem is not None:
        screen.row("problem", file.problem["detail"], style="red")
        screen.row("next", file.problem["hint"])
    report = file.report or {}
    if report.get("lost"):
        show_losses(screen, "loses", report["lost"])
    for span in report.get("damaged", ()):
        screen.row("damaged", f"{bytes_text(span['length'])} at byte {span['offset']:,}: {span['reason']}")
    _more(screen, "damaged", report.get("damaged_total", 0) - len(report.get("damaged", ())))
    for place in file.places:
        tool = f" of {place.tool}" if place.tool else ""
        screen.row(
            "redacts", f"{place.rule} in record {place.record} ({place.type}{tool}) at {place.pointer}"
        )
        if place.excerpt is not None:
            screen.row("", place.excerpt)
    _more(screen, "redacts", (file.redaction or {}).get("places_left_out", 0))


def _more(screen: Screen, label: str, count: int) -> None:
    if count > 0:
        screen.row(label, f"{count:,} more")
