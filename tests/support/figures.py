"""What tests measured on GPUs, kept for whoever reports it.

``PTXBENCH_EVIDENCE_DIR=DIR`` names the folder; nothing is kept without it. Committed under ``tests/evidence/``, the
figures are held to what the tests demand again, without a GPU.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = os.environ.get("PTXBENCH_EVIDENCE_DIR", "")


def keep_figures(name: str, figures: Mapping[str, Any]) -> None:
    """Write them, with when and on what they were measured."""
    if FOLDER:
        Path(FOLDER).mkdir(parents=True, exist_ok=True)
        found = {"measured_at": datetime.now(UTC).isoformat(timespec="seconds"), **_host(), **figures}
        (Path(FOLDER) / name).write_text(json.dumps(found, indent=1) + "\n")


def _host() -> dict[str, Any]:
    """Names of all GPUs of this host, and their driver."""
    import pynvml

    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    return {
        "gpus": [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles],
        "driver": str(pynvml.nvmlSystemGetDriverVersion()),
    }
