"""Small valid documents of the schema, as plain data that a test may break."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

_DEFINITION: dict[str, Any] = {
    "name": "scale_d8",
    "op_type": "misc",
    "axes": {"M": {"type": "var"}, "D": {"type": "const", "value": 8}},
    "inputs": {
        "X": {"shape": ["M", "D"], "dtype": "bfloat16"},
        "factor": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"Y": {"shape": ["M", "D"], "dtype": "bfloat16"}},
    "reference": "def run(X, factor):\n    return X * factor\n",
}

_WORKLOAD: dict[str, Any] = {
    "definition": "scale_d8",
    "workload": {
        "uuid": "u-1",
        "axes": {"M": 4},
        "inputs": {"X": {"type": "random"}, "factor": {"type": "scalar", "value": 0.5}},
    },
    "solution": None,
    "evaluation": None,
}

_SOLUTION: dict[str, Any] = {
    "name": "scale_cuda",
    "definition": "scale_d8",
    "author": "someone",
    "spec": {"language": "cuda", "target_hardware": ["NVIDIA_H100"], "entry_point": "src/kernel.cu::run"},
    "sources": [{"path": "src/kernel.cu", "content": "// empty\n"}],
}

_EVALUATION: dict[str, Any] = {
    "status": "PASSED",
    "environment": {"hardware": "NVIDIA_H100", "libs": {"cuda": "13.0"}},
    "timestamp": "2026-01-01T00:00:00Z",
    "correctness": {"max_relative_error": 0.01, "max_absolute_error": 0.001},
    "performance": {"latency_ms": 1.0, "reference_latency_ms": 2.0, "speedup_factor": 2.0},
}


def definition() -> dict[str, Any]:
    return copy.deepcopy(_DEFINITION)


def workload() -> dict[str, Any]:
    return copy.deepcopy(_WORKLOAD)


def solution() -> dict[str, Any]:
    return copy.deepcopy(_SOLUTION)


def trace() -> dict[str, Any]:
    return {**workload(), "solution": "scale_cuda", "evaluation": copy.deepcopy(_EVALUATION)}


def write_json(path: Path, data: object) -> Path:
    path.write_text(json.dumps(data, indent=1), encoding="utf-8")
    return path


def write_jsonl(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def change(data: Any, *steps: str | int, to: object) -> Any:
    """Set the value at ``steps`` in place and return the document."""
    inner = data
    for step in steps[:-1]:
        inner = inner[step]
    inner[steps[-1]] = to
    return data
