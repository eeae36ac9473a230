"""The oracle's kernels against the tensor expressions that specify them."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")


from ptxbench.profiler import blocks, comparison, comparison_kernel  # noqa: E402 - torch first

INF, NAN = math.inf, math.nan
SPECIAL = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 3.0e38, 1e-30, 1.01]


def pair(dtype, count):
    generator = torch.Generator().manual_seed(count)
    reference = torch.randn(count, generator=generator)
    output = reference + 0.02 * torch.randn(count, generator=generator)
    specials = torch.tensor([(a, b) for a in SPECIAL for b in SPECIAL]).T[:, :count]
    output[: specials.shape[1]], reference[: specials.shape[1]] = specials
    return output.to(dtype).cuda(), reference.to(dtype).cuda()


@pytest.mark.parametrize("count", [1, 7, 100, 4096, 1_000_003])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_statistics_are_those_of_the_specification(dtype: str, count: int) -> None:
    output, reference = pair(getattr(torch, dtype), count)
    found = comparison_kernel.statistics(output, reference, atol=1e-2, rtol=1e-2)
    expected = comparison.statistics(output, reference, atol=1e-2, rtol=1e-2)
    assert found[:2].tolist() == expected[:2].tolist()
    torch.testing.assert_close(found[2:], expected[2:], rtol=1e-5, atol=0)


@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e15, 1e30])
def test_squares_beyond_the_range_of_fp32_are_summed(scale: float) -> None:
    output, reference = (torch.randn(4096, device="cuda") * scale for _ in range(2))
    found = comparison_kernel.statistics(output, reference, atol=0.0, rtol=0.0)
    torch.testing.assert_close(found, comparison.statistics(output, reference, atol=0.0, rtol=0.0), rtol=1e-5, atol=0)


def test_a_count_that_is_no_multiple_of_a_vector_is_compared_whole() -> None:
    values = torch.randn(1001, device="cuda", dtype=torch.bfloat16)
    found = comparison.compare_output("C", values[8:], values[8:].clone(), atol=0.0, rtol=0.0)
    assert (found.mismatched, found.elements) == (0, 993)


@pytest.mark.parametrize(
    ("shape", "lengths"),
    [
        ((2, 3, 130, 64), None),
        ((2, 3, 130, 96), None),
        ((2, 3, 1000), None),
        ((300, 7168), None),
        ((65, 131), None),
        ((1, 1, 4, 12), None),
        ((400, 24, 128), (1, 0, 2, 333, 64)),
        ((400, 24), (1, 0, 2, 333, 64)),
    ],
)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_sums_of_blocks_are_those_of_the_specification(
    dtype: str, shape: tuple[int, ...], lengths: tuple[int, ...] | None
) -> None:
    output, reference = (each.view(shape) for each in pair(getattr(torch, dtype), math.prod(shape)))
    cut = blocks._cut(shape, lengths, "cuda")
    found = comparison_kernel.block_sums(output, reference, cut)
    expected = blocks.block_sums(output, reference, cut)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)
    assert float(blocks.worst_error(output, reference, cut)) > 0
