from pathlib import Path

from ptxbench.records import ClockSample
from ptxbench.report.environment import PACKAGE, code, environment_of
from tests.conftest import ROOT
from tests.unit.factories import DEVICE, make_evidence, make_record, make_run, make_trial


def test_devices_are_told_apart_by_driver_and_counted() -> None:
    other = DEVICE.model_copy(update={"driver": "590.1"})
    records = [
        make_record(0),
        make_record(1),
        make_record(2, evidence=make_evidence(device=other, libraries={"torch": "2.13"})),
        make_record(3, evidence=make_evidence(libraries={"torch": "2.11"})),
    ]
    found = environment_of(records, {"primary": "a" * 64})
    assert [(device.driver, device.turns) for device in found.devices] == [(DEVICE.driver, 3), ("590.1", 1)]
    assert found.libraries == {"torch": ("2.11", "2.13")}
    assert found.harnesses == ("0.1.0",)
    assert found.suites == {"primary": "a" * 64}
    assert [compiler.builds for compiler in found.compilers] == [4]


def test_clocks_are_those_behind_the_timed_calls() -> None:
    readings = [ClockSample(sm_mhz=1900, limited_by=("power limit",)), ClockSample(sm_mhz=1980), None]
    trials = tuple(make_trial(clock=reading) for reading in readings)
    (device,) = environment_of([make_record(evidence=make_evidence(run=make_run(trials=trials)))]).devices
    assert device.clocks is not None
    assert device.clocks.model_dump() == {
        "readings": 2,
        "lowest_mhz": 1900,
        "median_mhz": 1940.0,
        "highest_mhz": 1980,
        "limited_by": {"power limit": 1},
    }
    (without,) = environment_of([make_record()]).devices
    assert without.clocks is None


def test_the_reporter_is_named_by_its_files() -> None:
    assert PACKAGE == ROOT / "plugins" / "ptxbench"
    assert len(code().sha256) == 64
    assert code() == code()


def test_a_commit_is_read_from_git_s_files(tmp_path: Path) -> None:
    from ptxbench.report.environment import _commit

    assert _commit(tmp_path) is None
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text("# pack-refs\n1111 refs/heads/main\n^2222\n")
    assert _commit(tmp_path) == "1111"
    (git / "refs" / "heads" / "main").write_text("3333\n")
    assert _commit(tmp_path) == "3333"
    (git / "HEAD").write_text("4444\n")
    assert _commit(tmp_path) == "4444"
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / ".git").write_text(f"gitdir: {git}/worktrees/linked\n")
    (git / "worktrees" / "linked").mkdir(parents=True)
    (git / "worktrees" / "linked" / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "worktrees" / "linked" / "commondir").write_text("../..\n")
    assert _commit(linked) == "3333"
