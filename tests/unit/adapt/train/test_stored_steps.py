"""What a training step took on a GPU, as it was kept, and the page that tells of it."""

from __future__ import annotations

import json

import pytest

from tests.conftest import ROOT
from tests.perf.bench_gpu_training import TOKENS

RECORDS = sorted((ROOT / "tests" / "evidence").glob("training_*.json"))
PAGE = (ROOT / "docs" / "adaptation-train.md").read_text()


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_page_tells_what_was_measured(path) -> None:
    found = json.loads(path.read_text())
    first, second = found["steps_s"]
    assert found["tokens_per_s"] == pytest.approx(2 * TOKENS / second, rel=1e-3)
    assert all(8 < loss < 16 for loss in found["losses"]), "a random model's"
    offload = "yes" if found["offload"] else "no"
    figures = f"{second:.1f} | {first:.1f} | {found['tokens_per_s']:,} | {found['peak_gib']}"
    assert f"| {found['shape']} | {offload} | {figures} |" in PAGE


def test_there_is_one() -> None:
    assert RECORDS
