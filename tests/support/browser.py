"""A Chromium for tests of the page, driven by playwright."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ptxbench.errors import InputError
from ptxbench.report.page.figure_files import find_browser

NEEDED = "PTXBENCH_NEEDS_BROWSER"
"""Set where a missing browser must fail the tests instead of skipping them."""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}


def browser_path() -> str:
    """The installed Chromium; without one the test is skipped, or fails where one is needed."""
    try:
        return find_browser()
    except InputError as error:
        if os.environ.get(NEEDED) == "1":
            raise
        pytest.skip(f"needs Chromium: {error}")


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser."""
    path = browser_path()
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One opened page, with everything that went wrong in it and everything that it asked for."""

    def __init__(self, browser: Any, file: Path, *, address: str = "", **options: Any) -> None:
        options = {"viewport": DESKTOP, "color_scheme": "light", "reduced_motion": "reduce", **options}
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self._heard(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(f"{file.as_uri()}{address}")
        self.page.wait_for_selector("#trajectories .option")

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def draw_all(self) -> int:
        """Scroll to every figure and wait until it is drawn. Returns how many there are."""
        plots = self.page.query_selector_all(".plot")
        for plot in plots:
            plot.scroll_into_view_if_needed()
            self.page.wait_for_function("plot => plot.dataset.drawn === 'yes'", arg=plot)
        return len(plots)

    def part(self, name: str) -> str:
        """Show a part of the turn that is open, and return its text."""
        self.page.click(f"#part-{name}")
        self.page.wait_for_selector(f"#panel[aria-labelledby~=part-{name}]")
        self.page.wait_for_function("() => document.getElementById('panel').childElementCount > 0")
        return str(self.page.text_content("#panel"))
