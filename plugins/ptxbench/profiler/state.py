"""Workload state: everything of one workload that outlives a candidate, built once and kept under a byte budget."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ptxbench.cases.defaults import tolerance_of
from ptxbench.errors import InfrastructureError
from ptxbench.profiler.arena import Arena
from ptxbench.profiler.blocks import Blocks, blocks_of, worst_error
from ptxbench.profiler.comparison import changed_bits, describe, measure
from ptxbench.profiler.defences import active
from ptxbench.profiler.device_memory import ran_out
from ptxbench.profiler.families import families_of
from ptxbench.profiler.inputs import Draw, InputSource, specs_of
from ptxbench.profiler.reference import compile_reference
from ptxbench.profiler.state_key import state_key
from ptxbench.records import OFFICIAL_FAMILY, BaselineMeasurement, CheckedCall, tolerated_mismatches
from ptxbench.trace.workload import ScalarInput

if TYPE_CHECKING:
    import torch

    from ptxbench.cases.case import Case

TIMED_CHECKS = 3
"""Secretly chosen timed iterations per trial, on average, that are compared in full. A candidate that cheats in 26
of 50 in two of three trials, as it must to move the median of their medians, escapes all 3 x 3 checks with probability
1.9%."""


VECTOR_BYTES = 16
FAMILY_SCALE = 10.0
"""Beyond the official family, where 1e-2 may be less than half a unit in the last place, an element is a mismatch when
it is further off than a tenth of the output's size, at the usual tolerance of 1e-2. Mismatches decide nothing there,
but looking for their places costs more than all the rest: an honest kernel, with errors of 0.3%, shall have none."""


class CheckedDraw(NamedTuple):
    """Inputs whose reference outputs are known."""

    draw: Draw
    derived: dict[str, torch.Tensor]
    """The inputs that are not made from keys."""
    references: dict[str, torch.Tensor]
    scales: Mapping[str, float] = MappingProxyType({})
    """By what an output's absolute tolerance is multiplied, where it is: beyond the official family."""
    blocks: Mapping[str, Blocks] = MappingProxyType({})
    """How every output is cut where the errors of its blocks are asked for: beyond the official family."""


class WorkloadState:
    """Inputs, references, staging and, once measured, the baseline of one case on this device."""

    def __init__(self, case: Case) -> None:
        """Build. Raises InfrastructureError("out_of_device_memory") or ("reference_failed")."""
        import torch

        self.case = case
        self.seed = secrets.randbits(48)
        self.baseline: BaselineMeasurement | None = None
        self.arena = Arena(specs_of(case))
        try:
            self.source = InputSource(case)
            self._inputs = self.source.bind(self.arena.tensors)
            self._reference = compile_reference(case)
            self.checked = [self._check_draw() for _ in range(case.trials * (1 + TIMED_CHECKS))]
            self.families = [self._check_draw(family) for family in families_of(case)[1:]]
            properties = torch.cuda.get_device_properties(0)
            outputs = sum(slot.nbytes for slot in self.arena.slots if slot.spec.output)
            # Poisoning outputs of twice the L2 evicts the inputs that were just written; smaller outputs need help.
            needs_flush = outputs < 2 * properties.L2_cache_size
            flush = 2 * properties.L2_cache_size if needs_flush else 0
            self._flush = torch.empty(flush // 4, dtype=torch.int32, device="cuda")
        except BaseException as error:
            self.arena.close()
            if not ran_out(error):
                raise
            raise InfrastructureError(
                "out_of_device_memory", f"{case.name}: inputs and references do not fit: {str(error)[:200]}"
            ) from error

    def _check_draw(self, family: str = OFFICIAL_FAMILY) -> CheckedDraw:
        draw = self.source.keep(family)
        made = self.source.make(draw)
        return checked_draw(self.case, self._reference, draw, made, self.source.derived)

    def replace_draw(self, index: int) -> None:
        """Put a new draw in the place of one that the library itself cannot compute within tolerance."""
        self.checked[index] = self._check_draw()

    def another_draw(self) -> CheckedDraw:
        """A draw for one call of a candidate that is there, known to the reference alone.

        The library is not asked whether it computes the draw: its results would lie in staging memory, which the
        candidate maps, before the candidate's are compared. So the draw is not kept for other candidates either.
        Raises as the constructor does, and RuntimeError where there is no memory (``device_memory.ran_out``).
        """
        return self._check_draw()

    @property
    def nbytes(self) -> int:
        """Device memory held, in bytes."""
        draws = (*self.checked, *self.families)
        tensors = [tensor for draw in draws for tensor in (*draw.references.values(), *draw.derived.values())]
        tensors.append(self._flush)
        held: int = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return self.arena.nbytes + held

    def stage_fresh(self, draw: Draw) -> None:
        """Stage inputs that the sandbox has not seen."""
        if active("fresh_inputs"):
            self._stage(draw, None)
        else:
            self.stage(self.checked[0])

    def stage(self, draw: CheckedDraw) -> None:
        """Stage inputs whose reference outputs are known."""
        self._stage(draw.draw, draw.derived)

    def _stage(self, draw: Draw, derived: dict[str, torch.Tensor] | None) -> None:
        """Write inputs, evict them from L2, poison outputs; returns when the device has done it."""
        self._inputs.fill(draw)
        if self.source.derived:
            # Also where they are known: a candidate must not tell a checked call by the time before it.
            computed = self.source.derive(self.arena.tensors)
            self.arena.write(computed if derived is None else derived)
        if active("cold_cache"):
            self._flush.fill_(0)
            self.arena.let_go_of_cache()
        if active("poisoned_outputs"):
            self.arena.poison()
        self.arena.wait()

    def compare(self, draw: CheckedDraw, iteration: int, *, share: float = 1.0) -> CheckedCall:
        """Compare the arena's outputs with the references, its inputs with the staged draw, its guards.

        ``share`` scales the case's tolerance.
        """
        import torch

        bounds = {name: bounds_of(self.case, draw, name, share) for name in draw.references}
        arena, references = self.arena.tensors, draw.references
        measured = [measure(arena[name], reference, **bounds[name]) for name, reference in references.items()]
        worst = [worst_error(arena[name], references[name], blocks) for name, blocks in draw.blocks.items()]
        changes = []
        if active("inputs_compared"):
            changes += self._inputs.changed(draw.draw)
            changes += [changed_bits(arena[name], tensor) for name, tensor in draw.derived.items()]
        # One wait for everything: each would cost a switch between the host and the device.
        answers = torch.stack([*changes, self.arena.guards_changed()]).double()
        numbers = iter(torch.cat([*measured, *worst, answers]).tolist())
        found = {name: list(islice(numbers, 6)) for name in references}
        if not active("element_rule"):
            # As of a comparison of errors with a bound, which is false for NaN.
            found = {name: [mismatched - nan, 0, *rest] for name, (mismatched, nan, *rest) in found.items()}
        worst_blocks = dict(zip(draw.blocks, islice(numbers, len(worst)), strict=True))
        *inputs_changed, guards_changed = numbers
        outputs = tuple(
            describe(
                name,
                arena[name],
                reference,
                found[name],
                tolerated=tolerated_mismatches(iteration, reference.numel()),
                worst_block=worst_blocks.get(name),
                **bounds[name],
            )
            for name, reference in references.items()
        )
        return CheckedCall(
            iteration=iteration,
            outputs=outputs,
            inputs_intact=not any(inputs_changed),
            guards_intact=not guards_changed,
        )

    def guards_intact(self) -> bool:
        """Whether nothing wrote into the guard bands since they were armed. Synchronizes."""
        return not bool(self.arena.guards_changed())

    def close(self) -> None:
        """Give the staging memory back; torch frees the rest with its last reference."""
        self.arena.close()


def checked_draw(
    case: Case, run: Callable[..., Any], draw: Draw, inputs: dict[str, torch.Tensor], derived: tuple[str, ...]
) -> CheckedDraw:
    """A draw with its reference outputs. Raises InfrastructureError("reference_failed")."""
    references = reference_outputs(case, run, inputs)
    kept = CheckedDraw(draw, {name: inputs[name] for name in derived}, references)
    if draw.family == OFFICIAL_FAMILY:
        return kept
    device = next(iter(references.values())).device.type
    scales = {name: _scale(tensor) for name, tensor in references.items()}
    return kept._replace(scales=scales, blocks=blocks_of(case, draw.family, device))


def _scale(reference: torch.Tensor) -> float:
    """``FAMILY_SCALE`` times the RMS of the finite elements, at least 1."""
    # A copy in any case: of fp32, float() would be the reference itself.
    finite = reference.double().nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    return max(1.0, FAMILY_SCALE * float(finite.square_().mean().sqrt())) if finite.numel() else 1.0


def bounds_of(case: Case, draw: CheckedDraw, name: str, share: float) -> dict[str, float]:
    """Tolerance of one output of a checked call."""
    scale, tolerance = draw.scales.get(name, 1.0), tolerance_of(case, name)
    return {"atol": tolerance.atol * share * scale, "rtol": tolerance.rtol * share}


def reference_outputs(case: Case, run: Callable[..., Any], tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Run the reference on inputs by name, in definition order. Raises InfrastructureError("reference_failed")."""
    given = case.workload.inputs
    arguments = [
        scalar.value if isinstance(scalar := given[name], ScalarInput) else tensors[name]
        for name in case.input_shapes()
    ]
    try:
        returned = run(*arguments)
    except Exception as error:
        if ran_out(error):  # which is told apart from a reference that is wrong, however it is said
            raise
        raise InfrastructureError(
            "reference_failed", f"the reference of definition {case.name} failed: {type(error).__name__}: {error}"
        ) from error
    values = returned if isinstance(returned, tuple | list) else (returned,)
    dtypes = case.dtypes()
    found = [_shape_and_dtype(value) for value in values]
    expected = [(shape, dtypes[name]) for name, shape in case.output_shapes().items()]
    if found != expected:
        raise InfrastructureError(
            "reference_failed",
            f"the reference of definition {case.name}: expected outputs {expected}, found {found}; mend the definition",
        )
    # The comparison reads whole vectors; a reference may return views that begin anywhere.
    whole = [value.clone() if value.data_ptr() % VECTOR_BYTES else value.contiguous() for value in values]
    return dict(zip(case.output_shapes(), whole, strict=True))


def _shape_and_dtype(value: object) -> tuple[tuple[int, ...], str]:
    import torch

    if isinstance(value, torch.Tensor):
        return tuple(value.shape), str(value.dtype).removeprefix("torch.")
    return (), type(value).__name__


class StateCache:
    """Least recently used states under a byte budget. ``budget_bytes=0`` keeps nothing between evaluations."""

    def __init__(self, budget_bytes: int, on_evict: Callable[[WorkloadState], None]) -> None:
        self._budget = budget_bytes
        self._on_evict = on_evict
        self._states: OrderedDict[str, WorkloadState] = OrderedDict()

    def get(self, case: Case) -> tuple[WorkloadState, bool]:
        """The case's state and whether it was already there."""
        import torch

        key = state_key(case)
        if key in self._states and self._budget > 0:
            self._states.move_to_end(key)
            return self._states[key], True
        if self._budget == 0:
            self.clear()
        state = self._build(case)
        if state is None:
            self.clear()
            state = WorkloadState(case)
        self._states[key] = state
        if sum(each.nbytes for each in self._states.values()) > self._budget:
            while len(self._states) > 1 and sum(each.nbytes for each in self._states.values()) > self._budget:
                self._evict(next(iter(self._states)))
            torch.cuda.empty_cache()
        return state, False

    def _build(self, case: Case) -> WorkloadState | None:
        """A new state, or None where it does not fit beside the others. The exception and all it holds end here."""
        try:
            return WorkloadState(case)
        except InfrastructureError as error:
            if error.kind != "out_of_device_memory" or not self._states:
                raise
            return None

    def _evict(self, key: str) -> None:
        state = self._states.pop(key)
        self._on_evict(state)
        state.close()

    def held(self) -> dict[str, int]:
        """Bytes by ``state_key``, least recently used first."""
        return {key: state.nbytes for key, state in self._states.items()}

    def clear(self) -> None:
        """Evict everything and return the memory to the device."""
        import torch

        for key in list(self._states):
            self._evict(key)
        torch.cuda.empty_cache()
