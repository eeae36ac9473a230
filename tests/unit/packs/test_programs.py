"""Check programs run in processes of their own: what a check, or the end of a process, becomes."""

from pathlib import Path

import pytest
from ptx_tests.packs import harness, programs

from ptxbench.packs.pack import open_pack
from ptxbench.toolchain import Toolchain
from ptxbench.toolchain.cache import BuildCache
from ptxbench.toolchain.discovery import discover
from tests.unit.factories import ROOT
from tests.unit.toolchain.parts import shared_cache


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    toolchain, pack = Toolchain(discover(), BuildCache(shared_cache(tmp_path_factory))), open_pack(ROOT, "h100")
    return programs.build(toolchain, pack, "host", harness.one_file(pack))


def test_a_check_that_raises_fails_alone(host: Path):
    found = programs.run("h100", "host", host, ["swizzle", "no_such_check", "ring"])
    assert {name: outcome.passed for name, outcome in found.items()} == {
        "swizzle": True,
        "no_such_check": False,
        "ring": True,
    }
    assert found["no_such_check"].detail.startswith("KeyError")


def test_a_process_that_ends_costs_the_check_that_it_was_at(tmp_path: Path):
    found = programs.run("h100", "host", tmp_path / "none.so", ["swizzle", "ring"])
    assert [outcome.passed for outcome in found.values()] == [False, False]
    assert "the process ended with code 1" in found["swizzle"].detail


def test_a_process_that_hangs_is_ended(host: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(programs, "SECONDS", 0.01)
    found = programs.run("h100", "host", host, ["swizzle"])
    assert found["swizzle"] == programs.Outcome(False, "no answer within 0.01 s")


def test_every_program_of_hopper_has_models_and_every_model_a_program():
    folder = programs.HERE / "h100"
    models = {path.stem for path in folder.glob("*.py")} - {"__init__", "layouts"}
    assert set(programs.programs("h100")) == {path.stem for path in folder.glob("*.cu")} == models
