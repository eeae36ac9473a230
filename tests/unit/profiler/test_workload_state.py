"""The state that an evaluation works on, with its staging memory on the CPU: families, staging, the comparison."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from ptxbench.profiler import defences
from ptxbench.profiler import state as state_module
from ptxbench.profiler.arena import TensorSpec, layout
from ptxbench.profiler.families import families_of
from ptxbench.profiler.footprint import footprint
from ptxbench.profiler.inputs import Draw, InputSource
from ptxbench.profiler.procedure import failed
from ptxbench.profiler.state import CheckedDraw, WorkloadState
from ptxbench.records import CORRECTNESS_CALL, OFFICIAL_FAMILY
from ptxbench.verdict.precision import family_passes
from tests.support.null_outputs import NULLS
from tests.support.partial_nulls import parts, without
from tests.support.small_cases import NAMES, small_case

LIBRARY_ERROR, LIBRARY_WORST = 2.5e-3, 4.5e-3


class HostArena:
    """Staging memory without a device, and without guard bands."""

    def __init__(self, specs: tuple[TensorSpec, ...]) -> None:
        self.slots, self.nbytes = layout(specs)
        self.tensors = {spec.name: torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in specs}

    def guards_changed(self) -> torch.Tensor:
        return torch.tensor(False)

    def poison(self) -> None:
        for slot in self.slots:
            if slot.spec.output:
                self.tensors[slot.spec.name].view(torch.uint8).fill_(0xFF)

    def write(self, sources: dict[str, torch.Tensor]) -> None:
        for name, source in sources.items():
            self.tensors[name].copy_(source)

    def let_go_of_cache(self) -> None:
        """No cache of a device."""

    def wait(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        self.tensors.clear()


@pytest.fixture(params=NAMES)
def state(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> WorkloadState:
    make, empty = InputSource.make, torch.empty

    def on_host(self: InputSource, draw: Draw, device: str = "cpu") -> dict[str, torch.Tensor]:
        return make(self, draw, "cpu")

    def empty_on_host(*shape: Any, **options: Any) -> torch.Tensor:
        return empty(*shape, **{name: value for name, value in options.items() if value != "cuda"})

    monkeypatch.setattr(state_module, "Arena", HostArena)
    monkeypatch.setattr(InputSource, "make", on_host)
    monkeypatch.setattr(torch, "empty", empty_on_host)
    properties = SimpleNamespace(L2_cache_size=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    return WorkloadState(small_case(request.param))


def draws(state: WorkloadState) -> list[CheckedDraw]:
    return [state.checked[0], *state.families]


def right(state: WorkloadState, draw: CheckedDraw) -> None:
    state.stage(draw)
    for name, reference in draw.references.items():
        state.arena.tensors[name].copy_(reference)


def passes(state: WorkloadState, draw: CheckedDraw) -> bool:
    call = state.compare(draw, CORRECTNESS_CALL)
    if draw.draw.family == OFFICIAL_FAMILY:
        assert all(output.worst_block_rms is None for output in call.outputs)
        return not failed(call)
    assert all(output.worst_block_rms is not None for output in call.outputs)
    library, worst = (dict.fromkeys(draw.references, error) for error in (LIBRARY_ERROR, LIBRARY_WORST))
    return family_passes(call, library, worst)


def test_a_state_end_to_end(state: WorkloadState) -> None:
    """One test, since building one takes a while: what it holds, what it stages, what it finds."""
    case = state.case
    assert len(state.checked) == 12
    assert [draw.draw.family for draw in draws(state)] == list(families_of(case))
    computed = footprint(case)
    assert state.nbytes == computed.arena + computed.checked
    arena = state.arena.tensors
    another = state.another_draw()
    right(state, another)
    assert passes(state, another)
    assert another.draw not in [kept.draw for kept in state.checked]
    for draw in draws(state):
        state.stage(draw)
        assert all(arena[name].isnan().all() for name in draw.references), "poisoned"
        assert not passes(state, draw), "nothing was written"
        right(state, draw)
        assert passes(state, draw)
        for name in state.source.derived:
            assert torch.equal(arena[name], draw.derived[name])
        stale = draws(state)[0] if draw is not draws(state)[0] else state.checked[1]
        inputs = {name: arena[name] for name in case.input_shapes() if name in arena}
        for null, compute in NULLS.items():
            right(state, draw)
            for name, reference in draw.references.items():
                arena[name].copy_(compute(reference, inputs, stale.references[name]))
            assert not passes(state, draw), f"{null} under {draw.draw.family}"
        for name in inputs:
            right(state, draw)
            arena[name].view(-1).view(torch.uint8)[0] ^= 1
            assert not state.compare(draw, CORRECTNESS_CALL).inputs_intact, name
            assert not passes(state, draw)


def test_an_output_that_lacks_a_part_fails(state: WorkloadState) -> None:
    for draw in state.families:
        for name, reference in draw.references.items():
            for part, index in parts(state.case, draw.draw.family, name).items():
                right(state, draw)
                state.arena.tensors[name].copy_(without(reference, index))
                assert not passes(state, draw), f"no {part} of {name} under {draw.draw.family}"


def test_fresh_data_in_every_timed_call(state: WorkloadState) -> None:
    arena = state.arena.tensors
    before: dict[str, torch.Tensor] = {}
    for _ in range(3):
        state.stage_fresh(state.source.draw())
        for name in state.case.input_shapes():
            if name in arena:
                same = name in before and torch.equal(before[name], arena[name])
                assert not same or name.endswith("indptr"), name
                before[name] = arena[name].clone()


@pytest.mark.parametrize("state", NAMES[:1], indirect=True)
def test_a_defence_that_is_off_is_left_out(state: WorkloadState, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real data and the real comparison, before which something is switched off."""

    def off(*names: str) -> None:
        monkeypatch.setattr(defences, "_off", frozenset(defences.known(names)))

    arena, draw = state.arena.tensors, state.checked[1]
    (output,) = draw.references
    off("poisoned_outputs")
    right(state, draw)
    state.stage(draw)
    assert passes(state, draw), "what an earlier call wrote is still there"
    off("element_rule")
    state.stage(draw)
    assert arena[output].isnan().all()
    assert passes(state, draw), "NaN is beyond no bound"
    off("inputs_compared")
    right(state, draw)
    arena[next(iter(state.case.input_shapes()))].view(-1).view(torch.uint8)[0] ^= 1
    assert passes(state, draw)
    off("fresh_inputs")
    state.stage_fresh(state.source.draw())
    arena[output].copy_(state.checked[0].references[output])
    assert passes(state, state.checked[0]), "every call has the first draw"
