"""Manifests of datasets, as a report reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ptxbench.report.dataset import MANIFEST


def manifest(name: str = "s0", **changes: Any) -> dict[str, Any]:
    """20 records of two workloads on h100."""
    return {
        "schema_version": 1,
        "name": name,
        "recipe": "4ops",
        "kind": "fixit",
        "records": 20,
        "by_case": {"gemm_n7168_k5120 h100": 15, "mha_with_lse_d128 h100": 5},
        "by_outcome": {"compile_error": 13, "numerical_error": 6, "timeout": 1},
        "by_turn": {"0": 9, "1": 10, "3": 1},
        "by_repair_teacher": {"claude": 12, "gpt": 8},
        "by_teacher": {"claude": 20},
        "by_language": {"cuda": 20},
        "licences": ["others read this"],
    } | changes


def write_manifest(folder: Path, name: str = "s0", **changes: Any) -> Path:
    """Write it into a dataset's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).write_text(json.dumps(manifest(name, **changes)), encoding="utf-8")
    return folder
