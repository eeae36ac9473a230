"""Checks of this machine apart from its GPU: compilers, packages, keys, folders."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ptxbench.doctor.check import Check, gap, installed, ok, unknown
from ptxbench.errors import InfrastructureError
from ptxbench.profiler.containment import describe_here
from ptxbench.toolchain import discovery
from ptxbench.toolchain.cache import default_cache_dir

MODEL_KEYS = (
    "ANTHROPIC_API_KEY",
    "AZURE_API_KEY",
    "DEEPSEEK_API_KEY",
    "GEMINI_API_KEY",
    "MISTRAL_API_KEY",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "XAI_API_KEY",
)
"""Environment variables in which providers' keys are usually kept. Their values are never read into a report."""


def check_python() -> Check:
    """The interpreter; packaging already refuses one that is too old."""
    return ok("Python", f"{platform.python_implementation()} {platform.python_version()}")


def check_compilers(environ: Mapping[str, str] = os.environ) -> tuple[Check, Check]:
    """The host compiler, and the CUDA compiler that drives it."""
    cost = "nothing can be built, so every turn is an infrastructure error"
    remedy = "install g++ (Debian, Ubuntu: apt-get install g++)"
    try:
        host = discovery.find_host_compiler(environ)
    except InfrastructureError as error:
        return gap("host compiler", str(error), cost, remedy), gap(
            "CUDA compiler", "not looked for without a host compiler", cost, remedy
        )
    found = ok("host compiler", f"g++ {host.version}")
    try:
        compiler = discovery.find_compiler(environ, host)
    except InfrastructureError as error:
        return found, gap("CUDA compiler", str(error), cost, "pip install 'ptxbench[toolchain]'")
    return found, ok("CUDA compiler", f"nvcc {compiler.version} ({compiler.origin})")


def check_disassembler(environ: Mapping[str, str] = os.environ) -> Check:
    """What reads the SASS of a built object."""
    disassembler = discovery.find_disassembler(environ)
    if disassembler is None:
        cost = "built code cannot be inspected, so the target indicator is unknown"
        return gap("disassembler", "no nvdisasm", cost, "pip install 'ptxbench[toolchain]'")
    return ok("disassembler", f"nvdisasm {disassembler.version}")


def check_tvm_ffi() -> Check:
    """The package behind the kernel ABI."""
    found = installed("apache-tvm-ffi")
    if found is None:
        remedy = "pip install 'ptxbench[toolchain]'"
        return gap("TVM-FFI", "apache-tvm-ffi is not installed", "no kernel can be built or loaded", remedy)
    return ok("TVM-FFI", found)


def check_model_keys(environ: Mapping[str, str] = os.environ) -> Check:
    """Which providers' keys are set, by name."""
    names = [name for name in MODEL_KEYS if environ.get(name)]
    if names:
        return ok("model keys", ", ".join(names))
    return gap(
        "model keys",
        "none is set",
        "models behind a key cannot be asked; reference, file and replay need none",
        "set the key of the provider, for example ANTHROPIC_API_KEY",
    )


def check_build_cache() -> Check:
    """The folder that keeps built objects."""
    return _writable("build cache", default_cache_dir(), "every build starts from nothing", "set PTXBENCH_CACHE")


def check_runs(folder: Path) -> Check:
    """The folder that keeps runs unless ``--run`` names another."""
    return _writable("run folder", folder, "no run can be kept", "make it writable, or give --run a path")


def _writable(name: str, folder: Path, cost: str, remedy: str) -> Check:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return gap(name, f"{folder}: {error.strerror or error}", cost, remedy)
    return ok(name, str(folder))


def check_containment() -> Check:
    """The layers that this machine's kernel puts around a candidate's process. Whether CUDA works inside of all of them
    is found out on the device, when the first candidate is measured."""
    name = "containment"
    cost = "a hostile kernel that is measured here can do more than compute"
    remedy = "see docs/containment.md for what each layer needs, or measure in a virtual machine of its own"
    try:
        layers = describe_here()
    except InfrastructureError as error:
        return unknown(name, str(error), cost, remedy)
    found = f"{len(layers.active)} layers: {', '.join(layers.active)}"
    if not layers.missing:
        return ok(name, found)
    reasons = "; ".join(f"{layer} ({reason})" for layer, reason in layers.missing.items())
    return gap(name, f"{found}; without {reasons}", cost, remedy)
