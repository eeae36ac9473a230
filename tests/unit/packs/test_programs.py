"""Check programs run in processes of their own: what a check, or the end of a process, becomes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptx_tests.packs import harness, programs
from ptx_tests.packs.h100 import tma

from ptxbench.packs.pack import open_pack
from ptxbench.toolchain import Toolchain
from ptxbench.toolchain.cache import BuildCache
from ptxbench.toolchain.discovery import discover
from tests.unit.factories import ROOT
from tests.unit.packs import faulty
from tests.unit.toolchain.parts import shared_cache

HOST = programs.models("h100", "host")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    toolchain, pack = Toolchain(discover(), BuildCache(shared_cache(tmp_path_factory))), open_pack(ROOT, "h100")
    return programs.build(toolchain, pack, "host", harness.one_file(pack))


def test_a_check_that_raises_fails_alone(host: Path):
    found = programs.run(HOST, host, ["swizzle", "no_such_check", "ring"])
    assert {name: outcome.passed for name, outcome in found.items()} == {
        "swizzle": True,
        "no_such_check": False,
        "ring": True,
    }
    assert found["no_such_check"].detail.startswith("KeyError")


def test_whatever_becomes_of_a_check_the_next_one_is_judged_by_itself(host: Path):
    found = programs.run(faulty.__name__, host, list(faulty.CHECKS))
    assert found["agrees"] == found["agrees_too"] == found["agrees_at_last"] == programs.Outcome(True, "")
    assert found["disagrees"] == programs.Outcome(False, "AssertionError: another result")
    assert found["faults"].detail == "RuntimeError: tensor copy: an illegal instruction was encountered"
    assert found["ends"].detail.startswith("the process ended with code 0")
    assert found["is_killed"].detail.startswith("the process ended with code -9")
    assert found["ends_as_after_a_fault"].detail.startswith("the process ended with code 3")


def test_a_process_that_ends_costs_the_check_that_it_was_at(tmp_path: Path):
    found = programs.run(HOST, tmp_path / "none.so", ["swizzle", "ring"])
    assert [outcome.passed for outcome in found.values()] == [False, False]
    assert "the process ended with code 1" in found["swizzle"].detail


def test_a_process_that_hangs_is_ended(host: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(programs, "SECONDS", 0.01)
    found = programs.run(HOST, host, ["swizzle"])
    assert found["swizzle"] == programs.Outcome(False, "no answer within 0.01 s")


class Refusing:
    """A program each of whose functions ends with an error of CUDA."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def function(*_: object) -> None:
            raise RuntimeError(f"{name}: an illegal instruction was encountered")

        return function


def test_an_error_of_a_tensor_copy_names_operation_kind_and_place():
    place = tma.PLACES[3]
    with pytest.raises(RuntimeError, match="an illegal instruction") as raised:
        tma.copy(Refusing(), tma.STORE, place, tma.tensor(place), np.zeros(1, np.uint8), 2)
    assert str(raised.value).startswith(f"store or reduction, kind 2, {place}: tensor_copy")


def test_every_program_of_hopper_has_models_and_every_model_a_program():
    folder = programs.HERE / "h100"
    models = {path.stem for path in folder.glob("*.py")} - {"__init__", "layouts"}
    assert set(programs.programs("h100")) == {path.stem for path in folder.glob("*.cu")} == models
