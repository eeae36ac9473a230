"""What is said of each kind of outcome, over the evidence that was measured on an H200."""

from statistics import median

import pytest

from ptxbench.agent.feedback import MAX_CHARS
from ptxbench.models import PastTurn
from ptxbench.records import BuildStatus, Finding, InfrastructureFault, KernelLaunch, Outcome, RunStatus
from ptxbench.verdict import judge, judge_extraction_error, judge_infrastructure
from tests.fixtures.kernels import expected, load
from tests.unit.agent.feedback.parts import build_for, stored_evidence, stored_turn, text_of, with_record
from tests.unit.factories import make_record, suite_case, unbuilt

MEASURED = [name for name, wanted in expected().items() if wanted.needs_gpu]
OUTCOMES = {name: wanted.outcome for name, wanted in expected().items()}


@pytest.mark.parametrize("name", MEASURED)
def test_a_measured_turn_keeps_its_outcome_and_the_budget(name: str) -> None:
    past = stored_turn(name)
    assert past.record.verdict.outcome is OUTCOMES[name]
    text = text_of(past)
    assert 200 < len(text) <= MAX_CHARS
    assert "5 turns are left" in text
    assert "1.2x" in text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("generic_gemm", ["x the speed of cublas", "No target instruction is in the object", "% of the roofline"]),
        ("generic_gemm", ["grid 3584x1x1, block 128x1x1, 208 registers", "2 blocks (8 warps, 12.5%) per SM"]),
        ("generic_gemm", ["HMMA (mma.sync) has a lower ceiling", "98,304 dynamic bytes"]),
        ("wrong_result", ["of 58,720,256 elements (94.", "relative 0.11", "very first call", "Every tile"]),
        ("wrong_result", ["about 64 of the 5,120 terms along K", "in row-major order, are at (0, "]),
        ("partial_write", ["7,168 of 58,720,256 elements (0.012%)", "all of them are NaN", "(8191, 0)"]),
        ("prints_pass", ["all 58,720,256 elements are NaN", "Elements that nobody writes"]),
        ("stale_output", ["wrong in a timed iteration", "State that outlives a call"]),
        ("memoize_pointer", ["wrong in a timed iteration", "other data at the same addresses"]),
        ("modifies_input", ["changes one of its inputs"]),
        ("oob_write", ["Invalid __global__ write of size 16 bytes in kernel write_past_end", "byte 0x90"]),
        ("oob_write", ["right behind the end of an allocation of 117,440,512 bytes (the size of C)"]),
        (
            "oob_write",
            ["next to a buffer of an argument, outside of it, were overwritten", "outputs themselves were right"],
        ),
        ("oob_read", ["Invalid __global__ read of size 16 bytes in kernel read_past_end", "(the size of A)"]),
        ("use_after_free", ["kernel increment", "nowhere near any buffer", "freed before the kernel ends"]),
        ("endless", ["no answer within 10 s", "the first call of trial 1", "wait_for_ever"]),
        ("illegal_address", ["cudaErrorIllegalAddress (700)", "Access to 0x10 is out of bounds", "kernel store"]),
        ("throws", ["this kernel does not support M = 8192", "your own code's"]),
        ("wrong_arity", ["Mismatched number of arguments", "in this order: A, B, C"]),
        ("host_crash", ["SIGSEGV", "The host code died"]),
        ("exits", ["the process exited with code 0", "the process that called it died"]),
    ],
)
def test_the_facts_are_named(name: str, said: list[str]) -> None:
    text = text_of(stored_turn(name))
    for words in said:
        assert words in text


def test_what_the_harness_prints_on_a_crash_is_not_the_candidates() -> None:
    assert "PyObject" not in text_of(stored_turn("host_crash"))


def test_what_the_candidate_printed_is_quoted_at_the_end_of_an_error() -> None:
    evidence = stored_evidence("throws")
    run = evidence.run.model_copy(update={"output_tail": "tile = 7\nsaw /home/someone/secret.txt at 0x7f0000001234\n"})
    text = text_of(stored_turn("throws", evidence=evidence.model_copy(update={"run": run})))
    assert "tile = 7" in text
    assert "saw secret.txt at <address>" in text


@pytest.mark.parametrize(
    ("stage", "trials", "said"),
    [
        ("load", 0, "while the object was being loaded"),
        ("check", 1, "the first call of trial 2"),
        ("time", 2, "the warm-up or timed calls of trial 3"),
    ],
)
def test_a_hang_is_placed_by_stage_and_trial(stage: str, trials: int, said: str) -> None:
    evidence = stored_evidence("generic_gemm")
    run = evidence.run.model_copy(
        update={"status": RunStatus.TIMEOUT, "stage": stage, "trials": evidence.run.trials[:trials], "message": "late"}
    )
    text = text_of(stored_turn("generic_gemm", evidence=evidence.model_copy(update={"run": run})))
    assert said in text
    assert ("earlier calls: gemm" in text) == bool(evidence.run.launches)


def test_a_hang_with_barriers_names_them_and_their_lines() -> None:
    held = {"SYNCS": 15, "UTMALDG": 2, "USETMAXREG": 2, "UCGABAR_WAIT": 2, "BAR": 8, "HGMMA": 4}
    past = stored_turn("endless", opcodes=held)
    source = 'asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;");\nasm("setmaxnreg.inc.sync.aligned.u32 232;");\n'
    text = text_of(past._replace(source=source))
    assert "mbarrier operations 15, TMA loads 2" in text
    assert "initialized at line 1" in text
    assert "setmaxnreg (inc 232)" in text
    assert "no block may exit early" in text
    assert "expect_tx must name exactly the bytes" in text


def test_a_refused_launch_names_what_the_kernels_allow() -> None:
    evidence = stored_evidence("illegal_address")
    run = evidence.run.model_copy(update={"error_code": 701, "message": "cudaErrorLaunchOutOfResources (701)"})
    text = text_of(stored_turn("illegal_address", evidence=evidence.model_copy(update={"run": run, "safety": ()})))
    assert "208 registers, so at most 256 threads per block" in text
    assert "232,448 bytes of dynamic shared memory" in text


def test_wrong_shape_names_both() -> None:
    evidence = stored_evidence("wrong_result")
    (trial,) = evidence.run.trials
    (call,) = trial.checks
    output = call.outputs[0].model_copy(update={"shape": (7168, 8192)})
    trial = trial.model_copy(update={"checks": (call.model_copy(update={"outputs": (output,)}),)})
    evidence = evidence.model_copy(update={"run": evidence.run.model_copy(update={"trials": (trial,)})})
    text = text_of(stored_turn("wrong_result", evidence=evidence))
    assert "expected shape (8192, 7168) and type bfloat16, found (7168, 8192) and bfloat16" in text


def test_a_later_trial_that_is_wrong_first_speaks_of_the_earlier_ones() -> None:
    good, bad = stored_evidence("generic_gemm"), stored_evidence("wrong_result")
    run = good.run.model_copy(update={"trials": (good.run.trials[0], bad.run.trials[0])})
    text = text_of(stored_turn("generic_gemm", evidence=good.model_copy(update={"run": run})))
    assert "the first call of trial 2 of 3; those before it were right" in text


def test_a_foreign_kernel_is_named() -> None:
    evidence = stored_evidence("generic_gemm")
    launch = KernelLaunch(
        name="_Z16ampere_bf16_gemmv",
        grid=(1, 1, 1),
        block=(1, 1, 1),
        dynamic_smem_bytes=0,
        registers=1,
        launches_per_call=1.0,
    )
    evidence = evidence.model_copy(update={"run": evidence.run.model_copy(update={"launches": (launch,)})})
    build = build_for(evidence, ("_Z4gemmPK13__nv_bfloat16S1_PS_i",))
    case = suite_case()
    record = make_record(build=build, evidence=evidence, verdict=judge(case, build, evidence))
    assert record.verdict.outcome is Outcome.SCREENED
    assert "does not define: ampere_bf16_gemm" in text_of(PastTurn(record, "x"))


def test_a_screened_source_is_quoted() -> None:
    finding = Finding(
        rule="library-header", message="includes cublas_v2.h, a header of cuBLAS", file="kernel.cu", line=6
    )
    build = unbuilt(BuildStatus.SCREENED, findings=(finding,) * 9)
    record = make_record(build=build, evidence=None)
    text = text_of(PastTurn(record, load("cublas_include")))
    assert "includes cublas_v2.h, a header of cuBLAS (line 6)\n" in text
    assert "6 | #include <cublas_v2.h>" in text
    assert "3 more findings" in text


def test_an_answer_without_code_gets_the_reason() -> None:
    record = make_record(build=None, evidence=None, verdict=judge_extraction_error("the block is not closed"))
    text = text_of(PastTurn(record, None))
    assert "No kernel was found" in text
    assert "the block is not closed" in text


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.INFRASTRUCTURE_ERROR])
def test_faults_of_the_machinery_are_not_shown(outcome: Outcome) -> None:
    fault = InfrastructureFault(kind="oracle_died", message="/opt/x died with XID 79")
    record = make_record(build=None, evidence=None, verdict=judge_infrastructure(fault), fault=fault)
    record = record.model_copy(update={"verdict": record.verdict.model_copy(update={"outcome": outcome})})
    text = text_of(PastTurn(record, "x"))
    assert "This says nothing about the kernel" in text
    assert "XID" not in text
    assert "oracle" not in text


@pytest.mark.parametrize(("left", "said"), [(0, "No turn is left"), (1, "1 turn is left"), (7, "7 turns are left")])
def test_turns_left(left: int, said: str) -> None:
    assert said in text_of(stored_turn("wrong_result"), turns_left=left)


def test_the_goal_has_a_time_where_the_library_was_measured() -> None:
    past = stored_turn("wrong_result")
    evidence = past.record.evidence
    assert evidence is not None
    assert evidence.run.baseline is not None
    library_ms = median(evidence.run.baseline.span_ns) / 1e6
    assert f"{library_ms:.4f} ms here: so at most {library_ms / 1.2:.4f} ms" in text_of(past)
    record = make_record(build=unbuilt(BuildStatus.COMPILE_ERROR, log="kernel.cu(1): error: no\n"), evidence=None)
    assert "ms here" not in text_of(PastTurn(record, "x"))


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("stray_activity", "started outside the calls"),
        ("clock_disagreement", "a clock outside your process"),
        ("implausible", "physically"),
        ("low_precision", "accumulate in FP32"),
        ("a_flag_of_tomorrow", "Flag a_flag_of_tomorrow"),
    ],
)
def test_flags_are_explained(flag: str, said: str) -> None:
    past = stored_turn("generic_gemm")
    verdict = past.record.verdict.model_copy(update={"flags": (flag,), "speedup": None})
    text = text_of(with_record(past, verdict=verdict))
    assert said in text
    assert "does not count as it is" in text


def test_remarks_of_ptxas_explain_a_slow_kernel() -> None:
    log = "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to tell.\n"
    text = text_of(stored_turn("generic_gemm", log=log)._replace(source='a\n asm("setmaxnreg.inc.sync 232;");\n'))
    assert "(C7508) Potential Performance Loss: 'setmaxnreg' ignored" in text
    assert '2 |  asm("setmaxnreg.inc.sync 232;");' in text
