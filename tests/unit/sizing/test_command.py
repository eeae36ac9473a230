"""``ptxbench size``, and the tables that it writes into the documentation."""

import re

import pytest

from ptxbench.cli import main
from ptxbench.sizing.fleet import size, slowdown
from ptxbench.sizing.network import load
from ptxbench.sizing.times import measured
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "scale.md"


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.splitlines()]


@pytest.mark.parametrize("agents", [1, 7, 48])
def test_one_gpu_less_would_be_too_few(agents):
    times = measured()
    found = size(times, agents, 0.1)
    assert slowdown(times, found.load) <= 0.1
    if found.gpus > 1:
        assert slowdown(times, load(times, agents, found.processors, found.gpus - 1)) > 0.1


def test_tables_of_the_page_are_what_the_command_says(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    blocks = re.findall(
        r"```console\n\$ ptxbench (size [^\n]*)\n```\n\n(.*?)\n\n(\|.*?\|)\n\n", PAGE.read_text(), re.DOTALL
    )
    assert len(blocks) == 2
    for command, times, table in blocks:
        assert main(command.split()) == 0
        said, _, found = capsys.readouterr().out.strip().partition("\n\n")
        assert said == times
        for written, row in zip(cells(table), cells(found), strict=True):
            # Simulated throughput hangs on the last digit of the machine's logarithm, so it may differ a little.
            assert [*written[:5], *written[6:]] == [*row[:5], *row[6:]]
            assert written[5] == row[5] or float(written[5]) == pytest.approx(float(row[5]), rel=0.02)


def test_what_makes_no_sense_is_refused(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["size", "--agents", "4", "--processors", "2"]) == 2
    assert "expected --gpus beside it" in capsys.readouterr().err
    for gpus in ([], ["--gpus", "3"]):
        assert main(["size", "--agents", "5001", *gpus]) == 2
        assert "expected at most 5000" in capsys.readouterr().err


def test_servers_beyond_the_agents_change_nothing(capsys, monkeypatch):
    """Nor do they take memory: 10^11 processors are a typing error, and no traceback."""
    monkeypatch.chdir(ROOT)
    assert main(["size", "--agents", "2", "--gpus", "100000000000", "--processors", "100000000000"]) == 0
    assert "0.00" in capsys.readouterr().out
