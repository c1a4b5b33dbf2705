"""The registry of views, and the command line's choice of them."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from autocode.jobs.cli.commands import ViewName
from autocode.jobs.cli.screen import Screen
from autocode.jobs.cli.views import chosen_views, write_views
from autocode.jobs.errors import UsageError
from autocode.jobs.operations.views import VIEWS, view_named
from autocode.jobs.testing.samples import write_samples
from export_context import export


def test_the_command_line_offers_every_view() -> None:
    """``--as`` takes exactly the registry's names, in its order."""
    assert get_args(ViewName) == tuple(VIEWS)


def test_an_unknown_view_is_named_with_those_that_exist() -> None:
    """Who asks for a view that there isn't learns which there are."""
    with pytest.raises(UsageError) as caught:
        view_named("parchment")

    assert caught.value.detail == "There is no view 'parchment'."
    assert caught.value.hint == f"The views are: {', '.join(VIEWS)}."


@pytest.mark.parametrize(
    ("names", "zipped", "expected"),
    [
        (None, False, ["folder"]),
        ([], True, ["zip"]),
        (["zip"], False, ["zip"]),
        (["zip", "folder", "zip"], False, ["zip", "folder"]),
        (["folder"], True, ["folder", "zip"]),
    ],
)
def test_views_are_chosen_once_each(names: list[str] | None, expected: list[str], *, zipped: bool) -> None:
    """The folder is the default, ``--zip`` is ``--as zip``, and nothing is written twice."""
    assert [view.name for view in chosen_views(names, zipped=zipped)] == expected


def test_every_view_is_written_and_written_again(tmp_path: Path) -> None:
    """All views lie side by side; a second time finds them there and leaves them alone."""
    samples = write_samples(tmp_path / "samples", sessions=3, megabytes=0.02)
    store, digest = export(samples.folder, tmp_path)
    views = list(VIEWS.values())

    first = write_views(Screen(), store, digest, tmp_path / "out", views)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    again = write_views(Screen(), store, digest, tmp_path / "out", views)

    assert again == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before
    assert sorted(each.path for each in first) == sorted((tmp_path / "out").iterdir())
    assert all(each.opens.exists() for each in first)
