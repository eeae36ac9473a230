"""The real program of the sandbox inside its real layers, over stubs of the libraries that need a device."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from ptxbench.profiler.containment import OPTIONAL, Choice
from ptxbench.profiler.processes import descendants
from ptxbench.profiler.worker import Worker, sandbox_command

STUBS = Path(__file__).with_name("stub_cuda")


def install_stubs(folder: Path) -> Path:
    """Put the stubs into a folder, for PYTHONPATH."""
    target = folder / "stubs"
    shutil.copytree(STUBS, target, ignore=shutil.ignore_patterns("__pycache__"))
    build(target / "libcupti.cpp", target / "libcupti.so")
    return target


def build(source: Path, target: Path) -> Path:
    """Compile a shared object."""
    command = ["g++", "-shared", "-fPIC", "-O1", "-pthread", "-o", str(target), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return target


def build_text(text: str, target: Path) -> Path:
    """Compile a shared object from a source's text."""
    source = target.with_suffix(".cpp")
    source.write_text(text)
    return build(source, target)


def start(layers: tuple[str, ...] = OPTIONAL) -> Worker:
    """A sandbox in these layers, ready for its candidate."""
    worker = Worker(sandbox_command(choice=Choice(layers=layers)))
    try:
        worker.wait_ready()
    except BaseException:
        worker.close()
        raise
    return worker


def job(so_path: Path, symbol: str = "run") -> dict[str, Any]:
    """A candidate without tensors."""
    return {"handle": "00", "tensors": [], "scalars": [], "so_path": str(so_path), "symbol": symbol}


def family(worker: Worker) -> list[int]:
    """Its process and all that descend from it."""
    return [worker.process.pid, *descendants(worker.process.pid)]
