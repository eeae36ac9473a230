"""``ptxbench report --html`` and ``--figures``, in a real browser."""

import json
import re

import pytest

from ptxbench.cli import main
from ptxbench.records import TurnRecord
from ptxbench.report.json_report import write_report
from ptxbench.report.page import write_page
from ptxbench.report.sources import load
from tests.conftest import ROOT
from tests.support.browser import DESKTOP, PHONE, Tab, chromium
from tests.support.synthetic_run import write_run

TURNS = 1200
"""Of the large page, whose list of trajectories does not fit any window. tests/perf opens one of 5,000."""
EXAMPLE = ROOT / "generated" / "examples" / "claude-exchange"
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\u202e<b>%{x}</b><!--"


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def example(tmp_path_factory, browser):
    """The page of a run of a real model."""
    path = tmp_path_factory.mktemp("example") / "page.html"
    write_page(path, load([EXAMPLE], ROOT))
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory, browser):
    """The page of a run of 300 turns of all models and workloads."""
    folder = tmp_path_factory.mktemp("small")
    run = write_run(folder / "small", 300, words=60)
    write_page(folder / "page.html", load([run], ROOT))
    return folder / "page.html"


@pytest.fixture(scope="module")
def large(tmp_path_factory, browser):
    """The page of a run with more turns than a window shows."""
    folder = tmp_path_factory.mktemp("large")
    run = write_run(folder / "large", TURNS, words=150)
    write_page(folder / "page.html", load([run], ROOT))
    return folder / "page.html"


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory, browser):
    """A run whose texts all attack the page."""
    run = write_run(tmp_path_factory.mktemp("hostile") / "run", 24, words=30)
    for path in run.glob("turns/*/turn*.json"):
        record = TurnRecord.model_validate_json(path.read_bytes())
        exchange = record.exchange
        assert exchange is not None
        assert exchange.reply is not None
        reply = exchange.reply.model_copy(update={"text": HOSTILE, "reasoning": HOSTILE, "model": HOSTILE})
        added = tuple(one.model_copy(update={"content": f"{HOSTILE}\n{one.content}"}) for one in exchange.added)
        verdict = record.verdict.model_copy(
            update={"message": HOSTILE, "target_message": HOSTILE, "safe_message": HOSTILE, "rule": HOSTILE}
        )
        changes = {"exchange": exchange.model_copy(update={"reply": reply, "added": added}), "verdict": verdict}
        if record.build is not None:
            changes["build"] = record.build.model_copy(update={"log": HOSTILE})
        path.write_text(record.model_copy(update={"variant_name": HOSTILE, **changes}).model_dump_json())
    return run


def test_the_library_of_the_figures_starts_when_everything_else_is_there(example, browser):
    with Tab(browser, example) as tab:
        tab.page.wait_for_selector(".plot[data-drawn]")
        assert tab.page.evaluate("() => performance.getEntriesByName('listed').length") == 1


def test_nothing_is_fetched_and_nothing_complains(large, browser):
    with Tab(browser, large) as tab:
        assert tab.draw_all() == 2 * 5 + 6
        assert tab.requests == [large.as_uri()]
        assert tab.complaints == []
        assert tab.page.locator(".option").count() < 60
        assert f"{TURNS:,} turns" in tab.page.text_content("#found")


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows(small, browser, size, scheme):
    with Tab(browser, small, viewport=size, color_scheme=scheme) as tab:
        tab.draw_all()
        tab.page.focus("#trajectories")
        tab.page.keyboard.press("ArrowDown")
        for part in ("verdict", "kernel", "diff", "prompt", "reasoning", "reply", "feedback"):
            tab.page.wait_for_selector(f"#part-{part}")
            tab.part(part)
            assert tab.page.evaluate("document.documentElement.scrollWidth") == size["width"]


def test_keyboard_alone_reaches_a_turn(small, browser):
    with Tab(browser, small) as tab:
        page = tab.page
        page.focus("#by-search")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "trajectories"
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.wait_for_selector("#panel")
        active = page.get_attribute("#trajectories", "aria-activedescendant")
        assert page.get_attribute(f"#{active}", "aria-selected") == "true"
        page.keyboard.press("End")
        active = page.get_attribute("#trajectories", "aria-activedescendant")
        assert page.get_attribute(f"#{active}", "aria-posinset") == page.get_attribute(f"#{active}", "aria-setsize")
        page.keyboard.press("Home")
        page.wait_for_selector("#turn-1")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "turn-0"
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#turn-1[aria-selected=true]")
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#part-kernel[aria-selected=true]")
        page.wait_for_selector("#panel .code")
        assert page.evaluate("document.activeElement.getAttribute('role')") == "tab"


def test_the_diff_is_of_the_two_kernels(small, browser):
    """Its two sides, with the folded lines unfolded, are the kernels that the kernel tab shows."""
    with Tab(browser, small) as tab:
        page = tab.page
        page.focus("#trajectories")
        page.keyboard.press("ArrowDown")
        page.wait_for_selector("#turn-1")
        kernels = []
        for turn in (0, 1):
            page.click(f"#turn-{turn}")
            tab.part("kernel")
            page.wait_for_selector("#panel .code")
            kernels.append(page.eval_on_selector_all(".code .t", "all => all.map(one => one.textContent)"))
        tab.part("diff")
        page.wait_for_selector(".code .add")
        while page.locator(".fold").count():
            page.locator(".fold").first.click()
        rows = page.eval_on_selector_all(".code .t", "all => all.map(one => one.textContent)")
        assert [row[2:] for row in rows if row[0] in " -"] == kernels[0]
        assert [row[2:] for row in rows if row[0] in " +"] == kernels[1]


def test_theme_follows_the_system_until_the_reader_chooses(small, browser):
    with Tab(browser, small, color_scheme="dark") as tab:
        background = "getComputedStyle(document.body).backgroundColor"
        dark = tab.page.evaluate(background)
        tab.page.emulate_media(color_scheme="light")
        tab.page.wait_for_function(f"() => {background} !== '{dark}'")
        tab.page.select_option("#theme", "dark")
        assert tab.page.evaluate(background) == dark
        tab.page.reload()
        tab.page.wait_for_selector("#trajectories .option")
        assert tab.page.evaluate(background) == dark


def test_filters_and_addresses(small, browser):
    with Tab(browser, small) as tab:
        page = tab.page
        page.click("[data-cell='7']")
        page.wait_for_selector("#panel")
        model, case = page.input_value("#by-model"), page.input_value("#by-case")
        shown = page.text_content("#shown")
        assert shown == f"{model}: {case}"
        page.click("#turn-0")
        page.wait_for_function("() => location.hash.startsWith('#turn=')")
        address = page.evaluate("location.hash")
    with Tab(browser, small, address=address) as tab:
        tab.page.wait_for_selector("#panel")
        assert tab.page.text_content("#shown") == shown


def test_hostile_texts_stay_texts(hostile_run, browser, tmp_path):
    page_file = tmp_path / "page.html"
    write_page(page_file, load([hostile_run], ROOT))
    with Tab(browser, page_file) as tab:
        tab.draw_all()
        tab.page.focus("#trajectories")
        tab.page.keyboard.press("ArrowDown")
        tab.page.wait_for_selector("#panel")
        for part in ("verdict", "prompt", "reasoning", "reply"):
            assert "</script><script>window.hacked=1</script><img src=x" in tab.part(part), part
            assert "\\u202e" in tab.page.text_content("#panel")
        assert tab.page.evaluate("window.hacked") is None
        assert tab.page.locator("img").count() == 0
        # Ours, and plotly's.
        assert tab.page.locator("script:not([type='text/plain'])").count() == 2
        assert tab.complaints == []
        assert tab.requests == [page_file.as_uri()]


def test_hostile_names_stay_texts(hostile_run, browser, tmp_path):
    """Names of models, workloads and devices cannot be hostile in a run folder; in a JSON report they can."""
    report = load([hostile_run], ROOT)[0].report
    text = report.model_dump_json()
    for name in ("claude", "gemm_n7168_k5120", "NVIDIA H200", "cublas"):
        text = text.replace(f'"{name}', f'"{json.dumps(HOSTILE + name, ensure_ascii=False)[1:-1]}')
    write_report(tmp_path / "a.json", type(report).model_validate_json(text))
    page_file = tmp_path / "page.html"
    write_page(page_file, load([tmp_path / "a.json", tmp_path / "a.json"], ROOT))
    with Tab(browser, page_file) as tab:
        tab.draw_all()
        tab.page.click("[data-cell='0']")
        tab.page.wait_for_selector("#panel")
        assert "a.json" not in tab.page.title()
        assert "<img src=x" in tab.page.text_content("#shown")
        assert tab.page.evaluate("window.hacked") is None
        assert tab.page.locator("img").count() == 0
        assert tab.page.locator("main b").count() == 0
        assert tab.complaints == []


def test_the_policy_stops_a_script_that_gets_in_all_the_same(small, browser):
    with Tab(browser, small) as tab:
        tab.page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hacked = 1'}))"
        )
        assert tab.page.evaluate("window.hacked") is None
        assert any("Content Security Policy" in complaint for complaint in tab.complaints)


def test_the_command_writes_page_and_figures(browser, tmp_path, capsys):
    page_file, folder = tmp_path / "out" / "page.html", tmp_path / "figures"
    assert main(["report", str(EXAMPLE), "--html", str(page_file), "--figures", str(folder)]) == 0
    out = capsys.readouterr().out
    assert f"Page: {page_file}" in out
    names = {path.name for path in folder.iterdir()}
    assert {"fast-p-0.png", "fast-p-0.svg", "flow.png", "outcomes.svg", "roofline.png"} <= names
    assert f"Figures: {len(names)} files" in out
    assert (folder / "flow.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "roofline.svg").read_text()[:200]
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", page_file.read_text())
    with Tab(browser, page_file) as tab:
        tab.draw_all()
        assert tab.complaints == []
        tab.page.focus("#trajectories")
        tab.page.keyboard.press("ArrowDown")
        tab.page.wait_for_selector("#panel")
        assert "HGMMA" in tab.part("verdict")
        assert "inline PTX" in tab.part("prompt")
        assert "Facts" in tab.part("feedback")
