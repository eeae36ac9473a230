"""What an evaluation leaves as evidence: a real recorder and loop, without CUDA, and a state without a device."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("torch")

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import disturbances, evaluation, hang
from ptxbench.profiler import worker as worker_module
from ptxbench.profiler.evaluation import _Attempt, choose_checks
from ptxbench.profiler.procedure import Stopwatch
from ptxbench.profiler.state import TIMED_CHECKS
from ptxbench.profiler.worker import Worker
from ptxbench.records import (
    BaselineMeasurement,
    CheckedCall,
    Disturbance,
    DisturbanceKind,
    OutputComparison,
    RunEvidence,
    RunStatus,
    WaitingPlace,
)
from tests.unit.profiler.stand_in import READY, Start
from tests.unit.profiler.test_device_memory import NO_MEMORY
from tests.unit.profiler.test_mappings import extension

TRIALS, WARMUP, ITERATIONS = 3, 2, 6
CALLS_OF_A_TRIAL = 1 + WARMUP + ITERATIONS
JOB = {"so_path": struct.__file__}
"""Any file: nothing of it is loaded."""
BASELINE = BaselineMeasurement(library="l", version="1", call="c", span_ns=(1000,), overhead_ns=0)
CONNECT = "channel = Connection(int(sys.argv[-1]))\nsay, hear = channel.send_bytes, channel.recv_bytes\n"
LOADED = "import sandbox\nanswers = sandbox.Answers(channel, json.loads(hear()))\nanswers.done()\n"
# The real recorder and the real loop of the sandbox; only CUDA and CUPTI are told by hand.
SANDBOX = """
import types
import sandbox
bindings = types.ModuleType("cuda.bindings")
bindings.runtime = types.SimpleNamespace(cudaDeviceSynchronize=lambda: (0,))
sys.modules["cuda"], sys.modules["cuda.bindings"] = types.ModuleType("cuda"), bindings

class Fed(sandbox.Cupti):
    def __init__(self):
        self.waiting = []
    def now(self):
        return time.monotonic_ns()
    def take(self):
        taken, self.waiting = self.waiting, []
        return taken

fed, recorder, calls = Fed(), None, 0
def call():
    global calls
    calls += 1
    for name in kernels_of(calls):
        start = fed.now()
        fed.waiting.append((start, start + 1000, (name, (1, 1, 1), (128, 1, 1), 0, 32)))
recorder = sandbox.Recorder(fed)
def loaded():
    return {"modules": [], "entry_points": [], "lookups": [], "calls": [], "fault": ""}
sandbox.serve_calls(channel, call, recorder, answers, operations={"collect": collect, "loaded": loaded})
"""


def candidate(kernels_of: str, collect: str = "return recorder.collect()") -> str:
    return f"{CONNECT}{READY}{LOADED}def kernels_of(call):\n    {kernels_of}\ndef collect():\n    {collect}\n{SANDBOX}"


def checked(iteration: int, mismatched: int = 0) -> CheckedCall:
    output = OutputComparison(
        name="C", shape=(8,), dtype="bfloat16", elements=8, atol=1e-2, rtol=1e-2, mismatched=mismatched, nan=0,
        max_abs_error=0.0, max_rel_error=0.0, rms_error=0.0, rms_reference=1.0,
    )  # fmt: skip
    return CheckedCall(iteration=iteration, outputs=(output,), inputs_intact=True, guards_intact=True)


def stand_ins(
    take: Callable[[], Worker],
    check: Callable[[int], CheckedCall] = checked,
    done: Callable[[str], None] = lambda _: None,
    families: tuple[str, ...] = (),
    drift: Callable[..., tuple[int, ...]] = lambda *_: (1000,),
) -> tuple[Any, Any]:
    """A workload's state without a device; spares and baselines in one, which do no more than they are told."""
    nothing = SimpleNamespace(arm=lambda: None, scrub=lambda: None, forget=lambda: None, draw=lambda: "fresh")
    nothing.take, nothing.retire, nothing.drift = take, lambda _: done("retire"), drift
    nothing.reap, nothing.settle = partial(done, "reap"), partial(done, "settle")
    nothing.warm = lambda *, beside_candidate: done("warm") if beside_candidate else None
    case = SimpleNamespace(trials=TRIALS, warmup=WARMUP, iterations=ITERATIONS, input_recipe="normal")
    state = SimpleNamespace(
        case=case, seed=1, arena=nothing, source=nothing, checked=list(range(TRIALS * (1 + TIMED_CHECKS))),
        families=[SimpleNamespace(draw=SimpleNamespace(family=family)) for family in families],
        stage=lambda _: None, stage_fresh=lambda _: None, guards_intact=lambda: True,
        compare=lambda _, iteration: check(iteration), baseline=BASELINE,
    )  # fmt: skip
    return state, nothing


def evidence_of(start: Start, program: str, *arguments: Any, **named: Any) -> RunEvidence:
    """Of one attempt; the other arguments are those of ``stand_ins``."""
    worker = start(program)
    worker.wait_ready()
    state, nothing = stand_ins(lambda: worker, *arguments, **named)
    attempt = _Attempt(state, BASELINE, nothing, Stopwatch())
    return attempt.run(dict(JOB), nothing)


def names(evidence: RunEvidence) -> list[str]:
    return [launch.name for launch in evidence.launches]


def test_an_honest_candidate_has_three_timings(start: Start) -> None:
    evidence = evidence_of(start, candidate('return ["_Z4workv"]'))
    assert evidence.status is RunStatus.COMPLETED
    assert [len(trial.timing.span_ns) for trial in evidence.trials if trial.timing] == [ITERATIONS] * TRIALS
    assert names(evidence) == ["_Z4workv"]


@pytest.mark.parametrize("decoyed", ["call == 1", f"call % {CALLS_OF_A_TRIAL} == 1"])
def test_a_kernel_of_the_correctness_calls_alone_did_not_run_when_timed(start: Start, decoyed: str) -> None:
    """Nsight Compute sees the first call of a process. A kernel with target instructions that runs only there, beside
    the one that does the work, must not look as if it ran in timed iterations (docs/verdict-rules.md)."""
    evidence = evidence_of(start, candidate(f'return (["_Z5decoyv"] if {decoyed} else []) + ["_Z4workv"]'))
    assert evidence.status is RunStatus.COMPLETED
    assert names(evidence) == ["_Z4workv"]
    assert evidence.launches[0].launches_per_call == 1.0


@pytest.mark.parametrize("collect", ["os._exit(3)", "return {}"])
def test_a_failed_check_stays_the_reason_when_no_recording_can_be_had(start: Start, collect: str) -> None:
    """The trials alone decide the verdict then; ``RunStatus.CRASHED`` would make a runtime error of a wrong result."""
    evidence = evidence_of(
        start, candidate('return ["_Z4workv"]', collect), lambda iteration: checked(iteration, mismatched=8)
    )
    assert [check.outputs[0].mismatched for trial in evidence.trials for check in trial.checks] == [8]
    assert evidence.status is RunStatus.COMPLETED


def test_what_the_last_candidate_left_in_shared_memory_is_gone_before_the_next_maps_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Initializers of its object run with the memory mapped: they would find results of a family's draw, right ones of
    another candidate, or what an earlier life of this one has written down of the checked draws."""
    done: list[str] = []
    load = Worker.load

    def loading(worker: Worker, *arguments: Any) -> None:
        done.append("load")
        load(worker, *arguments)

    monkeypatch.setattr(Worker, "load", loading)
    worker = start(candidate('return ["_Z4workv"]'))
    worker.wait_ready()
    state, nothing = stand_ins(lambda: worker, done=done.append)
    state.arena.scrub = partial(done.append, "scrub")
    _Attempt(state, BASELINE, nothing, Stopwatch()).run(dict(JOB), nothing)
    assert done[:3] == ["settle", "scrub", "load"], "behind the end of the last process"
    assert done.count("scrub") == 1


def test_kernels_that_ran_before_a_crash_are_told(start: Start) -> None:
    """Feedback on a hang says of an empty list that no call had ended before."""
    ended = f'os._exit(3) if call > {2 * CALLS_OF_A_TRIAL} else None; return ["_Z4workv"]'
    evidence = evidence_of(start, candidate(ended))
    assert (evidence.status, len(evidence.trials)) == (RunStatus.CRASHED, 2)
    assert names(evidence) == ["_Z4workv"]


@pytest.mark.parametrize(("endless", "stage"), [("call == 1", "check"), ("call > 1", "time"), ("False", "")])
def test_an_endless_call_is_located_once_its_process_is_ended(
    start: Start, monkeypatch: pytest.MonkeyPatch, endless: str, stage: str
) -> None:
    place = WaitingPlace(kernel="k", offset=16, threads=1, blocks=1, block=(0, 0, 0), thread=(0, 0, 0))
    seen: list[list[str]] = []
    done: list[str] = []

    def look_again(state: Any, job: dict[str, Any]) -> hang.Waiting:
        seen.append([*done, str(job)])
        return hang.Waiting((place,))

    monkeypatch.setattr(evaluation, "look_again", look_again)
    monkeypatch.setattr(worker_module.Worker.finish_call, "__defaults__", (0.5,))
    monkeypatch.setattr(worker_module.Worker.warm_up, "__defaults__", (0.5,))
    program = candidate(f'time.sleep(60) if {endless} else None; return ["_Z4workv"]')
    evidence = evidence_of(start, program, done=done.append)
    assert evidence.stage == stage
    assert seen == ([["settle", "retire", "reap", str(JOB)]] if stage else [])
    assert evidence.waiting == ((place,) if stage else ())
    assert evidence.status is (RunStatus.TIMEOUT if stage else RunStatus.COMPLETED)


def test_calls_that_every_candidate_knows_to_be_checked_do_not_betray_later_checks() -> None:
    """The first call of a trial is always checked, so its inputs are known to be a checked draw. A candidate that keeps
    a few of their bytes in a file must not meet them at a secretly checked iteration of a later evaluation."""
    case = SimpleNamespace(trials=3, iterations=50)
    state = cast(Any, SimpleNamespace(case=case, checked=list(range(3 * (1 + TIMED_CHECKS)))))
    known: set[Any] = set()
    for _ in range(20):
        chosen = choose_checks(state)
        met = {draw for _, timed in chosen for draw in timed.values()} & known
        assert not met
        known |= {first for first, _ in chosen}


def test_every_family_has_one_checked_call_behind_the_trials(start: Start) -> None:
    evidence = evidence_of(start, candidate('return ["_Z4workv"]'), families=("shifted", "spiky"))
    assert [check.family for check in evidence.families] == ["shifted", "spiky"]
    assert all(check.call is not None and check.message == "" for check in evidence.families)
    assert evidence.status is RunStatus.COMPLETED


def test_a_family_is_not_tried_on_a_candidate_that_failed(start: Start) -> None:
    evidence = evidence_of(
        start,
        candidate('return ["_Z4workv"]'),
        lambda iteration: checked(iteration, mismatched=8),
        families=("shifted",),
    )
    assert evidence.families == ()


def test_a_crash_on_a_family_leaves_the_trials_as_they_are(start: Start) -> None:
    last = TRIALS * CALLS_OF_A_TRIAL
    evidence = evidence_of(
        start, candidate(f'os._exit(3) if call > {last} else 0; return ["_Z4workv"]'), families=("shifted", "spiky")
    )
    assert evidence.status is RunStatus.COMPLETED
    assert len(evidence.trials) == TRIALS
    assert [(check.family, check.call) for check in evidence.families] == [("shifted", None)]
    assert "exited with code 3" in evidence.families[0].message


@pytest.mark.parametrize("words", NO_MEMORY)
@pytest.mark.parametrize("at", ["trial", "family"])
def test_a_candidate_that_takes_all_memory_is_to_blame_however_that_is_said(start: Start, words: str, at: str) -> None:
    """As a fault of ours its turn would be excluded, and a wrong kernel had better fill the device."""
    calls: list[int] = []

    def compare(iteration: int) -> CheckedCall:
        calls.append(iteration)
        if len(calls) == (1 if at == "trial" else TRIALS * (1 + TIMED_CHECKS) + 1):
            raise RuntimeError(words)
        return checked(iteration)

    evidence = evidence_of(start, candidate('return ["_Z4workv"]'), compare, families=("shifted",))
    found = evidence.message if at == "trial" else evidence.families[0].message
    assert words.partition(chr(10))[0] in found
    assert evidence.status is (RunStatus.RUNTIME_ERROR if at == "trial" else RunStatus.COMPLETED)


@pytest.mark.parametrize("at", [1, TRIALS * (1 + TIMED_CHECKS) + 1])
def test_another_error_of_ours_stays_one(start: Start, at: int) -> None:
    calls: list[int] = []

    def compare(iteration: int) -> CheckedCall:
        calls.append(iteration)
        if len(calls) == at:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return checked(iteration)

    with pytest.raises(RuntimeError, match="illegal"):
        evidence_of(start, candidate('return ["_Z4workv"]'), compare, families=("shifted",))


def test_the_library_is_timed_between_the_trials(start: Start) -> None:
    readings: list[tuple[int, ...]] = []

    def drift(state: Any, iterations: int) -> tuple[int, ...]:
        readings.append((1000 + len(readings),) * iterations)
        return readings[-1]

    evidence = evidence_of(start, candidate('return ["_Z4workv"]'), drift=drift, families=("shifted",))
    assert evidence.baseline is not None
    assert evidence.baseline.drift_span_ns == (1000, 1001, 1002)


@pytest.mark.parametrize("fails", [False, True])
def test_where_the_library_was_disturbed_it_is_timed_again_alone(start: Start, fails: bool) -> None:
    done: list[str] = []

    def drift(state: Any, iterations: int) -> tuple[int, ...]:
        if "retire" in done:
            return (1010,) * iterations
        if fails:
            raise InfrastructureError("baseline_unavailable", "it failed beside the candidate")
        return (1500,) * iterations

    evidence = evidence_of(start, candidate('return ["_Z4workv"]'), drift=drift, done=done.append)
    assert done == ["settle", "warm", "retire", "settle", "retire"], "nothing is timed beside a context's creation"
    assert evidence.baseline is not None
    assert evidence.baseline.drift_span_ns == (1010,) * 3
    assert evidence.status is RunStatus.COMPLETED


def test_contexts_are_created_ahead_behind_the_last_timed_call(start: Start) -> None:
    done: list[str] = []

    def drift(state: Any, iterations: int) -> tuple[int, ...]:
        done.append("time the library")
        return (1000,) * iterations

    def check(iteration: int) -> CheckedCall:
        done.append("check")
        return checked(iteration)

    evidence = evidence_of(start, candidate('return ["_Z4workv"]'), check, done.append, ("shifted",), drift)
    assert evidence.status is RunStatus.COMPLETED
    at = done.index("warm")
    assert done.count("warm") == 1
    assert done[:at].count("time the library") == TRIALS
    assert done[at + 1 :] == ["check", "retire"], "the family's call, which nobody times"


def test_no_context_is_created_ahead_beside_trials_that_are_not_all_run(start: Start) -> None:
    done: list[str] = []
    evidence_of(start, candidate('return ["_Z4workv"]'), lambda at: checked(at, mismatched=8), done.append)
    assert done == ["settle", "retire"]


def test_a_sandbox_that_cannot_be_had_ready_ahead_is_no_fault_of_the_candidate(start: Start) -> None:
    def done(step: str) -> None:
        if step == "warm":
            raise InfrastructureError("sandbox_failed", "a worker process did not start")

    evidence = evidence_of(start, candidate('return ["_Z4workv"]'), done=done, families=("shifted",))
    assert (evidence.status, len(evidence.families)) == (RunStatus.COMPLETED, 1)


def test_what_was_loaded_is_looked_at_behind_the_trials(start: Start) -> None:
    evidence = evidence_of(start, candidate('return ["_Z4workv"]'))
    assert evidence.loaded is not None
    assert all(library.allowed for library in evidence.loaded.libraries)  # imports of the stand-in
    assert not evidence.loaded.hidden
    failed = evidence_of(start, candidate('return ["_Z4workv"]'), lambda iteration: checked(iteration, mismatched=8))
    assert failed.loaded is None


def test_a_library_that_a_call_maps_is_seen(start: Start, tmp_path: Path) -> None:
    library = shutil.copy(extension(), tmp_path / "libother.so")
    program = candidate(f'import ctypes; call == 20 and ctypes.CDLL({str(library)!r}); return ["_Z4workv"]')
    evidence = evidence_of(start, program)
    assert evidence.loaded is not None
    assert [(found.path, found.allowed) for found in evidence.loaded.libraries if not found.allowed] == [
        (str(library), False)
    ]


DISTURBED = Disturbance(kind=DisturbanceKind.THROTTLED, message="hardware slowdown", when="during")
REMARK = Disturbance(kind=DisturbanceKind.CLOCK_CHANGED, message="other clocks", when="during")


@pytest.mark.parametrize(
    ("found", "attempts"),
    [
        ([(), ()], 1),
        ([(REMARK,), ()], 1),
        ([(DISTURBED,), ()], 2),
        ([(DISTURBED,), (DISTURBED, REMARK)], 2),
    ],
)
def test_a_disturbed_evaluation_is_repeated_once(
    start: Start, monkeypatch: pytest.MonkeyPatch, found: list[tuple[Disturbance, ...]], attempts: int
) -> None:
    """The library is measured anew for the repetition: it may have been disturbed as well."""
    workers: list[Worker] = []

    def take() -> Worker:
        workers.append(start(candidate('return ["_Z4workv"]')))
        workers[-1].wait_ready()
        return workers[-1]

    state, nothing = stand_ins(take)
    measured: list[int] = []

    def measure(_: Any, overhead_ns: int) -> BaselineMeasurement:
        measured.append(overhead_ns)
        return BASELINE

    nothing.measure = measure
    monkeypatch.setattr(evaluation, "hand_over_ns", lambda *_: 7)
    monkeypatch.setattr(disturbances, "read", lambda: None)
    answers = iter(found)
    monkeypatch.setattr(disturbances, "since", lambda before, trials: next(answers))
    evidence = evaluation.evaluate(state, dict(JOB), nothing, nothing, cached=True)
    assert len(workers) == attempts
    assert len(measured) == attempts - 1
    assert evidence.disturbances == found[attempts - 1]
    assert (state.baseline is None) == (DISTURBED in evidence.disturbances)
    assert len(evidence.trials) == TRIALS
