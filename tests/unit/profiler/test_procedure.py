"""The pure parts: what a recording becomes, and when timing would be wasted."""

import json
import time
from typing import Any

import pytest

from ptxbench.profiler.procedure import Stopwatch, failed, launches_of, timing_of
from ptxbench.profiler.replies import Recording, recording_of
from ptxbench.records import CheckedCall, KernelLaunch, Timing
from tests.unit.factories import make_call, make_comparison


def recording(spans: list[int], **changes: Any) -> Recording:
    answer = {"spans": spans, "activities": [1] * len(spans), "stray": 0, "launches": [], **changes}
    return recording_of(json.dumps(answer).encode(), len(spans))


def test_timing_pairs_both_clocks() -> None:
    timing = timing_of(recording([7, 8, 0], activities=[1, 2, 0], stray=3), [17, 18, 19], warmup=10)
    assert timing == Timing(warmup=10, span_ns=(7, 8, 0), wall_ns=(17, 18, 19), activities=(1, 2, 0), stray=3)


def test_timing_without_iterations() -> None:
    assert timing_of(recording([]), [], warmup=0).span_ns == ()


def test_launches_are_sorted_and_rounded() -> None:
    found = launches_of(
        recording(
            [5],
            launches=[
                ["_Z1bv", [4, 2, 1], [128, 1, 1], 0, 40, 1],
                ["_Z1av", [132, 1, 1], [384, 1, 1], 196_608, 168, 2 / 3],
                ["_Z1av", [1, 1, 1], [384, 1, 1], 196_608, 168, 1.0],
            ],
        )
    )
    assert [(launch.name, launch.grid) for launch in found] == [
        ("_Z1av", (1, 1, 1)),
        ("_Z1av", (132, 1, 1)),
        ("_Z1bv", (4, 2, 1)),
    ]
    assert found[1] == KernelLaunch(
        name="_Z1av",
        grid=(132, 1, 1),
        block=(384, 1, 1),
        dynamic_smem_bytes=196_608,
        registers=168,
        launches_per_call=0.667,
    )


@pytest.mark.parametrize(
    ("call", "wasted"),
    [
        (make_call(), False),
        (make_call(inputs_intact=False), True),
        (make_call(guards_intact=False), True),
        (make_call(outputs=(make_comparison(mismatched=1),)), True),
        (make_call(outputs=(make_comparison(), make_comparison(mismatched=1))), True),
        (make_call(outputs=()), False),
    ],
)
def test_failed(call: CheckedCall, wasted: bool) -> None:
    assert failed(call) is wasted


def test_stopwatch_adds_up_by_stage_and_remembers_the_last() -> None:
    watch = Stopwatch()
    for stage in ("check", "time", "check"):
        with watch.measure(stage):
            time.sleep(0.01)
    assert watch.stage == "check"
    assert watch.stages_ms["check"] >= 20
    assert watch.stages_ms["time"] >= 10


def test_stopwatch_counts_a_stage_that_failed() -> None:
    watch = Stopwatch()
    with pytest.raises(ZeroDivisionError), watch.measure("load"):
        _ = 1 / 0
    assert (watch.stage, list(watch.stages_ms)) == ("load", ["load"])
