"""How near rounding comes to the tolerance, as far as one draw tells."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.support import rounding_draws  # noqa: E402 - torch first


def test_rounding_is_neither_nothing_nor_far_beyond_tolerance() -> None:
    torch.manual_seed(2)
    found = rounding_draws.worst_ratios()
    assert found.keys() == rounding_draws.BEFORE.keys()
    assert all(0.3 < ratio < 3 for ratio in found.values()), found
    assert len(set(found.values())) == len(found), "each way rounds differently"
