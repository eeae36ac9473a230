"""Patterns in words. The patterns are measured, on planted errors."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from ptxbench.agent.feedback.where import axis_facts, kind_facts
from ptxbench.models import PastTurn
from ptxbench.profiler.comparison import compare_output
from ptxbench.records import Evidence, OutputComparison
from ptxbench.records.mismatch import MismatchPattern
from tests.conftest import ROOT
from tests.unit.agent.feedback.parts import stored_evidence, stored_turn, text_of

if TYPE_CHECKING:
    import torch

NAN = math.nan
PARTIAL_WRITE = ROOT / "tests/data/feedback/partial_write_where.json"


def compared(plant: Callable[["torch.Tensor"], Any], *shape: int) -> OutputComparison:
    import torch

    ref = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    out = ref.clone()
    plant(out)
    return compare_output("C", out, ref, atol=1e-2, rtol=1e-2)


def said(output: OutputComparison, *names: str, head_size: int | None = None) -> str:
    assert output.where is not None
    return "\n".join([*kind_facts(output, head_size), *axis_facts(output.where, names)])


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (
            lambda o: o[8:].add_(3),
            ["On axis M: 504 of 512 positions touched, from 8 to 511", "first 8 positions"],
        ),
        (lambda o: o[:-8].add_(3), ["the last 8 positions are right"]),
        (
            lambda o: o[-1].fill_(NAN),
            ["only M = 511 (the last) of 512; NaN throughout", "outputs start as NaN"],
        ),
        (lambda o: o[:, 0].fill_(NAN), ["only N = 0 (the first) of 256"]),
        (lambda o: o.view(32, 16, 256)[:, 8:].mul_(4), ["only positions with M % 16 >= 8", "times about 4"]),
        (lambda o: o.view(64, 8, 256)[:, 3].add_(3), ["only positions with M % 8 == 3"]),
        (lambda o: o.view(512, 4, 64)[..., :16].add_(3), ["only positions with N % 64 < 16"]),
        (lambda o: o.view(64, 8, 256)[:, 2:4].add_(3), ["only positions with M % 8 in 2-3"]),
        (lambda o: o[128:192, 64:128].fill_(0), ["64x64: 1 of 32 touched, ", "the first in tile row 2, tile column 1"]),
        (lambda o: o[128:192, 64:128].fill_(0), ["of the wrong elements are exactly 0"]),
        (lambda o: o.neg_(), ["wrong sign"]),
        (
            lambda o: o.copy_(o.roll(1, 0)),
            ["have little to do with the reference", "Every tile of the output"],
        ),
        (lambda o: o.copy_(o + o.roll(1, 0)), ["follow the reference only in part"]),
        (lambda o: o.copy_(o.t().contiguous().reshape(o.shape)), ["rows and columns are swapped"]),
        (lambda o: o.fill_(math.inf), ["131,072 of the wrong elements are infinite"]),
        (lambda o: o[300:].add_(3), ["wrong in its eighths: 0%, 0%, 0%, 0%, "]),
    ],
)
def test_a_planted_error_is_described(plant: Callable[["torch.Tensor"], Any], words: list[str]) -> None:
    text = said(compared(plant, 512, 256), "M", "N")
    for word in words:
        assert word in text


def test_last_partial_tile() -> None:
    text = said(compared(lambda o: o[896:].add_(3), 1000, 64), "S", "D")
    assert "which is the last, partial tile of 128" in text


def test_heads() -> None:
    text = said(compared(lambda o: o[:, 1::2].add_(3), 2, 12, 64, 64), "B", "H", "S", "D")
    assert "On axis H: only positions with H % 2 == 1" in text


def test_diagonal() -> None:
    import torch

    text = said(compared(lambda o: o.add_(torch.ones_like(o).triu(1) * 5), 256, 256), "S", "T")
    assert "All mismatches lie beyond the diagonal." in text


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (1.4427, "base 2 instead of natural"),
        (128**-0.5, "1/sqrt(D)"),
        (128**0.5, "softmax scale missing"),
        (0.5, "0.5"),
    ],
)
def test_known_factors_have_names(factor: float, words: str) -> None:
    assert words in said(compared(lambda o: o.mul_(factor), 64, 64), "S", "D", head_size=128)


def test_a_nearly_right_output_is_said_to_be_near() -> None:
    import torch

    noise = torch.randn(64, 64, generator=torch.Generator().manual_seed(2)) * 0.05
    assert "follow the reference closely" in said(compared(lambda o: o.add_(noise), 64, 64), "M", "N")


def patterned(name: str, where: MismatchPattern) -> Evidence:
    evidence = stored_evidence(name)
    (trial,) = evidence.run.trials
    (call,) = trial.checks
    outputs = (call.outputs[0].model_copy(update={"where": where}),)
    trial = trial.model_copy(update={"checks": (call.model_copy(update={"outputs": outputs}),)})
    return evidence.model_copy(update={"run": evidence.run.model_copy(update={"trials": (trial,)})})


def test_the_pattern_is_part_of_a_turns_feedback_and_changes_no_verdict() -> None:
    where = MismatchPattern.model_validate_json(PARTIAL_WRITE.read_bytes())
    past: PastTurn = stored_turn("partial_write", evidence=patterned("partial_write", where))
    assert past.record.verdict == stored_turn("partial_write").record.verdict
    text = text_of(past)
    assert "C: On axis M: only M = 8191 (the last) of 8,192; NaN throughout." in text
    assert "(8191, 0), (8191, 1)" in text
    assert "By tiles" not in text
