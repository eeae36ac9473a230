"""The caller's GPUs, one by one, each by a name that CUDA_VISIBLE_DEVICES understands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping

from ptxbench.profiler.device import device_count

SMI_TIMEOUT_S = 30.0
_LINE = re.compile(r"^(?P<kind>GPU \d+:|\s+MIG ).*\(UUID: (?P<uuid>[^)\s]+)\)", re.MULTILINE)


def visible_devices(environ: Mapping[str, str] = os.environ) -> list[str]:
    """What a process of ours may be given, in the caller's order; empty if there is none.

    Names are those of CUDA_VISIBLE_DEVICES where it is set: indices, UUIDs or their beginnings, MIG names. Where it is
    not, they are UUIDs, since CUDA and nvidia-smi number devices differently; of a GPU that is cut up, those of its MIG
    instances, since a process can use only one of them.
    """
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return _listed(listed)
    return _told_by_smi() or [str(index) for index in range(device_count())]


def _listed(text: str) -> list[str]:
    """CUDA sees the devices before the first name that is none, as -1 is (CUDA programming guide, environment)."""
    found: list[str] = []
    for name in map(str.strip, text.split(",")):
        if not name or not re.fullmatch(r"\d+|(GPU|MIG)-[\w./-]+", name):
            break
        if name not in found:
            found.append(name)
    return found


def _told_by_smi() -> list[str]:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return []
    try:
        answer = subprocess.run([smi, "-L"], capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    found: list[list[str]] = []
    for line in _LINE.finditer(answer.stdout):
        if line["kind"].startswith("GPU"):
            found.append([line["uuid"]])
        elif found:
            found[-1].append(line["uuid"])
    # A GPU line is followed by its instances, where it is cut up.
    return [name for gpu, *instances in found for name in (instances or [gpu])]
