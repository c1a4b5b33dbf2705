"""A result's pages as the service shows them: who logged in can read them, and they can do nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from playwright.sync_api import Browser, Dialog, expect

from api_served import served
from autocode.jobs.engine.system import open_system
from results_world import exported


def test_pages_are_read_by_who_logged_in(browser: Browser, tmp_path: Path) -> None:
    """The cookie goes along from page to page; the view's scripts run, and those of a transcript don't."""
    with served(tmp_path) as serving, serving.client() as client:
        # Playwright's loop runs in this thread, and an export wants one of its own
        with open_system(serving.home) as system, ThreadPoolExecutor(1) as apart:
            apart.submit(exported, system, tmp_path, sessions=2).result()
        context = browser.new_context()
        page = context.new_page()
        alerts: list[str] = []

        def told(dialog: Dialog) -> None:
            alerts.append(dialog.message)
            dialog.dismiss()

        page.on("dialog", told)
        stranger = page.goto(f"{client.url}/v1/jobs/job/result.html")
        page.goto(client.login_link())
        page.get_by_role("button", name="Log in").click()

        index = page.goto(f"{client.url}/v1/jobs/job/result.html")
        page.get_by_role("rowheader").get_by_role("link").first.click()
        expect(page.get_by_text("All sessions")).to_be_visible()
        # hidden in the page as it is sent, and shown by the view's own script
        expect(page.get_by_role("button", name="Theme")).to_be_visible()
        first = page.url
        page.get_by_text("All sessions").click()
        expect(page.get_by_role("rowheader").get_by_role("link")).to_have_count(2)
        context.close()

    assert stranger is not None
    assert index is not None
    assert (stranger.status, index.status) == (401, 200)
    assert "/v1/jobs/job/result/html/sessions/" in first
    assert alerts == []
