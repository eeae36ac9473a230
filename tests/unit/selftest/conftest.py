"""A small corpus of fixture kernels, whose evidence was measured on a device and is committed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ptxbench.selftest.subjects import Subject, load_subjects
from tests.conftest import ROOT
from tests.fixtures.kernels import load

ATTACKS: dict[str, dict[str, object]] = {
    "stale_output/stale_output": {
        "threat": "stale_output.first_calls",
        "outcome": "numerical_error",
        "rule": "check.timed_iteration",
        "defences": ["timed_checks"],
    },
    "decoy/decoy_unlaunched": {
        "threat": "decoy.unexecuted",
        "outcome": "correct",
        "rule": "target.not_executed",
        "target": "not_executed",
        "defences": ["instruction_counts"],
    },
    "undefined/oob_read": {
        "threat": "undefined.behaviour",
        "outcome": "memory_error",
        "rule": "memory.memcheck",
        "safe": False,
        "defences": ["memcheck"],
    },
    "library/cublas_include": {
        "threat": "library.foreign_code",
        "outcome": "screened",
        "rule": "screen.library_header",
        "stage": "screen",
        "defences": ["screen"],
    },
}
COMMON: dict[str, object] = {"mechanism": "of a fixture", "source": "ours", "stage": "device", "variant": "plain"}


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders of four attacks and one honest kernel."""
    top = tmp_path_factory.mktemp("corpora")
    for name, entry in ATTACKS.items():
        folder = top / "attacks" / Path(name).parent
        folder.mkdir(parents=True)
        (folder / "expected.yaml").write_text(yaml.safe_dump({Path(name).name: {**COMMON, **entry}}))
        (top / "attacks" / f"{name}.cu").write_text(load(Path(name).name))
    (top / "honest").mkdir()
    (top / "honest" / "generic_gemm.cu").write_text(load("generic_gemm"))
    (top / "honest" / "expected.yaml").write_text(yaml.safe_dump({"generic_gemm": {"looks_like": "a plain GEMM"}}))
    return top / "attacks", top / "honest"


@pytest.fixture(scope="session")
def subjects(corpora: tuple[Path, Path]) -> tuple[Subject, ...]:
    return load_subjects(ROOT, "h100", corpora)
