"""What must never reach a model: seeds, positions of checked iterations, paths, addresses, the judge's own messages."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.agent.feedback import MAX_CHARS
from ptxbench.models import PastTurn
from ptxbench.records import (
    CORRECTNESS_CALL,
    BuildStatus,
    Evidence,
    Finding,
    KernelLaunch,
    RunStatus,
    SafetyFinding,
)
from ptxbench.records.mismatch import AxisPattern, MismatchPattern, ResiduePattern, TilePattern
from ptxbench.verdict import judge
from tests.unit.agent.feedback.parts import GEMM_KERNEL, build_for, text_of
from tests.unit.factories import (
    make_call,
    make_comparison,
    make_evidence,
    make_record,
    make_run,
    make_safety,
    make_trial,
    suite_case,
)

SEED, ITERATION = 987_654_321_987, 7_177_717
PATH = "/home/secretuser/vault/ptxbench/oracle.py"
ADDRESS = "0x7f5ec2e75000"
PLANTED = (str(SEED), f"{SEED:,}", str(ITERATION), f"{ITERATION:,}", "secretuser", "vault", ADDRESS, "7f5ec2e75")

LONG = st.sampled_from(["", PATH, f"at {ADDRESS} in {PATH}", "x" * 5000, f"{PATH}\n" * 300, "word " * 1000])
COUNTS = st.integers(0, 58_720_256)


def patterns() -> st.SearchStrategy[MismatchPattern]:
    residues = st.none() | st.just(ResiduePattern(modulus=256, ranges=((0, 8), (16, 24), (64, 65), (99, 120))))

    def axis(size: int, residue: ResiduePattern | None) -> AxisPattern:
        return AxisPattern(
            size=size, touched=9, whole=3, nan=2, first=1, last=size - 2, residues=residue, slices=(0.1, 0.9) * 4
        )

    tiles = tuple(
        TilePattern(rows=r, columns=c, tiles=99, touched=9, whole=3, nan=1, first=(1, 2))
        for r, c in ((64, 64), (128, 128), (128, 256))
    )
    return st.builds(
        lambda residue, slope, correlation: MismatchPattern(
            axes=(axis(8192, residue), axis(7168, residue)),
            tiles=tiles,
            zeros=5,
            infinite=5,
            slope=slope,
            correlation=correlation,
            column_major=0.0,
        ),
        residues,
        st.none() | st.floats(-2, 2),
        st.none() | st.floats(-1, 1),
    )


@st.composite
def evidences(draw: st.DrawFn) -> Evidence:
    mismatched = draw(COUNTS)
    output = make_comparison(
        mismatched=mismatched,
        nan=draw(st.integers(0, mismatched)),
        first_mismatches=((8191, 7167),) * 8,
        where=draw(st.none() | patterns()),
        max_abs_error=draw(st.sampled_from([0.0, 1e30, 48.75, float("inf")])),
    )
    checks = tuple(
        make_call(
            iteration,
            outputs=(output if draw(st.booleans()) else make_comparison(),),
            inputs_intact=draw(st.booleans()),
            guards_intact=draw(st.booleans()),
        )
        for iteration in draw(st.sampled_from([(CORRECTNESS_CALL,), (CORRECTNESS_CALL, ITERATION)]))
    )
    trial = make_trial(seed=SEED, checks=checks, guards_intact=draw(st.booleans()))
    names = draw(st.lists(st.sampled_from([GEMM_KERNEL, "_Z7foreignv", "k" * 400]), max_size=30))
    launches = tuple(
        KernelLaunch(
            name=name,
            grid=(draw(st.integers(1, 1 << 20)), 1, 1),
            block=(draw(st.integers(1, 1024)), 1, 1),
            dynamic_smem_bytes=draw(st.integers(0, 232_448)),
            registers=draw(st.integers(1, 255)),
            launches_per_call=1.0,
        )
        for name in names
    )
    finding = SafetyFinding(
        kind=draw(LONG),
        message=f"at gemm(int)+0x90 in {PATH}:3\nby thread (0,0,0) in block (0,0,0)\n"
        f"Access to {ADDRESS} is out of bounds\n"
        f"and is 1 bytes after the nearest allocation at {ADDRESS} of size 117440512 bytes\n{draw(LONG)}",
        kernel=draw(st.sampled_from(["gemm(int)", PATH, "x" * 3000])),
        location=PATH,
    )
    run = make_run(
        status=draw(st.sampled_from(RunStatus)),
        stage=draw(st.sampled_from(["", "load", "check", "time", "drift"])),
        message=draw(LONG),
        error_code=draw(st.sampled_from([None, 0, 1, 700, 701, 719, -11, 424242])),
        output_tail=draw(LONG)[-2000:],
        trials=(trial,) * draw(st.integers(0, 3)),
        launches=launches,
    )
    safety = make_safety(findings=(finding,) * draw(st.integers(0, 20)), finding_count=draw(COUNTS), message=PATH)
    return make_evidence(run=run, safety=(safety,))


@st.composite
def turns(draw: st.DrawFn) -> PastTurn:
    evidence = draw(evidences())
    log = draw(LONG) + draw(
        st.sampled_from(["", f"kernel.cu(3): error: {PATH} at {ADDRESS}\n" * 50, f"ptxas fatal : {PATH}\n"])
    )
    finding = Finding(rule="x", message=draw(LONG), file=PATH, line=draw(st.none() | st.integers(0, 99)), excerpt=PATH)
    status = draw(st.sampled_from(BuildStatus))
    changes: dict[str, Any] = {"status": status, "log": log[:20_000]}
    if status is BuildStatus.SCREENED:
        changes["findings"] = (finding,) * draw(st.integers(0, 30))
    build = build_for(evidence, (GEMM_KERNEL,) * draw(st.integers(1, 9)), {"SYNCS": 3, "BAR": 2, "HGMMA": 1}, **changes)
    kept = evidence if status is BuildStatus.OK else None
    record = make_record(build=build, evidence=kept, verdict=judge(suite_case(), build, kept))
    return PastTurn(record, draw(st.sampled_from(["", "int x;\n" * 200, "y" * 100_000])))


@settings(max_examples=300)
@given(past=turns(), turns_left=st.integers(0, 7))
def test_nothing_planted_comes_out_and_the_budget_holds(past: PastTurn, turns_left: int) -> None:
    text = text_of(past, turns_left=turns_left)
    assert 0 < len(text) <= MAX_CHARS + 1
    for secret in PLANTED:
        assert secret not in text


@settings(max_examples=30)
@given(evidence=evidences())
def test_a_reader_cannot_tell_which_timed_iteration_was_compared(evidence: Evidence) -> None:
    def moved(iteration: int) -> str:
        trials = tuple(
            trial.model_copy(
                update={
                    "seed": SEED + iteration,
                    "checks": tuple(
                        call if call.iteration == CORRECTNESS_CALL else call.model_copy(update={"iteration": iteration})
                        for call in trial.checks
                    ),
                }
            )
            for trial in evidence.run.trials
        )
        changed = evidence.model_copy(update={"run": evidence.run.model_copy(update={"trials": trials})})
        build = build_for(changed, (GEMM_KERNEL,))
        return text_of(PastTurn(make_record(build=build, evidence=changed), "int x;"))

    assert moved(3) == moved(41)
