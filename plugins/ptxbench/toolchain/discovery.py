"""Finding the tools: the compiler from PATH, CUDA_HOME or the pip wheels, in that order; the disassembler likewise."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from ptxbench.errors import InfrastructureError
from ptxbench.toolchain.plan import CompilePlan, PlanError, nvcc_version, read_plan

Origin = Literal["PATH", "CUDA_HOME", "pip"]

INSTALL_HINT = "install it with `pip install 'ptxbench[toolchain]'` (in a checkout: `pip install -e '.[toolchain]'`)"

_PROBE_SECONDS = 30.0
_PROBE_GENCODE = "arch=compute_90a,code=sm_90a"


class Compiler(NamedTuple):
    """One usable nvcc."""

    nvcc: Path
    origin: Origin
    version: str
    library_dir: Path
    """Where libcudart_static.a lies."""
    include_dir: Path
    """Where cuda_runtime.h and cuda.h lie."""


class HostCompiler(NamedTuple):
    """The C++ compiler that nvcc drives and that links."""

    path: Path
    version: str
    include_dirs: tuple[Path, ...]


class Disassembler(NamedTuple):
    """nvdisasm. cuobjdump is no substitute: it calls nvdisasm for code and fails without it."""

    path: Path
    version: str


class TvmFfi(NamedTuple):
    """The installed apache-tvm-ffi: its C ABI header and its library."""

    include_dir: Path
    library_dir: Path
    version: str


class Tools(NamedTuple):
    """Everything a build needs that is not ours. ``disassembler`` None: builds, but cannot inspect."""

    compiler: Compiler
    host: HostCompiler
    disassembler: Disassembler | None
    tvm_ffi: TvmFfi


def discover(environ: Mapping[str, str] | None = None) -> Tools:
    """Finds the tools on this machine.

    Raises InfrastructureError("compiler_missing") naming every place that was searched and what was wrong there.
    """
    environ = os.environ if environ is None else environ
    host = find_host_compiler(environ)
    return Tools(find_compiler(environ, host), host, find_disassembler(environ), find_tvm_ffi())


def find_compiler(environ: Mapping[str, str], host: HostCompiler) -> Compiler:
    """The first nvcc that works. Raises InfrastructureError("compiler_missing")."""
    searched: list[str] = []
    for origin, place, nvcc in _places(environ, "nvcc"):
        if nvcc is None:
            searched.append(f"{place}: not there")
            continue
        try:
            return _probe(nvcc, origin, host)
        except PlanError as error:
            searched.append(f"{place}: unusable, {error}")
    raise InfrastructureError(
        "compiler_missing",
        "expected an nvcc (CUDA 12.8 or newer); searched " + "; ".join(searched) + f". To get one, {INSTALL_HINT}.",
    )


def find_host_compiler(environ: Mapping[str, str]) -> HostCompiler:
    """g++ from PATH. Raises InfrastructureError("compiler_missing")."""
    found = shutil.which("g++", path=environ.get("PATH", ""))
    text = _output([found, "-v", "-E", "-x", "c++", os.devnull]) if found else None
    version = re.search(r"^gcc version (\S+)", text or "", re.MULTILINE)
    if found is None or version is None:
        raise InfrastructureError(
            "compiler_missing",
            f"expected a working g++ on PATH for nvcc to drive; found {found or 'none'}. "
            "Install the system's C++ compiler (for example the package g++).",
        )
    listed = re.search(r"#include <\.\.\.> search starts here:\n(.*?)End of search list", text or "", re.DOTALL)
    include_dirs = tuple(Path(line.strip()) for line in (listed[1] if listed else "").splitlines())
    return HostCompiler(Path(found), version[1], include_dirs)


def find_disassembler(environ: Mapping[str, str]) -> Disassembler | None:
    """The first nvdisasm that runs, from the same places as the compiler but not necessarily beside it."""
    for _, _, path in _places(environ, "nvdisasm"):
        version = re.search(r"\bV(\d+\.\d+\.\d+)", _output([str(path), "--version"]) or "") if path else None
        if path is not None and version is not None:
            return Disassembler(path, version[1])
    return None


def find_tvm_ffi() -> TvmFfi:
    """The installed apache-tvm-ffi, without importing it. Raises InfrastructureError("compiler_missing")."""
    spec = importlib.util.find_spec("tvm_ffi")
    for folder in map(Path, (spec.submodule_search_locations or ()) if spec else ()):
        include_dir, library_dir = folder / "include", folder / "lib"
        if (include_dir / "tvm/ffi/c_api.h").is_file() and (library_dir / "libtvm_ffi.so").is_file():
            return TvmFfi(include_dir, library_dir, importlib.metadata.version("apache-tvm-ffi"))
    raise InfrastructureError(
        "compiler_missing",
        "expected the package apache-tvm-ffi, whose headers and library kernels are built against; "
        f"Python at {sys.prefix} has none. To get it, {INSTALL_HINT}.",
    )


def _places(environ: Mapping[str, str], tool: str) -> Iterator[tuple[Origin, str, Path | None]]:
    found = shutil.which(tool, path=environ.get("PATH", ""))
    yield "PATH", "PATH", Path(found) if found else None
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        home = environ.get(variable)
        path = Path(home, "bin", tool) if home else None
        place = f"{variable} ({home})" if home else f"{variable} (not set)"
        yield "CUDA_HOME", place, path if path is not None and path.is_file() else None
    wheels = [Path(entry, "nvidia/cu13/bin", tool) for entry in sys.path if entry]
    installed = next((path for path in wheels if path.is_file()), None)
    yield "pip", "the pip wheels (nvidia/cu13 in site-packages)", installed


def _probe(nvcc: Path, origin: Origin, host: HostCompiler) -> Compiler:
    plan = read_plan(nvcc, host.path, _PROBE_GENCODE, ())
    include_dir = _holding(plan.include_dirs, "cuda_runtime.h")
    library_dir = _holding((*plan.library_dirs, *_usual_library_dirs(plan)), "libcudart_static.a")
    _holding(plan.include_dirs, "nv/target")  # cuda_fp16.h needs it: a part of CUDA's own, packaged apart
    return Compiler(nvcc, origin, nvcc_version(plan), library_dir, include_dir)


def _usual_library_dirs(plan: CompilePlan) -> tuple[Path, ...]:
    # The pip wheels put libraries in lib, where nvcc does not look.
    return (plan.root / "lib64", plan.root / "lib")


def _holding(folders: tuple[Path, ...], name: str) -> Path:
    for folder in folders:
        if (folder / name).is_file():
            return folder
    raise PlanError(f"{name} is missing from the toolkit")


def _output(argv: list[str]) -> str | None:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None
