"""``ptxbench report BASE ADAPTED --dataset DIR --html``, in a real browser."""

from __future__ import annotations

import pytest

from ptxbench.cli import main
from tests.support.browser import DESKTOP, PHONE, Tab, chromium
from tests.support.manifests import write_manifest
from tests.support.synthetic_run import write_run

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\u202e<b>%{x}</b>"


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def runs(tmp_path_factory, browser):
    folder = tmp_path_factory.mktemp("runs")
    return [str(write_run(folder / name, 144, seed=seed, words=30)) for seed, name in enumerate(("base", "adapted"))]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory, runs):
    folder = tmp_path_factory.mktemp("page")
    dataset = write_manifest(folder / "dataset", by_case={"gemm_n7168_k5120 h100": 20})
    assert main(["report", *runs, "--dataset", str(dataset), "--html", str(folder / "page.html")]) == 0
    return folder / "page.html"


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_the_section_is_there_draws_and_fits(page_file, browser, size, scheme) -> None:
    with Tab(browser, page_file, viewport=size, color_scheme=scheme) as tab:
        for plot in tab.page.query_selector_all("#adaptation .plot"):
            plot.scroll_into_view_if_needed()
            tab.page.wait_for_function("plot => plot.dataset.drawn === 'yes'", arg=plot)
        assert tab.page.locator("#adaptation .plot").count() == 3
        assert tab.page.locator("nav a[href='#adaptation']").count() == 1
        assert tab.page.evaluate("document.documentElement.scrollWidth") == size["width"]
        assert tab.requests == [page_file.as_uri()]
        assert tab.complaints == []
        ink = "getComputedStyle(document.querySelector('#plot-adapt-transitions .ytick text')).fill"
        assert tab.page.evaluate(ink) == ("rgb(31, 35, 40)" if scheme == "light" else "rgb(232, 234, 237)")


def test_views_and_table_can_be_reached_and_read(page_file, browser) -> None:
    with Tab(browser, page_file) as tab:
        page = tab.page
        rows = page.locator("#transfer-table tbody tr").all_text_contents()
        assert any(row.startswith("trained, ") for row in rows)
        assert any(row.startswith("held-out case, ") for row in rows)
        page.locator("#plot-adapt-recipe").scroll_into_view_if_needed()
        page.wait_for_selector("#plot-adapt-recipe[data-drawn]")
        page.select_option("#adapt-recipe-view", label="by repaired outcome")
        page.wait_for_function(
            "() => document.querySelector('#adapt-recipe-key').textContent.includes('compile error: 13')"
        )
        assert page.locator("#adapt-recipe-key button").count() == 0, "a ring has nothing to hide"
        assert "compile error 13" in page.get_attribute("#plot-adapt-recipe", "aria-label")
        page.select_option("#adapt-transitions-view", label="base")
        page.wait_for_function(
            "() => document.querySelector('#plot-adapt-transitions').getAttribute('aria-label').endsWith('%.')"
        )
        assert tab.complaints == []


def test_hostile_names_of_a_dataset_stay_texts(browser, tmp_path) -> None:
    runs = [str(write_run(tmp_path / name, 16, words=20)) for name in ("base", "adapted")]
    dataset = write_manifest(
        tmp_path / "dataset", HOSTILE, recipe=HOSTILE, by_teacher={HOSTILE: 20}, by_case={f"{HOSTILE} h100": 20}
    )
    page_file = tmp_path / "page.html"
    assert main(["report", *runs, "--dataset", str(dataset), "--html", str(page_file)]) == 0
    with Tab(browser, page_file) as tab:
        page = tab.page
        page.locator("#plot-adapt-recipe").scroll_into_view_if_needed()
        page.wait_for_selector("#plot-adapt-recipe[data-drawn]")
        assert "<img src=x" in page.text_content("#transfer-table")
        assert "<img src=x" in page.text_content("#adapt-recipe-key")
        assert page.evaluate("window.hacked") is None
        assert page.locator("img").count() == 0
        assert page.locator("main b").count() == 0
        assert tab.complaints == []
