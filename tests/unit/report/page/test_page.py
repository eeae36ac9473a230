"""The document: policy, data, and what it says where something is missing."""

import base64
import builtins
import gzip
import hashlib
import json
import re
import sys

import pytest

from ptxbench.errors import InputError
from ptxbench.report.page.figure_files import BROWSER_VARIABLE, find_browser, write_figures
from ptxbench.report.page.html import page, write_page
from ptxbench.report.page.viewer import make_viewer
from ptxbench.report.sources import load
from tests.conftest import ROOT
from tests.support.synthetic_run import write_run

pytest.importorskip("plotly")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("run") / "run", 60, words=30)


@pytest.fixture(scope="module")
def sources(run):
    return load([run], ROOT)


@pytest.fixture(scope="module")
def html(sources) -> str:
    return page(sources)


def unpacked(text: str):
    return json.loads(gzip.decompress(base64.b64decode(text)))


def test_the_policy_names_the_hash_of_each_script_that_runs(html) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    script = re.search(r"<script>(.*?)</script>", html, re.DOTALL)
    library = re.search(r'id="plotly">([^<]*)<', html)
    assert policy
    assert script
    assert library
    for source in (script[1].encode(), gzip.decompress(base64.b64decode(library[1]))):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(source).digest()).decode()}'" in policy[1]
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy[1]
    assert len(re.findall(r"<script>", html)) == 1


def test_data_is_base64_and_nothing_else(html) -> None:
    blocks = re.findall(r'<script type="text/plain" id="([a-z0-9-]+)">(.*?)</script>', html, re.DOTALL)
    assert {"index", "figures", "plotly", "block-0", "shared-0"} <= {name for name, _ in blocks}
    assert all(re.fullmatch(r"[A-Za-z0-9+/=]+", block) for _, block in blocks)


def test_the_same_report_is_the_same_page(html, sources) -> None:
    assert page(sources) == html


def test_prompts_that_begin_conversations_are_kept_once(sources) -> None:
    viewer = make_viewer(sources)
    openings = {
        message.content
        for stored in sources[0].run.turns()
        if stored.record.follows is None
        for message in stored.record.exchange.added
    }
    assert len(viewer.shared) == len(openings)


def test_a_block_holds_what_the_run_folder_holds(sources) -> None:
    viewer = make_viewer(sources)
    names = viewer.overview["trajectories"]["id"]
    assert len(viewer.blocks) == len(names)
    for stored in sources[0].run.turns():
        block = unpacked(viewer.blocks[names.index(stored.record.key.trajectory_id)])
        turn = next(one for one in block["turns"] if one["turn"] == stored.record.key.turn)
        runs = block["texts"][turn["reasoning"]]
        pairs = zip(runs[::2], runs[1::2], strict=True)
        lines = [block["lines"][first + at] for first, count in pairs for at in range(count)]
        assert "\n".join(lines) == stored.record.exchange.reply.reasoning
        assert turn["verdict"]["rule"] == stored.record.verdict.rule
        assert ("kernel" in turn) == (stored.candidate is not None)


def test_a_json_report_has_verdicts_but_no_texts(sources) -> None:
    source = sources[0]._replace(run=None)
    block = unpacked(make_viewer([source]).blocks[0])
    assert block["texts"] == []
    assert "verdict" in block["turns"][0]
    assert "kernel" not in block["turns"][0]


def test_the_page_names_no_path_of_this_machine(html) -> None:
    assert str(ROOT) not in html


def test_without_a_browser_one_sentence_says_what_to_install(sources, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv(BROWSER_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"expected Chromium or Chrome.*apt-get install chromium"):
        write_figures(tmp_path / "figures", sources)
    monkeypatch.setenv(BROWSER_VARIABLE, "/nowhere/chrome")
    with pytest.raises(InputError, match="BROWSER_PATH=/nowhere/chrome"):
        find_browser()


def test_without_plotly_one_sentence_says_what_to_install(sources, tmp_path, monkeypatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "plotly"]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def refuse(name, *rest):
        if name.partition(".")[0] == "plotly":
            raise ModuleNotFoundError("No module named 'plotly'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(InputError, match=r"expected the package plotly.*pip install 'ptxbench\[report\]'"):
        write_page(tmp_path / "page.html", sources)


def test_a_page_that_cannot_be_written_is_the_users_to_mend(sources, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="expected a file that the page can be written to"):
        write_page(tmp_path / "file" / "page.html", sources)
