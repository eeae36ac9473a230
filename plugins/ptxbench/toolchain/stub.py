"""A stand-in for the driver library at link time.

The pip wheels carry no stub of libcuda, and a machine without a driver has no libcuda either. A shared object that
calls the driver must still name ``libcuda.so.1`` as needed, or it fails to load. The stub defines every function that
``cuda.h`` declares, with no body worth calling; it is used even where a real libcuda exists, so that a build does not
depend on the machine's driver.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from ptxbench.errors import InfrastructureError
from ptxbench.toolchain.plan import compiler_environ

SONAME = "libcuda.so.1"

_SECONDS = 60.0
_DECLARATION = re.compile(r"\b(cu[A-Z]\w*)\s*\(")
_SHARED = ("-x", "c", "-shared", "-fPIC", "-nostdlib", "-Wno-builtin-declaration-mismatch")
# cuda.h renames functions by macros; the streams' default changes further names.
_VARIANTS: tuple[tuple[str, ...], ...] = ((), ("-DCUDA_API_PER_THREAD_DEFAULT_STREAM",))


def write_stub(folder: Path, host_compiler: Path, cuda_include: Path) -> None:
    """Writes ``libcuda.so`` into ``folder``. Raises InfrastructureError("compiler_crashed") when that fails."""
    names: set[str] = set()
    for variant in _VARIANTS:
        names.update(declared_functions(_run(host_compiler, folder, "-E", *variant, str(cuda_include / "cuda.h"))))
    source = folder / "stub.c"
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in sorted(names)))
    _run(host_compiler, folder, *_SHARED, f"-Wl,-soname,{SONAME}", "-o", "libcuda.so", source.name)


def declared_functions(header: str) -> set[str]:
    """Names of the driver's functions that preprocessed ``cuda.h`` declares."""
    return set(_DECLARATION.findall(header))


def _run(host_compiler: Path, folder: Path, *args: str) -> str:
    done = subprocess.run(
        [str(host_compiler), *args],
        cwd=folder,
        env=compiler_environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise InfrastructureError(
            "compiler_crashed",
            f"expected {host_compiler.name} to build a stand-in for libcuda from cuda.h; it said: {done.stderr[:500]}",
        )
    return done.stdout
