"""What transports said when they measured, held to what the stored evidence of the same kernels says today."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from ptxbench.agent.evaluation import Evaluator
from ptxbench.profiler.replay import ReplayProfiler
from ptxbench.toolchain import Toolchain
from tests.conformance.test_transports import FIXED, KERNELS, evaluated, source
from tests.conformance.transports import EVIDENCE, MEASURING
from tests.conftest import ROOT

RECORDS = {name: ROOT / "tests" / "evidence" / f"conformance_{name}.json" for name in sorted(MEASURING)}


@pytest.mark.parametrize("name", RECORDS)
def test_every_transport_that_measures_said_the_same(name: str, build_cache: Path) -> None:
    said = json.loads(RECORDS[name].read_text())["verdicts"]
    assert set(said) == set(KERNELS)
    evaluator = Evaluator(lambda: Toolchain.discover(cache_dir=build_cache), compile_slots=2)
    for kernel in KERNELS:
        wanted = evaluated(evaluator, ReplayProfiler(EVIDENCE), kernel).verdict.model_dump(mode="json", include=FIXED)
        digest = sha256(source(kernel).encode()).hexdigest()
        assert said[kernel] == {"source_sha256": digest, **wanted}, kernel
