"""The trajectory loop: order, early ends, faults, resuming, stopping."""

import itertools
import threading
import time

import pytest

from ptxbench.agent import Evaluator, Profilers, RunStore, Skipped
from ptxbench.agent.meter import Meter
from ptxbench.agent.trajectory import RETRIES, TrajectoryRunner
from ptxbench.errors import InfrastructureError, InputError
from ptxbench.records import InstructionEvidence, Outcome, RunStatus, Target, ToolStatus, TurnRecord
from tests.unit.agent.parts import Bench, FakeProfiler, FakeToolchain, FixedModel, ScriptedModel
from tests.unit.factories import DEVICE, make_run, suite_case


@pytest.fixture
def bench(tmp_path) -> Bench:
    return Bench(tmp_path / "run", ScriptedModel(["zero", "one", "two"]))


def results(bench: Bench, turns: int) -> list[TurnRecord | Skipped | str]:
    """Every turn of one trajectory; a fault as its kind."""
    engine, plan = bench.engine(bench.plan(turns)), bench.plan(turns)
    found: list[TurnRecord | Skipped | str] = []
    for turn in range(turns):
        try:
            found.append(engine.turn(plan.key(turn)))
        except InfrastructureError as error:
            found.append(error.kind)
    engine.close()
    return found


def test_a_turn_goes_all_the_way_and_is_stored(bench):
    record = results(bench, 1)[0]
    assert isinstance(record, TurnRecord)
    assert record.verdict.outcome is Outcome.CORRECT
    assert record.verdict.target is Target.EXECUTED
    assert (record.origin, record.evidence_origin, record.variant_name) == ("script", "measured", "none")
    assert bench.profiler.calls == {"evaluate": 1, "sanitize memcheck": 1, "instructions": 1, "close": 1}
    assert set(record.stages_ms) == {"build", "evaluate", "sanitize", "instructions", "judge"}
    stored = RunStore.read(bench.folder).load(record.key)
    assert stored is not None
    assert stored.record == record
    assert stored.candidate is not None
    assert stored.candidate.source == "zero"


def test_nothing_happens_before_a_turn_is_asked_for(bench):
    engine = bench.engine(bench.plan(3))
    time.sleep(0.05)
    engine.close()
    assert bench.model.histories == []
    assert bench.toolchain.built == []


def test_each_turn_sees_the_records_before_it(bench):
    records = results(bench, 3)
    assert [len(history) for history in bench.model.histories] == [0, 1, 2]
    assert [past.record for past in bench.model.histories[2]] == records[:2]


def test_a_trajectory_ends_early_at_its_target(bench):
    bench.profiler.baseline_ns = 960_000
    first, second, third = results(bench, 3)
    assert isinstance(first, TurnRecord)
    assert first.verdict.speedup == pytest.approx(1.2)
    assert isinstance(second, Skipped)
    assert "reached its target in turn 0" in second.reason
    assert third == second
    assert len(bench.model.histories) == 1


def test_just_below_the_target_it_goes_on(bench):
    bench.profiler.baseline_ns = 959_000
    assert all(isinstance(result, TurnRecord) for result in results(bench, 3))


def test_a_model_that_ends_skips_the_rest_with_its_reason(bench):
    assert results(bench, 5)[3:] == [Skipped("the script is over")] * 2
    assert len(bench.model.histories) == 4


def test_an_answer_without_a_kernel_is_a_turn(tmp_path):
    bench = Bench(tmp_path / "run", ScriptedModel([None, "one"]))
    first, second = results(bench, 2)
    assert isinstance(first, TurnRecord)
    assert first.verdict.outcome is Outcome.EXTRACTION_ERROR
    assert first.source_sha256 is None
    assert isinstance(second, TurnRecord)
    assert second.verdict.correct
    assert bench.toolchain.built == ["one"]


@pytest.mark.parametrize(
    ("status", "sanitized"), [(RunStatus.TIMEOUT, 0), (RunStatus.LOAD_ERROR, 0), (RunStatus.RUNTIME_ERROR, 1)]
)
def test_what_did_not_run_well_is_not_profiled(bench, status, sanitized):
    bench.profiler.run = make_run(status=status, trials=(), launches=())
    (record,) = results(bench, 1)
    assert isinstance(record, TurnRecord)
    assert record.verdict.outcome in (Outcome.TIMEOUT, Outcome.RUNTIME_ERROR)
    assert bench.profiler.calls["sanitize memcheck"] == sanitized
    assert bench.profiler.calls["instructions"] == 0


def test_replayed_evidence_is_taken_as_it_is(bench):
    bench.profiler = FakeProfiler(origin="replayed", device=None)
    (record,) = results(bench, 1)
    assert isinstance(record, TurnRecord)
    assert (record.evidence_origin, record.verdict.outcome) == ("replayed", Outcome.CORRECT)
    assert bench.profiler.calls == {"evaluate": 1, "close": 1}


def test_a_fault_is_retried_and_forgotten_if_it_passes(bench):
    bench.profiler.faults = [InfrastructureError("oracle_died", "gone")] * RETRIES
    record = results(bench, 1)[0]
    assert isinstance(record, TurnRecord)
    assert record.verdict.correct
    assert bench.profiler.calls["evaluate"] == RETRIES + 1
    assert bench.store.load_fault(record.key) is None


def test_a_fault_that_stays_is_excluded_and_the_trajectory_goes_on(bench):
    bench.profiler.faults = [InfrastructureError("oracle_died", "gone")] * (RETRIES + 1)
    first, second, _ = results(bench, 3)
    assert first == "oracle_died"
    assert isinstance(second, TurnRecord)
    assert [len(history) for history in bench.model.histories] == [0, 0, 1]
    fault = bench.store.load_fault(bench.plan(1).key(0))
    assert fault is not None
    assert fault.fault is not None
    assert (fault.fault.kind, fault.verdict.outcome) == ("oracle_died", Outcome.INFRASTRUCTURE_ERROR)
    assert bench.store.load(fault.key) is None


def test_a_fault_that_cannot_pass_is_not_retried_and_holds_for_the_rest(bench):
    bench.profiler.faults = [InfrastructureError("baseline_unavailable", "no cuDNN")]
    assert results(bench, 3) == ["baseline_unavailable"] * 3
    assert bench.profiler.calls["evaluate"] == 1
    # Each has its record, so that a report leaves all of them out of N.
    for turn in range(3):
        fault = bench.store.load_fault(bench.plan(3).key(turn))
        assert fault is not None
        assert fault.verdict.outcome is Outcome.INFRASTRUCTURE_ERROR


def test_a_turn_that_the_profiler_gave_up_is_not_retried_and_the_next_is_done(bench):
    bench.profiler.faults = [InfrastructureError("device_disturbed", "93 C, twice")]
    first, second = results(bench, 2)
    assert first == "device_disturbed"
    assert isinstance(second, TurnRecord)
    assert bench.profiler.calls["evaluate"] == 2


def test_what_happens_to_devices_is_told_once(bench):
    told = ["GPU 0: paused"]

    def take() -> list[str]:
        notes, told[:] = list(told), []
        return notes

    engine = bench.engine(bench.plan(1))
    assert engine.take_notes() == [], "nothing is open yet"
    engine.turn(bench.plan(1).key(0))
    assert engine.take_notes() == [], "this profiler tells nothing"
    bench.profiler.take_notes = take
    assert engine.take_notes() == ["GPU 0: paused"]
    assert engine.take_notes() == []
    engine.close()


def test_a_faulty_turn_is_done_when_the_run_is_resumed(bench):
    bench.profiler.faults = [InfrastructureError("oracle_died", "gone")] * (RETRIES + 1)
    assert results(bench, 1) == ["oracle_died"]
    assert isinstance(results(bench, 1)[0], TurnRecord)


def test_finished_turns_are_not_repeated(bench):
    before = results(bench, 2)
    again = Bench(bench.folder, ScriptedModel(["other", "other", "two"]))
    assert results(again, 3)[:2] == before
    assert again.toolchain.built == ["two"]
    assert [len(history) for history in again.model.histories] == [2]


def test_an_unknown_turn_is_not_finished(bench):
    bench.profiler.known = False
    (record,) = results(bench, 1)
    assert isinstance(record, TurnRecord)
    assert record.verdict.outcome is Outcome.UNKNOWN
    bench.profiler.known = True
    (record,) = results(bench, 1)
    assert isinstance(record, TurnRecord)
    assert record.verdict.correct


def test_an_edited_source_is_evaluated_anew(tmp_path):
    bench = Bench(tmp_path / "run", FixedModel(["first"]))
    results(bench, 1)
    results(bench, 1)
    assert bench.toolchain.built == ["first"]
    bench.model.script[0] = "second"
    (record,) = results(bench, 1)
    assert bench.toolchain.built == ["first", "second"]
    assert isinstance(record, TurnRecord)
    stored = bench.store.load(record.key)
    assert stored is not None
    assert stored.record == record


def test_what_was_replayed_is_measured_where_a_device_is(bench):
    bench.profiler = FakeProfiler(origin="replayed", device=None)
    results(bench, 1)
    bench.profiler = FakeProfiler()
    (record,) = results(bench, 1)
    assert isinstance(record, TurnRecord)
    assert record.evidence_origin == "measured"


@pytest.mark.parametrize("stored_evidence", [False, True])
def test_what_was_measured_in_part_outlives_a_session_without_a_device(bench, monkeypatch, stored_evidence):
    missing = InstructionEvidence(status=ToolStatus.UNAVAILABLE, message="ERR_NVGPUCTRPERM")
    monkeypatch.setattr(bench.profiler, "instructions", lambda case, built: missing)
    (measured,) = results(bench, 1)
    assert isinstance(measured, TurnRecord)
    assert (measured.verdict.correct, measured.verdict.target) == (True, Target.UNKNOWN)
    bench.profiler = FakeProfiler(origin="replayed", device=None)
    bench.profiler.known = stored_evidence
    (after,) = results(bench, 1)
    assert isinstance(after, TurnRecord)
    stored = bench.store.load(after.key)
    assert stored is not None
    assert stored.record == after
    if stored_evidence:  # it tells what was open
        assert (after.evidence_origin, after.verdict.target) == ("replayed", Target.EXECUTED)
    else:
        assert after == measured


def test_a_new_floor_needs_no_new_measurement(tmp_path):
    bench = Bench(tmp_path / "run", ScriptedModel(["zero"], floor=0.6))
    results(bench, 1)
    bench.model.floor = 0.7
    (record,) = results(bench, 1)
    assert isinstance(record, TurnRecord)
    assert record.min_speedup == 0.7
    stored = bench.store.load(record.key)
    assert stored is not None
    assert stored.record.min_speedup == 0.7
    assert bench.toolchain.built == ["zero"]


def test_the_wrong_device_skips_with_local_and_replays_with_auto(bench):
    bench.profiler.device = DEVICE.model_copy(update={"compute_capability": (10, 0)})
    (skipped,) = results(bench, 1)
    assert isinstance(skipped, Skipped)
    assert "wrong GPU for h100: expected compute capability 9.0, found NVIDIA H200 with 10.0" in skipped.reason
    assert bench.toolchain.built == []

    bench.choice = "auto"
    replay, local = FakeProfiler(origin="replayed", device=None), FakeProfiler(device=bench.profiler.device)
    engine = bench.engine(bench.plan(1))
    engine._profilers._opener = lambda name: {"auto": local, "replay": replay}[name]
    record = engine.turn(bench.plan(1).key(0))
    engine.close()
    assert isinstance(record, TurnRecord)
    assert record.evidence_origin == "replayed"
    assert local.calls["close"] == replay.calls["close"] == 1


def test_trajectories_overlap_and_builds_are_limited(bench):
    together = threading.Barrier(3)
    bench.profiler.on_evaluate = lambda: together.wait(20)
    bench.toolchain = FakeToolchain(lambda: time.sleep(0.05))
    plans = [bench.plan(1, trajectory) for trajectory in range(3)]
    engine = bench.engine(*plans, concurrency=3, compile_slots=2)
    for plan in plans:
        assert isinstance(engine.turn(plan.key(0)), TurnRecord)
    engine.close()
    assert bench.toolchain.most == 2


def test_a_turn_is_told_when_it_ends_whichever_is_awaited(bench):
    ended, calls, told = threading.Event(), itertools.count(), []

    def hear(found):
        told.append(found)
        ended.set()

    bench.profiler.on_evaluate = lambda: next(calls) or ended.wait(20)
    plans = [bench.plan(1, trajectory) for trajectory in range(2)]
    engine = bench.engine(*plans, concurrency=2, told=hear)
    awaited = [engine.turn(plan.key(0)) for plan in plans]
    engine.close()
    assert ended.is_set()
    assert sorted(str(record.key) for record in told) == [str(record.key) for record in awaited]


def test_two_engines_on_one_run_share_the_work(bench):
    other = Bench(bench.folder, bench.model)
    bench.toolchain = other.toolchain = FakeToolchain(lambda: time.sleep(0.02))
    plans = [bench.plan(3, trajectory) for trajectory in range(4)]
    engines = [part.engine(*plans, concurrency=2) for part in (bench, other)]
    found = []

    def collect(engine):
        found.append([engine.turn(plan.key(turn)) for plan in plans for turn in range(3)])

    threads = [threading.Thread(target=collect, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for engine in engines:
        engine.close()
    assert found[0] == found[1]
    assert len(bench.toolchain.built) == 12


def test_closing_stops_between_turns_and_leaves_whole_records(bench):
    reached, release = threading.Event(), threading.Event()

    def pause():
        reached.set()
        release.wait(20)

    bench.profiler.on_evaluate = pause
    engine = bench.engine(bench.plan(3), bench.plan(3, 1))
    threading.Thread(target=lambda: engine.turn(bench.plan(3).key(0)), daemon=True).start()
    assert reached.wait(20)
    threading.Timer(0.05, release.set).start()
    engine.close()
    assert [key.turn for key in bench.store.turn_keys()] == [0]
    assert bench.store.load_fault(bench.plan(3).key(0)) is None


def test_a_fault_caused_by_stopping_is_no_fault(bench):
    engine = bench.engine(bench.plan(1))

    def interrupted():
        engine._stop.set()
        raise InfrastructureError("oracle_died", "SIGINT")

    bench.profiler.on_evaluate = interrupted
    assert engine.turn(bench.plan(1).key(0)) == Skipped("the run was stopped during this turn", "stopped")
    engine.close()
    assert not (bench.folder / "faults").exists()


def test_what_could_not_be_stored_is_stored_at_the_end(bench, monkeypatch):
    save, full = bench.store.save, [True]

    def save_if_room(record, candidate):
        if full[0]:
            raise InfrastructureError("disk_full", "no space")
        save(record, candidate)

    monkeypatch.setattr(bench.store, "save", save_if_room)
    engine = bench.engine(bench.plan(2))
    for turn in range(2):
        with pytest.raises(InfrastructureError, match="no space"):
            engine.turn(bench.plan(2).key(turn))
    full[0] = False
    engine.close()
    assert [key.turn for key in bench.store.turn_keys()] == [0]
    assert len(bench.model.histories) == 1


def test_a_bug_reaches_whoever_waits(bench):
    bench.profiler.faults = [ZeroDivisionError("a bug")]
    engine = bench.engine(bench.plan(2))
    for turn in range(2):
        with pytest.raises(ZeroDivisionError):
            engine.turn(bench.plan(2).key(turn))
    engine.close()


def test_turns_that_ended_in_a_fault_took_their_time_too(bench):
    bench.profiler.faults = [InfrastructureError("oracle_died", "gone")] * 3
    meter = Meter()
    evaluator = Evaluator(lambda: bench.toolchain, 1)
    profilers = Profilers("local", lambda name: bench.profiler)
    runner = TrajectoryRunner(bench.store, evaluator, profilers, lambda: False, meter)
    runner.run(bench.plan(3), lambda key, resolution: None)
    assert meter.progress().worked == 3


def test_a_turn_outside_the_plan_is_refused(bench):
    engine = bench.engine(bench.plan(1))
    with pytest.raises(InputError, match=r"expected a turn of this run's plan"):
        engine.turn(bench.plan(2).key(1))
    with pytest.raises(InputError):
        engine.turn(bench.plan(1, case=suite_case("mha_bwd_d128")).key(0))
    engine.close()
