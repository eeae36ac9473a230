"""What holds a correct kernel back is said where the facts show it, and only there."""

from typing import Any

import pytest

from ptxbench.models import PastTurn
from ptxbench.records import POWER_LIMIT, ClockSample, KernelResources
from tests.unit.agent.feedback.parts import text_of
from tests.unit.factories import (
    KERNEL,
    make_build,
    make_counts,
    make_evidence,
    make_instructions,
    make_record,
    make_run,
    make_trial,
)


def said(
    *, launch: dict[str, Any] | None = None, spills: int = 0, opcodes: dict[str, int] | None = None, **run: Any
) -> str:
    resources = KernelResources(
        kernel=KERNEL,
        registers=168,
        stack_bytes=0,
        spill_store_bytes=spills,
        spill_load_bytes=0,
        static_smem_bytes=1024,
        barriers=1,
    )
    measured = make_run(**run)
    launches = tuple(each.model_copy(update=launch or {}) for each in measured.launches)
    evidence = make_evidence(
        run=measured.model_copy(update={"launches": launches}),
        instructions=make_instructions(make_counts(threads=32 * 4_587_520)),
    )
    record = make_record(build=make_build(opcodes, resources=(resources,)), evidence=evidence)
    return text_of(PastTurn(record, "x"))


def test_a_good_kernel_is_told_what_its_tensor_cores_do() -> None:
    text = said()
    assert "HGMMA.64x256x16.F32.BF16 4,587,520" in text
    assert "do 1.00 times the FLOPs" in text
    assert "would take 70.2% of the latency; the workload's FLOPs would take 75.9% of the library's. The clock" in text
    assert "1,024 static + 196,608 dynamic bytes; 1 block (12 warps, 18.8%) per SM" in text
    for word in ("spills ", "waves", "stay idle", "LDG)"):
        assert word not in text


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        ({"grid": (100, 1, 1)}, "100 blocks for 132 SMs: 32 SMs stay idle"),
        ({"grid": (140, 1, 1)}, "1.06 waves of 132 blocks"),
        ({"block": (128, 1, 1)}, "only 4 warps on an SM, bounded by shared memory"),
    ],
)
def test_the_launch(launch: dict[str, Any], words: str) -> None:
    assert words in said(launch=launch)


def test_only_what_the_object_shows_no_sign_of_is_advised() -> None:
    opcodes = {"HGMMA": 4, "UTMALDG": 8, "USETMAXREG": 2}
    assert "no sign of: multicast of shared tiles in a cluster; TMA stores." in said(opcodes=opcodes)
    assert "no sign of: warps that only load, with setmaxnreg; two or more" in said(
        opcodes={"HGMMA": 4, "UTMALDG": 8}, launch={"block": (128, 1, 1), "grid": (1320, 1, 1)}
    )


def test_what_wgmma_needs_is_no_advice_for_other_instructions() -> None:
    assert "no sign of" not in said(opcodes={"UTCHMMA": 4, "UTMALDG": 8})


def test_configurations_of_one_kernel_are_not_told_twice_nor_taken_for_idle_sms() -> None:
    (launch,) = make_run().launches
    launches = tuple(launch.model_copy(update={"grid": (blocks, 1, 1)}) for blocks in (120, 12))
    text = said(launch={}, spills=56, launches=launches)
    assert text.count("spills 56 bytes per thread") == 1
    assert "stay idle" not in text
    assert "waves" not in text


def clocked(*clocks: ClockSample | None) -> str:
    return said(trials=tuple(make_trial(clock=clock) for clock in clocks))


def test_the_clock_that_was_measured_gives_the_share_that_counts() -> None:
    low, middle = (
        ClockSample(sm_mhz=1_400, limited_by=(POWER_LIMIT,)),
        ClockSample(sm_mhz=1_500, limited_by=(POWER_LIMIT,)),
    )
    text = clocked(low, ClockSample(sm_mhz=1_700), middle)
    assert "SM clock by NVML right behind the timed calls: 1,500 MHz of 1,980; limits in force: power limit." in text
    assert "At the clock behind the calls it is 92.7%." in text
    assert "fewer bytes moved" in text
    assert "The clock was not measured" not in text


def test_an_unlimited_clock_has_no_reason() -> None:
    text = clocked(ClockSample(sm_mhz=1_980), None, None)
    assert "1,980 MHz of 1,980.\n" in text
    assert "At the clock behind the calls it is 70.2%. In the rest" in text
    assert "fewer bytes moved" not in text


def test_a_share_of_more_than_all_is_not_told() -> None:
    text = clocked(ClockSample(sm_mhz=1_300), None, None)
    assert "1,300 MHz of 1,980." in text
    assert "was lower than within them" in text
    assert "At the clock behind the calls it is" not in text


def test_without_a_clock_no_share_is_made_up() -> None:
    text = clocked(None, None, None)
    assert "SM clock" not in text
    assert "The clock was not measured" in text


def test_spills() -> None:
    assert "spills 64 bytes per thread" in said(spills=64)


def test_loads_through_registers() -> None:
    assert "through registers (LDG)" in said(opcodes={"HGMMA": 4, "LDG": 8, "STS": 8})


def test_near_the_ceiling_little_is_left() -> None:
    from tests.unit.factories import make_timing, make_trial

    trials = tuple(make_trial(timing=make_timing(span_ns=600_000)) for _ in range(3))
    text = said(trials=trials)
    assert "little is left to gain" in text
    assert "That reaches the goal of 1.2x" in text
