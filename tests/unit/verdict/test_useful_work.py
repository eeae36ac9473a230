from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.records import KernelLaunch, TurnRecord
from ptxbench.verdict import judge
from ptxbench.verdict.useful_work import counted_times, useful_share, warp_flops
from tests.unit.factories import HGMMA, ROOT, make_build, make_counts, make_evidence, make_instructions, suite_case

M, N, K = 8192, 7168, 5120
TILES = (M // 64) * (N // 256) * (K // 16)
"""HGMMA.64x256x16 instructions of a warpgroup that compute the GEMM once."""
ALL_THREADS = TILES * 4 * 32


def share(*counts: Any) -> float | None:
    return useful_share(suite_case(), counts)


def test_a_gemm_computed_once_by_wgmma_has_share_one() -> None:
    assert share(make_counts(HGMMA, ALL_THREADS)) == 1.0


def test_shapes_and_instructions_add_up() -> None:
    half = make_counts(HGMMA, ALL_THREADS // 2)
    other_half = make_counts("HGMMA.64x64x16.F32.BF16", ALL_THREADS * 2)
    assert share(half, other_half, make_counts("FFMA", 10**9), make_counts("UTMALDG.2D", 10**6)) == 1.0


def test_a_token_instruction_has_next_to_none() -> None:
    token = share(make_counts(HGMMA, 128))
    assert token is not None
    assert 0 < token < 1e-5


def test_matrix_instructions_of_older_architectures_are_not_the_targets() -> None:
    assert share(make_counts("HMMA.16816.F32.BF16", 10**9)) == 0.0
    assert share() == 0.0


def test_predicated_off_is_no_work() -> None:
    assert share(make_counts(HGMMA, 0)) == 0.0
    half = make_counts(HGMMA, ALL_THREADS // 2).model_copy(update={"inst_executed": ALL_THREADS // 32})
    assert share(half) == 0.5


def launch(name: str, threads: int, per_call: float = 1.0) -> KernelLaunch:
    grid = (threads // 128, 1, 1)
    return KernelLaunch(
        name=name, grid=grid, block=(128, 1, 1), dynamic_smem_bytes=0, registers=168, launches_per_call=per_call
    )


@pytest.mark.parametrize(("times", "found"), [(1, 1.0), (2, 1.0), (3, 1.0), (0, 1.0), (0.5, 1.0)])
def test_what_a_report_counts_more_than_once_is_work_of_one_call(times: float, found: float) -> None:
    """Seen on an H200: every thread of a call twice. Fewer threads than were launched make no share larger."""
    done = make_counts(HGMMA, int(ALL_THREADS * max(1, times)))
    exits = make_counts("EXIT", int(1280 * times))
    assert useful_share(suite_case(), [done, exits], [launch(done.kernel, 1280)]) == found


def test_each_kernel_has_a_count_of_its_own() -> None:
    one = make_counts(HGMMA, ALL_THREADS)
    other = one.model_copy(update={"kernel": "other", "thread_inst_executed_true": ALL_THREADS // 2})
    exits = make_counts("EXIT", 2 * 1280)
    launches = [launch(one.kernel, 1280, 0.5), launch(one.kernel, 640), launch("other", 1280)]
    assert useful_share(suite_case(), [one, other, exits], launches) == 1.0
    assert useful_share(suite_case(), [one, other, exits], []) == 1.5


@pytest.mark.parametrize("opcode", ["HGMMA", "HGMMA.SP.64x64x32.F32", "HGMMA.64x64x32.F32.SP", "HGMMA.16x64x16"])
def test_one_uncountable_instruction_makes_the_share_unknown(opcode: str) -> None:
    assert share(make_counts(HGMMA, 128), make_counts(opcode, 128)) is None
    assert share(make_counts(HGMMA, ALL_THREADS), make_counts(opcode, 0)) == 1.0


def test_blackwell_is_not_countable() -> None:
    assert useful_share(suite_case(arch="b200"), [make_counts("UTCHMMA", 128)]) is None


@given(st.integers(1, 32).map(lambda n: 8 * n), st.sampled_from([8, 16, 32, 256]), st.sampled_from("HQIB"))
def test_work_of_a_warp_is_a_quarter_of_the_warpgroups(n: int, k: int, kind: str) -> None:
    assert warp_flops(f"{kind}GMMA.64x{n}x{k}.F32.BF16.gdesc") == 2 * 16 * n * k


@given(st.text(max_size=30))
def test_no_text_breaks_the_parser(opcode: str) -> None:
    assert warp_flops(opcode) is None or "GMMA" in opcode


def test_the_verdict_carries_it_only_where_the_counts_are_trusted() -> None:
    counts = make_counts(HGMMA, ALL_THREADS)
    good = make_evidence(instructions=make_instructions(counts))
    assert judge(suite_case(), make_build(), good).useful_share == 1.0
    odd = make_evidence(instructions=make_instructions(counts, outputs_match=False))
    assert judge(suite_case(), make_build(), odd).useful_share is None
    assert judge(suite_case(), make_build({"FFMA": 1}), good).useful_share is None


def test_every_stored_report_counts_each_thread_once_or_twice() -> None:
    """And once where a call has one kernel. Any other number would mean that ``EXIT`` tells something else."""
    times = {True: set[float](), False: set[float]()}
    for path in (ROOT / "generated").glob("examples/*/turns/*/turn*.json"):
        evidence = TurnRecord.model_validate_json(path.read_bytes()).evidence
        if evidence is not None and evidence.run.launches:
            found = counted_times(evidence.instructions.counts, evidence.run.launches)
            times[len(evidence.run.launches) > 1] |= set(found.values())
    assert times == {True: {1.0, 2.0}, False: {1.0}}
