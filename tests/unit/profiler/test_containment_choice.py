"""Which layers a machine is given: those that its device works inside of, less those that somebody does not want."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import containment, defences
from ptxbench.profiler.containment import OPTIONAL, Choice, choose, settled, wanted


def test_all_layers_are_chosen_where_they_work() -> None:
    assert choose(lambda layers: "", Choice(layers=OPTIONAL)) == Choice(layers=OPTIONAL)


@pytest.mark.parametrize("broken", [{"ipc"}, {"pid", "ipc"}, {"user", "seccomp"}, set(OPTIONAL)])
def test_layers_that_break_the_device_are_dropped(broken: set[str]) -> None:
    choice = choose(lambda layers: "invalid handle" if broken & set(layers) else "", Choice(layers=OPTIONAL))
    assert choice.layers == tuple(layer for layer in OPTIONAL if layer not in broken)
    assert choice.dropped == dict.fromkeys(
        [layer for layer in OPTIONAL if layer in broken], "CUDA did not work inside: invalid handle"
    )


def test_a_layer_that_needs_another_is_added_behind_it() -> None:
    """As on an H200: without its own ``/proc``, which needs ``mount``, a process namespace keeps CUDA from starting."""

    def probe(layers: tuple[str, ...]) -> str:
        return "error 304" if "ipc" in layers or ("pid" in layers and not {"proc", "mount"} <= set(layers)) else ""

    assert choose(probe, Choice(layers=OPTIONAL)).layers == tuple(layer for layer in OPTIONAL if layer != "ipc")


def test_a_machine_where_nothing_works_is_no_fault_of_the_layers() -> None:
    with pytest.raises(InfrastructureError, match=r"no sandbox works on this machine.*no device"):
        choose(lambda layers: "no device", Choice(layers=OPTIONAL))


def test_a_choice_is_remembered_for_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXBENCH_CACHE", str(tmp_path))
    probed: list[tuple[str, ...]] = []

    def probe(layers: tuple[str, ...]) -> str:
        probed.append(layers)
        return "no" if "ipc" in layers else ""

    first = settled(probe, "580.1")
    count = len(probed)
    assert settled(probe, "580.1") == first
    assert len(probed) == count
    assert settled(probe, "580.2") == first
    assert len(probed) == 2 * count
    next((tmp_path / "containment").iterdir()).write_text("{")
    assert settled(probe, "580.1", again=True) == first


def test_a_choice_that_cannot_be_kept_is_made_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "containment").write_text("no folder")
    monkeypatch.setenv("PTXBENCH_CACHE", str(tmp_path))
    assert settled(lambda layers: "", "580.1").layers == OPTIONAL


def test_the_operator_can_leave_layers_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(containment.WITHOUT, "pid, ipc")
    choice = wanted()
    assert not {"pid", "ipc"} & set(choice.layers)
    assert set(choice.dropped) == {"pid", "ipc"}


def test_a_self_test_can_switch_containment_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defences, "_off", frozenset({"containment"}))
    assert wanted().layers == ()
    assert set(wanted().dropped) == set(OPTIONAL)
