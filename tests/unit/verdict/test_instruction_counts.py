"""Counts of one call, out of reports that count more than one."""

from __future__ import annotations

from typing import Any

import pytest

from ptxbench.records import Evidence, KernelLaunch, TurnRecord
from ptxbench.verdict import judge
from ptxbench.verdict.instruction_counts import counted_times, counts_of_call
from tests.conftest import ROOT
from tests.unit.factories import (
    HGMMA,
    KERNEL,
    make_build,
    make_counts,
    make_evidence,
    make_instructions,
    make_run,
    suite_case,
)

THREADS = 1280


def launch(name: str = KERNEL, threads: int = THREADS, per_call: float = 1.0) -> KernelLaunch:
    grid = (threads // 128, 1, 1)
    return KernelLaunch(
        name=name, grid=grid, block=(128, 1, 1), dynamic_smem_bytes=0, registers=168, launches_per_call=per_call
    )


def evidence(*counts: Any, launches: tuple[KernelLaunch, ...] = (launch(),)) -> Evidence:
    return make_evidence(run=make_run(launches=launches), instructions=make_instructions(*counts))


@pytest.mark.parametrize(("times", "divisor"), [(1, 1), (2, 2), (3, 3), (0.5, 1), (0, 1)])
def test_a_call_is_counted_once(times: float, divisor: int) -> None:
    """Seen on an H200: every thread of a call twice. Fewer threads than were launched make no count larger."""
    done, exits = make_counts(HGMMA, 6000), make_counts("EXIT", int(THREADS * times))
    found = counts_of_call(evidence(done, exits))
    assert [count.opcode for count in found] == [HGMMA, "EXIT"]
    assert found[0].thread_inst_executed_true == 6000 // divisor
    assert found[0].inst_executed == round(done.inst_executed / divisor)


def test_each_kernel_by_its_own_threads_over_all_its_launches() -> None:
    one, exits = make_counts(HGMMA, 6000), make_counts("EXIT", 2 * THREADS)
    other = one.model_copy(update={"kernel": "other"})
    launches = (launch(per_call=0.5), launch(threads=THREADS // 2), launch("other"))
    found = counts_of_call(evidence(one, other, exits, launches=launches))
    assert [count.thread_inst_executed_true for count in found] == [3000, 6000, THREADS]
    assert counts_of_call(evidence(one, exits, launches=()))[0] == one


def test_what_executed_stays_executed() -> None:
    one, none = make_counts(HGMMA, 1), make_counts("UTMALDG.2D", 0)
    found = counts_of_call(evidence(one, none, make_counts("EXIT", 1000 * THREADS)))
    assert [count.thread_inst_executed_true for count in found[:2]] == [1, 0]


def test_the_verdict_tells_of_one_call() -> None:
    once = judge(suite_case(), make_build(), evidence(make_counts(HGMMA, 2**40), make_counts("EXIT", THREADS)))
    twice = judge(suite_case(), make_build(), evidence(make_counts(HGMMA, 2**41), make_counts("EXIT", 2 * THREADS)))
    assert once == twice
    assert once.families["HGMMA"] == 2**40


def test_every_stored_report_counts_each_thread_once_or_twice() -> None:
    """And once where a call has one kernel. Any other number would mean that ``EXIT`` tells something else."""
    times = {True: set[float](), False: set[float]()}
    for path in (ROOT / "generated").glob("examples/*/turns/*/turn*.json"):
        found = TurnRecord.model_validate_json(path.read_bytes()).evidence
        if found is not None and found.run.launches:
            several = len(found.run.launches) > 1
            times[several] |= set(counted_times(found.instructions.counts, found.run.launches).values())
    assert times == {True: {1.0, 2.0}, False: {1.0}}
