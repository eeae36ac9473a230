"""The page of a report opens in a browser: of 5,000 turns, and of the example with a figure in view."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ptxbench.report.page import write_page
from ptxbench.report.sources import load
from tests.conftest import ROOT
from tests.support.browser import DESKTOP, chromium
from tests.support.synthetic_run import write_run

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

OPENS_WITHIN_S = 2.0
"""Until the summary is painted and the list of trajectories can be used."""
TURNS = 5000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(params=[f"{TURNS} turns", "example"])
def page_file(request: pytest.FixtureRequest, tmp_path: Path, browser: Any) -> Path:
    run = ROOT / "generated" / "examples" / "claude-exchange"
    if request.param != "example":
        run = write_run(tmp_path / "large", TURNS, words=150)
    path = tmp_path / "page.html"
    write_page(path, load([run], ROOT))
    return path


def test_opening_the_page(benchmark: BenchmarkFixture, page_file: Path, browser: Any) -> None:
    """The library of the figures starts when everything else is there, so it is not in the page's own mark."""
    listed: list[float] = []

    def opened() -> None:
        context = browser.new_context(viewport=DESKTOP)
        page = context.new_page()
        page.goto(page_file.as_uri(), wait_until="commit")
        page.wait_for_selector("#trajectories .option")
        listed.append(page.evaluate("() => performance.getEntriesByName('listed')[0].startTime / 1000"))
        context.close()

    benchmark.pedantic(opened, rounds=5, warmup_rounds=1)
    benchmark.extra_info["listed_s"] = listed
    assert min(listed) < OPENS_WITHIN_S
