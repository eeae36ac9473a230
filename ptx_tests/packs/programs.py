"""Check programs: a pack's templates and a ``.cu`` of kernels, built like a candidate, run in a process of its own."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ptx_tests.packs.blocks import code_blocks
from ptx_tests.packs.program import Program

from ptxbench.packs.pack import PackFolder
from ptxbench.records import BuildStatus, Candidate
from ptxbench.toolchain import Toolchain

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
Check = Callable[[Program], None]

CONTRACTS = "contracts"

SECONDS = 60
"""For one run of a program: a check takes milliseconds; a hang ends here."""

AFTER_A_FAULT = 3
"""Exit code of a process that has told of a fault and wants to be started again for the rest."""


class Outcome(NamedTuple):
    """Of one check."""

    passed: bool
    detail: str


def programs(arch: str) -> tuple[str, ...]:
    """Names of the check programs of an architecture that have models, in a Python file of the same name."""
    return tuple(sorted(path.stem for path in (HERE / arch).glob("*.cu") if path.with_suffix(".py").exists()))


def models(arch: str, program: str) -> str:
    """The module that holds a program's checks."""
    return f"{__package__}.{arch}.{program}"


def checks(arch: str, program: str) -> Mapping[str, Check]:
    """The checks of a program: functions that take its module and raise AssertionError."""
    return _checks(models(arch, program))


def source(pack: PackFolder, program: str, templates: str) -> str:
    """A program as one file; ``contracts`` has the code of the pack's prose as well."""
    folder = HERE / pack.arch.name
    common = folder / "common.cuh"
    parts = [templates, common.read_text() if common.exists() else ""]
    if program == CONTRACTS:
        parts += (block for _, block in code_blocks(pack))
    return "\n".join((*parts, (folder / f"{program}.cu").read_text()))


def build(toolchain: Toolchain, pack: PackFolder, program: str, templates: str) -> Path:
    """The shared object of a program. Raises AssertionError with the compiler's output."""
    text = source(pack, program, templates)
    entry = f"kernel.cu::{_first_export(text)}"
    built = toolchain.build(Candidate(source=text, entry=entry), pack.arch)
    assert built.build.status is BuildStatus.OK, f"{program}: {built.build.findings}\n{built.build.log}"
    assert built.so_path is not None
    return built.so_path


def run(module: str, so_path: Path, names: Sequence[str]) -> dict[str, Outcome]:
    """Runs checks of a module on a built program, in a process of their own.

    After a check that faults, hangs or ends its process, the rest run in a new one: no failure hides another.
    """
    outcomes: dict[str, Outcome] = {}
    waiting = list(names)
    while waiting:
        found, ended = _run_once(module, so_path, waiting)
        outcomes.update(found)
        waiting = [name for name in waiting if name not in found]
        if waiting and ended:
            outcomes[waiting.pop(0)] = Outcome(False, ended)
    return outcomes


def _run_once(module: str, so_path: Path, names: Sequence[str]) -> tuple[dict[str, Outcome], str]:
    """What was found, and how the process ended if that was not its own decision."""
    command = [sys.executable, "-m", "ptx_tests.packs.programs", module, str(so_path), *names]
    path = os.pathsep.join((str(ROOT), str(ROOT / "plugins"), os.environ.get("PYTHONPATH", "")))
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        output, errors = process.communicate(timeout=SECONDS)
        ended = f"the process ended with code {process.returncode}: {errors.strip()[-500:]}"
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        ended = f"no answer within {SECONDS} s"
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{") and line.endswith("}")]
    found = {line["check"]: Outcome(line["passed"], line["detail"]) for line in lines}
    return found, "" if found and process.returncode == AFTER_A_FAULT else ended


def _checks(module: str) -> Mapping[str, Check]:
    found: Mapping[str, Check] = importlib.import_module(module).CHECKS
    return found


def _first_export(text: str) -> str:
    return text.split("TVM_FFI_DLL_EXPORT_TYPED_FUNC(", 1)[1].split(",", 1)[0]


class _Program:
    """A loaded program whose functions take numpy arrays and numbers."""

    def __init__(self, so_path: str) -> None:
        # tvm_ffi imports torch where it is installed: seconds for nothing.
        sys.modules["torch"] = None  # type: ignore[assignment]
        import tvm_ffi

        self._convert = tvm_ffi.from_dlpack
        self._module = tvm_ffi.load_module(so_path)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._module, name)
        return lambda *values: function(*(self._convert(v) if hasattr(v, "__dlpack__") else v for v in values))


def _main(module: str, so_path: str, names: Sequence[str]) -> None:
    """Runs checks one after the other and says of each how it went, in a line of JSON."""
    loaded = _Program(so_path)
    for name in names:
        fault = False
        try:
            _checks(module)[name](loaded)
            passed, detail = True, ""
        except Exception as error:  # whatever a check raises is its result
            fault = not isinstance(error, AssertionError)
            passed, detail = False, f"{type(error).__name__}: {error}"[:2000]
        sys.stdout.write(json.dumps({"check": name, "passed": passed, "detail": detail}) + "\n")
        sys.stdout.flush()
        if fault:
            # Anything but a disagreement may be an error of CUDA, after which a context is of no more use.
            os._exit(AFTER_A_FAULT)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], sys.argv[3:])
