"""The steps of one compilation, taken from nvcc itself (``nvcc --dryrun``) and then run by us.

Running them ourselves gives three things that one call of nvcc does not. The host and the device half run side by
side. The module id, which nvcc hashes from the absolute path of the source into the names of internal symbols, is a
constant, so that the device code has the same bytes in every folder and on every machine. And each step's failure is
known as that step's.
"""

from __future__ import annotations

import os
import re
import shlex
import string
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ptxbench.toolchain.translation import SOURCE_NAME

NVCC_FLAGS = ("-O3", "-std=c++17", "-Xcompiler", "-fPIC", "-Xptxas", "-v", "--no-compress")
"""-O3 is the protocol's; C++17 is the default of nvcc and TVM-FFI; uncompressed code can be read without a tool."""

OBJECT_NAME = "kernel.o"
MODULE_ID = "_ptxbench_9_kernel_cu"

_DRYRUN_SECONDS = 30.0
_ASSIGNMENT = re.compile(r"(\w+)=(.*)")


def compiler_environ() -> dict[str, str]:
    """The environment of every compiler process: no flags, include paths or secrets of the user's shell reach it."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    # SOURCE_DATE_EPOCH fixes __DATE__ and __TIME__, the zone __TIMESTAMP__; the C locale the language of messages.
    return {**kept, "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0", "TZ": "UTC0"}


class PlanError(Exception):
    """An nvcc cannot be used. ``str()`` is a clause that says why."""


class CompilePlan(NamedTuple):
    """The seven steps, as argument lists relative to the folder of the source, and what they need around them."""

    host_preprocess: tuple[str, ...]
    host_front: tuple[str, ...]
    host_compile: tuple[str, ...]
    device_preprocess: tuple[str, ...]
    device_front: tuple[str, ...]
    assemble: tuple[str, ...]
    pack: tuple[str, ...]
    env: dict[str, str]
    root: Path
    """The toolkit's top folder."""
    include_dirs: tuple[Path, ...]
    library_dirs: tuple[Path, ...]
    module_id_file: str
    device_arch: str
    """What ptxas assembles for, for example ``sm_90a``."""


def read_plan(nvcc: Path, host_compiler: Path, gencode: str, include_dirs: Sequence[str]) -> CompilePlan:
    """Asks nvcc for its steps. ``include_dirs`` are relative to the source's folder. Raises PlanError."""
    includes = [f"-I{folder}" for folder in include_dirs]
    argv = [str(nvcc), "--dryrun", "--keep", "-c", *NVCC_FLAGS, "-ccbin", str(host_compiler), "-gencode", gencode]
    with tempfile.TemporaryDirectory(prefix="ptxbench-plan-") as folder:
        source = Path(folder, SOURCE_NAME)
        source.touch()
        try:
            done = subprocess.run(
                [*argv, *includes, SOURCE_NAME, "-o", OBJECT_NAME],
                cwd=folder,
                env=compiler_environ(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_DRYRUN_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PlanError(f"it does not run ({error})") from error
        if done.returncode != 0:
            raise PlanError(f"`nvcc --dryrun` fails for {gencode}: {_first_line(done.stderr)}")
        # The one absolute path that nvcc passes on: it would reach debug information and diagnostics.
        return parse_plan(done.stderr.replace(str(source), SOURCE_NAME))


def parse_plan(dryrun: str) -> CompilePlan:
    """Reads the output of ``nvcc --dryrun``. Raises PlanError when its steps are not the seven that are expected."""
    env: dict[str, str] = {}
    steps: dict[str, tuple[str, ...]] = {}
    for line in dryrun.splitlines():
        text = line.removeprefix("#$ ").strip()
        assignment = _ASSIGNMENT.fullmatch(text)
        if assignment:
            env[assignment[1]] = assignment[2].strip()
        elif text and line.startswith("#$ "):
            argv = tuple(string.Template(part).safe_substitute(env) for part in _split(text))
            role = _role(argv)
            if role in steps:
                raise PlanError(f"nvcc plans two steps of the kind {role}; one architecture per build is supported")
            steps[role] = argv
    return _assemble_plan(env, steps)


def nvcc_version(plan: CompilePlan) -> str:
    """The compiler's full version, for example ``13.0.88``: nvcc defines it for the preprocessor."""
    parts = []
    for macro in ("MAJOR", "MINOR", "BUILD"):
        prefix = f"-D__CUDACC_VER_{macro}__="
        parts.append(next((arg.removeprefix(prefix) for arg in plan.host_preprocess if arg.startswith(prefix)), "?"))
    return ".".join(parts)


def _role(argv: tuple[str, ...]) -> str:
    tool = Path(argv[0]).name
    known = {"cudafe++": "host_front", "cicc": "device_front", "ptxas": "assemble", "fatbinary": "pack"}
    if tool in known:
        return known[tool]
    if "-E" in argv:
        device = any(arg.startswith("-D__CUDA_ARCH__=") for arg in argv)
        return "device_preprocess" if device else "host_preprocess"
    return "host_compile" if "-c" in argv else tool


def _assemble_plan(env: dict[str, str], steps: dict[str, tuple[str, ...]]) -> CompilePlan:
    expected = {
        *("host_preprocess", "host_front", "host_compile"),
        *("device_preprocess", "device_front", "assemble", "pack"),
    }
    if steps.keys() != expected or "TOP" not in env:
        raise PlanError(f"`nvcc --dryrun` lists the steps {sorted(steps)}, expected {sorted(expected)}")
    front = steps["host_front"]
    if "--module_id_file_name" not in front:
        raise PlanError("its cudafe++ step names no module id file")
    steps["host_front"] = tuple(arg for arg in front if arg != "--gen_module_id_file")
    preprocess = steps["host_preprocess"]
    return CompilePlan(
        **steps,
        env={name: env[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in env},
        root=Path(env["TOP"]).resolve(),
        include_dirs=_folders(preprocess, "-I") + _folders(preprocess, "-isystem"),
        library_dirs=_folders(tuple(_split(env.get("LIBRARIES", ""))), "-L"),
        device_arch=next((arg[6:] for arg in steps["assemble"] if arg.startswith("-arch=")), ""),
        module_id_file=front[front.index("--module_id_file_name") + 1],
    )


def _folders(argv: tuple[str, ...], option: str) -> tuple[Path, ...]:
    """Operands of an option, joined to it or following it."""
    joined = [arg.removeprefix(option) for arg in argv if arg.startswith(option) and arg != option]
    following = [argv[i + 1] for i, arg in enumerate(argv[:-1]) if arg == option]
    return tuple(Path(folder) for folder in joined + following)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise PlanError(f"`nvcc --dryrun` prints a line that no shell reads: {text[:80]}") from error


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line and not line.startswith("#$")]
    return lines[0] if lines else "no message"
