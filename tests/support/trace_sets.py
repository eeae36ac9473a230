"""The test collection ``tests/data/collections/small``, and copies of it that a test may break.

It is laid out as public collections are: three cases of ours in small, and an operator that no suite has (rmsnorm), of
whose two workloads one reads its weight from a safetensors file.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptxbench.trace import Binding, BuildSpec, Solution, SourceFile, SourceLanguage, save_solution

ROOT = Path(__file__).resolve().parents[2]
SMALL = ROOT / "tests" / "data" / "collections" / "small"
OURS = ("gemm_n7168_k5120", "mha_with_lse_d128", "mha_with_lse_d128_causal")
RMSNORM = "rmsnorm_h2048"
RMSNORM_DEFINITION = Path("definitions", "rmsnorm", f"{RMSNORM}.json")
RMSNORM_WORKLOADS = Path("workloads", "rmsnorm", f"{RMSNORM}.jsonl")


def copy_small(folder: Path) -> Path:
    """A copy of the collection."""
    return Path(shutil.copytree(SMALL, folder / "small"))


def blob(collection: Path) -> Path:
    """The collection's only safetensors file."""
    (path,) = collection.rglob("*.safetensors")
    return path


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    """Change a JSON document in place."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data, indent=2))


def edit_line(path: Path, change: Callable[[Any], object], line: int = 1) -> None:
    """Change one line of a JSONL file in place."""
    lines = path.read_text().splitlines()
    data = json.loads(lines[line - 1])
    change(data)
    lines[line - 1] = json.dumps(data)
    path.write_text("\n".join(lines) + "\n")


def add_reference_solutions(collection: Path, arch: str = "h100") -> None:
    """Put the hand-written solutions of our cases into the collection, as solutions of the public schema."""
    for name in OURS:
        source = (ROOT / "generated" / "reference" / arch / name / "kernel.cu").read_text()
        solution = Solution(
            name=f"{name}_reference",
            definition=name,
            author="ptxbench",
            spec=BuildSpec(
                language=SourceLanguage.CUDA,
                target_hardware=(f"NVIDIA_{arch.upper()}",),
                entry_point="kernel.cu::run",
                binding=Binding.TVM_FFI,
            ),
            sources=(SourceFile(path="kernel.cu", content=source),),
        )
        save_solution(solution, collection / "solutions" / "ptxbench" / name / f"{solution.name}.json")
