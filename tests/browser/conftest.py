"""A browser for the pages: Chromium as the system has it, without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib import resources
from typing import Final

import pytest
from playwright.sync_api import Browser, Error, sync_playwright

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# read before a fixture takes our variables out of the environment
_CHOSEN: Final = os.environ.get("AUTOCODE_CHROMIUM")
_QUIET: Final = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    # whatever a page asks for by name isn't found; a service of a test has a number
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start Chromium once; ``AUTOCODE_CHROMIUM`` names it, else it is found on the path."""
    program = _CHOSEN or next(filter(None, map(shutil.which, _NAMES)), None)
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=program, args=list(_QUIET))
        except Error as error:
            pytest.fail(f"no Chromium starts; set AUTOCODE_CHROMIUM to one: {error}", pytrace=False)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """Return the script of axe-core, which checks a page for barriers."""
    return (resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
