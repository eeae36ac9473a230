"""Comparing an output with its reference: counts and magnitudes, no opinion. Runs on CPU and CUDA alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptxbench.profiler import comparison_kernel
from ptxbench.profiler.device_code import supported
from ptxbench.profiler.device_memory import ran_out
from ptxbench.profiler.mismatch import disagree, mismatch_pattern, values
from ptxbench.records import OutputComparison
from ptxbench.records.mismatch import MismatchPattern

if TYPE_CHECKING:
    import torch

CHUNK_ELEMENTS = 1 << 25
"""fp32 copies of 32 Mi elements are 128 MiB each: large enough to run at memory speed, small beside the workload."""
SHOWN_MISMATCHES = 8


def unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Index of a row-major position."""
    index: list[int] = []
    for extent in reversed(shape):
        index.append(flat % extent)
        flat //= extent
    return tuple(reversed(index))


def changed_bits(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Whether two contiguous tensors of equal shape and dtype differ in any bit: bool, asynchronous."""
    import torch

    nbytes = first.numel() * first.element_size()
    # Whole words where possible: comparing element by element writes one byte per two of BF16.
    word = torch.int64 if nbytes % 8 == 0 else torch.uint8
    return (first.reshape(-1).view(word) != second.reshape(-1).view(word)).any()


def compare_output(
    name: str, output: torch.Tensor, reference: torch.Tensor, *, atol: float, rtol: float
) -> OutputComparison:
    """Measure and describe in one step."""
    found = measure(output, reference, atol=atol, rtol=rtol).tolist()
    return describe(name, output, reference, found, atol=atol, rtol=rtol)


def measure(output: torch.Tensor, reference: torch.Tensor, *, atol: float, rtol: float) -> torch.Tensor:
    """Compare two tensors of equal shape and dtype by torch.allclose's element rule in fp32; integers exactly.

    An element agrees when ``|out - ref| <= atol + rtol * |ref|`` or both are the same infinity; NaN never agrees.
    In RMS and maxima a non-finite error or reference counts as zero. Returns fp64[6]: mismatches, NaN, sum of squared
    error, sum of squared reference, max abs error, max rel error; asynchronous on a device.
    """
    dtype = str(output.dtype).removeprefix("torch.")
    on_device = output.is_cuda and supported(dtype)
    statistics_of = comparison_kernel.statistics if on_device else statistics
    return statistics_of(output.contiguous(), reference.contiguous(), atol=atol, rtol=rtol)


def describe(
    name: str,
    output: torch.Tensor,
    reference: torch.Tensor,
    found: Sequence[float],
    *,
    atol: float,
    rtol: float,
    tolerated: float = 0.0,
    worst_block: float | None = None,
) -> OutputComparison:
    """What ``measure`` found, by name; looks where the mismatches are if there are more than are tolerated, or NaN."""
    mismatched, nan, squared_error, squared_reference, max_abs, max_rel = found
    total = output.numel()
    first: tuple[tuple[int, ...], ...] = ()
    where: MismatchPattern | None = None
    if mismatched > tolerated or nan:
        first, where = _places(output, reference, atol, rtol)
    return OutputComparison(
        name=name,
        shape=tuple(output.shape),
        dtype=str(output.dtype).removeprefix("torch."),
        elements=total,
        atol=atol,
        rtol=rtol,
        mismatched=int(mismatched),
        nan=int(nan),
        max_abs_error=max_abs,
        max_rel_error=max_rel,
        rms_error=math.sqrt(squared_error / total) if total else 0.0,
        rms_reference=math.sqrt(squared_reference / total) if total else 0.0,
        worst_block_rms=worst_block,
        first_mismatches=first,
        where=where,
    )


def _places(
    output: torch.Tensor, reference: torch.Tensor, atol: float, rtol: float
) -> tuple[tuple[tuple[int, ...], ...], MismatchPattern | None]:
    try:
        first = _first_mismatches(output, reference, atol, rtol)
        return first, mismatch_pattern(output, reference, atol=atol, rtol=rtol)
    except RuntimeError as error:
        if not ran_out(error):
            raise
        # Describing a kernel's errors must not turn into another error of the kernel's.
        return (), None


def statistics(output: torch.Tensor, reference: torch.Tensor, *, atol: float, rtol: float) -> torch.Tensor:
    """The six numbers of ``measure`` by tensor expressions: the specification of the device's kernel."""
    import torch

    flat_output, flat_reference = output.reshape(-1), reference.reshape(-1)
    sums = torch.zeros(4, dtype=torch.float64, device=output.device)
    maxima = torch.zeros(2, dtype=torch.float32, device=output.device)
    for start in range(0, flat_output.numel(), CHUNK_ELEMENTS):
        chunk = _chunk_statistics(
            flat_output[start : start + CHUNK_ELEMENTS], flat_reference[start : start + CHUNK_ELEMENTS], atol, rtol
        )
        sums += chunk[0]
        maxima = torch.maximum(maxima, chunk[1])
    return torch.cat([sums, maxima.double()])


def _chunk_statistics(
    output: torch.Tensor, reference: torch.Tensor, atol: float, rtol: float
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    mismatched = disagree(output, reference, atol, rtol).sum()
    out, ref = values(output), values(reference)
    error = (out - ref).abs_()
    nan = (out.isnan() & ~ref.isnan()).sum()
    error.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    magnitude = ref.abs().nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    maxima = torch.stack([error.max(), (error / magnitude.clamp_min(1e-30)).max()]).float()
    # In fp64, since the square of an fp32 value need not be one.
    squares = torch.stack([error.double().square_().sum(), magnitude.double().square_().sum()])
    return torch.cat([torch.stack([mismatched, nan]).double(), squares]), maxima


def _first_mismatches(
    output: torch.Tensor, reference: torch.Tensor, atol: float, rtol: float
) -> tuple[tuple[int, ...], ...]:
    flat_output, flat_reference = output.reshape(-1), reference.reshape(-1)
    found: list[tuple[int, ...]] = []
    for start in range(0, flat_output.numel(), CHUNK_ELEMENTS):
        out, ref = flat_output[start : start + CHUNK_ELEMENTS], flat_reference[start : start + CHUNK_ELEMENTS]
        wrong = disagree(out, ref, atol, rtol).nonzero()[: SHOWN_MISMATCHES - len(found), 0]
        found += [unravel(start + int(position), tuple(output.shape)) for position in wrong.tolist()]
        if len(found) >= SHOWN_MISMATCHES:
            break
    return tuple(found)
