"""docs/settings.md says of every setting what the program says."""

from __future__ import annotations

from pathlib import Path

from autocode.jobs.configuration import OTHER_VARIABLES, settings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "settings.md").read_text("utf-8")


def test_the_page_has_the_table_that_the_program_would_print() -> None:
    """Name, variables, flag, default, allowed values and meaning of each setting, in order, word for word."""
    rows = []
    for setting in settings():
        cells = (
            f"`{setting.name}`",
            ", ".join(f"`{variable}`" for variable in setting.variables),
            f"`{setting.flag}`" if setting.flag else "-",
            "-" if setting.default in {None, ""} else f"`{str(setting.default).lower()}`",
            setting.allowed,
            setting.description,
        )
        rows.append(f"| {' | '.join(cells)} |")
    table = "\n".join(rows)

    assert table in PAGE, f"the page should hold:\n{table}"


def test_the_page_names_what_is_read_from_the_environment_alone() -> None:
    """Each further variable stands on the page with its meaning."""
    table = "\n".join(f"| `{name}` | {description} |" for name, description in OTHER_VARIABLES.items())

    assert table in PAGE, f"the page should hold:\n{table}"
