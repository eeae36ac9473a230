"""Every case of every suite on the device: the library passes, what computes nothing does not, and it all fits.

``PTXBENCH_EVIDENCE_DIR=DIR`` keeps what docs/workloads.md has a column for, and the errors, as
``DIR/workloads_h100.json``.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")

import torch

from ptxbench.agent import suite_identity
from ptxbench.cases import Case, load_suite
from ptxbench.profiler.device import describe_device
from ptxbench.profiler.footprint import PROCESSES_BYTES, footprint
from ptxbench.profiler.gpu_lock import gpu_lock
from ptxbench.profiler.inputs import InputSource
from ptxbench.profiler.oracle import baseline_worker
from ptxbench.profiler.procedure import failed
from ptxbench.profiler.qualification import Baselines
from ptxbench.profiler.state import CheckedDraw, WorkloadState
from ptxbench.records import CORRECTNESS_CALL, OFFICIAL_FAMILY, BaselineMeasurement, CheckedCall
from ptxbench.verdict.precision import FAMILY_CEILING, family_passes, qualified
from tests.support.null_outputs import NULLS
from tests.support.partial_nulls import parts, without
from tests.support.small_cases import NAMES, PAIRS, ROOT, small_case

DEVICE_BYTES = 80 * 10**9


class Measured(NamedTuple):
    """A case with its state and its library, as an evaluation has them."""

    state: WorkloadState
    baseline: BaselineMeasurement
    baselines: Baselines
    seconds: float
    peak_bytes: int


def record(case: Case, **fields: Any) -> None:
    """Add to what is kept of a case."""
    folder = os.environ.get("PTXBENCH_EVIDENCE_DIR")
    if not folder:
        return
    path = Path(folder) / "workloads_h100.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"schema_version": 1, "cases": {}}
    known |= {"device": describe_device().model_dump(mode="json"), "torch": torch.__version__}
    fields["measured_at"] = datetime.now(UTC).isoformat(timespec="seconds")
    known["cases"].setdefault(case.name, {"case_sha256": suite_identity([case])}).update(fields)
    path.write_text(json.dumps(known, indent=1) + "\n")


@pytest.fixture(scope="module")
def baselines() -> Iterator[Baselines]:
    found = Baselines(baseline_worker)
    yield found
    found.close()


@pytest.fixture(scope="module")
def idle_bytes(baselines: Baselines) -> int:
    """What is free of the device before any case was there."""
    torch.cuda.init()
    return int(torch.cuda.mem_get_info()[0])


@pytest.fixture(scope="module", params=NAMES)
def measured(request: pytest.FixtureRequest, baselines: Baselines, idle_bytes: int) -> Iterator[Measured]:
    case = load_suite(ROOT, "all").case(request.param, "h100")
    torch.backends.cuda.matmul.allow_tf32 = False
    with gpu_lock():
        if case.baseline.library == "flashinfer":
            # It compiles at the first plan of all, which is not part of a state.
            state = WorkloadState(case)
            baselines.measure(state, 0)
            baselines.forget(state)
            state.close()
            del state
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        state = WorkloadState(case)
        baseline = baselines.measure(state, 0)
        seconds = time.perf_counter() - begin
        # What is gone beside torch's own share is the arena's and the trusted worker's, its context included.
        beside = idle_bytes - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved()
        peak = beside + torch.cuda.max_memory_allocated()
        found = Measured(state, baseline, baselines, seconds, peak)
        record(
            case,
            time_ms=round(statistics.median(baseline.span_ns) / 1e6, 4),
            state_s=round(seconds, 2),
            state_bytes=state.nbytes,
            peak_bytes=peak,
            baseline=baseline.model_dump(mode="json"),
        )
        yield found
        baselines.forget(state)
        state.close()
    del state, found
    torch.cuda.empty_cache()


def test_the_library_passes_the_official_check_and_its_errors_are_known(measured: Measured) -> None:
    baseline, case = measured.baseline, measured.state.case
    assert not failed(measured.baselines.qualify(measured.state))
    assert baseline.version not in ("", "missing")
    assert set(baseline.relative_rms) == set(case.output_shapes())
    assert baseline.exact is not None
    dtypes = case.dtypes()
    for name, error in baseline.exact.library.items():
        assert error < (5e-3 if dtypes[name] == "bfloat16" else 1e-5), name
        assert baseline.exact.reference[name] < (2**-8 if dtypes[name] == "bfloat16" else 1e-6), name
    assert bool(baseline.detail) == (baseline.library == "flashinfer")


def test_the_library_computes_every_family(measured: Measured) -> None:
    families = measured.baseline.families
    assert set(families) == {draw.draw.family for draw in measured.state.families}
    assert all(map(qualified, families.values())), f"a family above {FAMILY_CEILING}: {families}"
    worst, outputs = measured.baseline.families_worst, set(measured.state.case.output_shapes())
    assert {family: set(errors) for family, errors in worst.items()} == dict.fromkeys(families, outputs)


def draws(state: WorkloadState) -> Iterator[tuple[str, CheckedDraw, CheckedDraw]]:
    """Each family with a draw, and another one of it that is stale."""
    yield OFFICIAL_FAMILY, state.checked[0], state.checked[1]
    for draw in state.families:
        yield draw.draw.family, draw, state._check_draw(draw.draw.family)


Null = Callable[[torch.Tensor, Mapping[str, torch.Tensor], torch.Tensor], torch.Tensor]


def call_with(state: WorkloadState, draw: CheckedDraw, stale: CheckedDraw, nulls: Mapping[str, Null]) -> CheckedCall:
    """The comparison of outputs of which these compute nothing and the others are right."""
    state.stage(draw)
    arena = state.arena.tensors
    inputs = {name: arena[name] for name in state.case.input_shapes() if name in arena}
    for name, reference in draw.references.items():
        made = nulls[name](reference, inputs, stale.references[name]) if name in nulls else reference
        arena[name].copy_(made)
        del made
    call = state.compare(draw, CORRECTNESS_CALL)
    assert call.inputs_intact
    assert call.guards_intact
    return call


def passes(measured: Measured, family: str, call: CheckedCall) -> bool:
    """By the rule of the family: the official one, or the precision gate."""
    if family == OFFICIAL_FAMILY:
        return not failed(call)
    baseline = measured.baseline
    return family_passes(call, baseline.families[family], baseline.families_worst[family])


def test_what_computes_nothing_fails_under_every_family(measured: Measured) -> None:
    state = measured.state
    refused: dict[str, list[str]] = {}
    for family, draw, stale in draws(state):
        state.arena.arm()
        for null, make in NULLS.items():
            call = call_with(state, draw, stale, dict.fromkeys(draw.references, make))
            assert not passes(measured, family, call), f"{null} under {family}"
            refused.setdefault(family, []).append(null)
        for name in draw.references:
            call = call_with(state, draw, stale, {name: NULLS["constant"]})
            assert not passes(measured, family, call), f"constant {name} under {family}"
            refused[family].append(f"constant {name} alone")
    record(state.case, refused=refused)


def test_an_output_that_lacks_a_part_fails_every_family(measured: Measured) -> None:
    """The official tolerance is the protocol's and absolute: it need not see what is smaller than it."""
    state = measured.state
    refused: dict[str, list[str]] = {}
    for draw in state.families:
        family = draw.draw.family
        state.arena.arm()
        for name in draw.references:
            for part, index in parts(state.case, family, name).items():

                def lacking(reference: torch.Tensor, *_: object, index: Any = index) -> torch.Tensor:
                    return without(reference, index)

                call = call_with(state, draw, draw, {name: lacking})
                assert not passes(measured, family, call), f"no {part} of {name} under {family}"
                refused.setdefault(family, []).append(f"no {part} of {name}")
    record(state.case, refused_parts=refused)


def test_right_outputs_pass_under_every_family(measured: Measured) -> None:
    state = measured.state
    for family, draw, stale in draws(state):
        state.arena.arm()
        assert passes(measured, family, call_with(state, draw, stale, {})), family


def test_it_fits_an_80_gb_device(measured: Measured) -> None:
    state = measured.state
    computed = footprint(state.case)
    flush = state._flush.numel() * 4
    assert state.nbytes == computed.arena + computed.checked + flush
    assert state.nbytes < measured.peak_bytes < DEVICE_BYTES - PROCESSES_BYTES
    # The computed total is what the document says.
    assert measured.peak_bytes < computed.total * 1.25


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_every_input_is_a_function_of_its_draw_on_the_device(name: str, family: str) -> None:
    """As tests/unit/profiler/test_families.py, with the kernels and generators that measure."""
    source = InputSource(small_case(name))
    draw = source.keep(family)
    made, again = source.make(draw), source.make(draw)
    assert all(torch.equal(made[tensor], again[tensor]) for tensor in made if tensor not in source.derived)
    bound = source.bind(made)
    assert not any(map(bool, bound.changed(draw)))
    for tensor in made:
        if tensor not in source.derived:
            raw = made[tensor].view(-1).view(torch.uint8)
            raw[-1] ^= 1
            assert sum(map(bool, bound.changed(draw))) == 1, tensor
            raw[-1] ^= 1
