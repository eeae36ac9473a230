"""What tests of the toolchain share: a smallest candidate, a cache for all of them, ways to break tools."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ptxbench.toolchain import Toolchain
from ptxbench.toolchain.headers import Headers

MINIMAL = 'extern "C" int __tvm_ffi_run(void*, const void*, int, void*) { return 0; }\n'
"""The candidate that compiles fastest: TVM-FFI's C ABI without a header."""

EXPORT = """
#include <tvm/ffi/tvm_ffi.h>
static void run(tvm::ffi::TensorView) {}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""


class Arch(NamedTuple):
    name: str
    gencode: str


HOPPER = Arch("h100", "arch=compute_90a,code=sm_90a")


def shared_cache(factory: pytest.TempPathFactory) -> Path:
    """A cache of this test run: what one test or one worker of pytest-xdist built, the others find."""
    base = factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "toolchain-cache"


def write_tool(path: Path, script: str) -> str:
    """A shell script in a tool's place. Returns its path as a command names it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def replace_step(toolchain: Toolchain, step: str, tool: str, headers: Headers = "light") -> None:
    """Gives one step of a toolchain's plan to another tool, with the same arguments."""
    plan = toolchain._plan(HOPPER.gencode, headers)
    changes: dict[str, Any] = {step: (tool, *getattr(plan, step)[1:])}
    toolchain._plans[HOPPER.gencode, headers] = plan._replace(**changes)
