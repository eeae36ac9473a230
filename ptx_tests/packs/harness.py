"""Kernels that use one function each, made from a pack's claims; and the compiler and disassembler to judge them by."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from ptxbench.packs.pack import PackFolder
from ptxbench.packs.source import as_one_file, read_header
from ptxbench.packs.validation import Claim
from ptxbench.toolchain.discovery import Tools
from ptxbench.toolchain.headers import LIGHT_DIR

EXPORT = "\nstatic void run() {}\nTVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);\n"

_KERNEL = """
extern "C" __global__ void {cluster}__launch_bounds__(128, 1)
    use_{name}([[maybe_unused]] const __grid_constant__ CUtensorMap map, uint32_t* out, [[maybe_unused]] void* global,
               [[maybe_unused]] int x) {{
  extern __shared__ __align__(1024) uint8_t raw_{name}[];
  uint8_t* const raw = raw_{name};
  [[maybe_unused]] const uint32_t smem = static_cast<uint32_t>(__cvta_generic_to_shared(raw)) + 4096;
  [[maybe_unused]] const uint32_t bar = smem + 131072;
  [[maybe_unused]] uint32_t r = 0;
  const uint32_t* word = reinterpret_cast<const uint32_t*>(raw) + threadIdx.x;
  const uint32_t before = *word;
  {{
    {use}
  }}
  const uint32_t after = *word;
  out[threadIdx.x] = before;
  out[threadIdx.x + 128] = after;
  out[threadIdx.x + 256] = r;
}}
"""
_HOST = """
[[maybe_unused]] static void use_{name}([[maybe_unused]] tvm::ffi::TensorView tensor) {{
  {use}
}}
"""
_SECTION = re.compile(r"^\s*(?:\.text\.(\S+):|\.section\s+\.text\.([^\s,]+))")
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-fA-F]{4,}\*/\s*(?:\{\s*)?(?:@!?U?P(?:\d+|T)\s+)?([A-Z][\w.]*)")


class Compiled(NamedTuple):
    """What a compiler made of a source: for each kernel its instructions in order, those of SASS without operands."""

    returncode: int
    output: str
    ptx: Mapping[str, tuple[str, ...]]
    sass: Mapping[str, tuple[str, ...]]


def one_file(pack: PackFolder) -> str:
    """All templates of a pack, as one source."""
    return as_one_file(read_header(path) for path in pack.headers())


def uses(claims: Mapping[str, Claim]) -> str:
    """A kernel ``use_<function>`` for each device function, and a host function for each of the others."""
    parts = []
    for name, claim in claims.items():
        cluster = "__cluster_dims__(2, 1, 1) " if claim.cluster else ""
        parts.append((_HOST if claim.host else _KERNEL).format(name=name, use=claim.use, cluster=cluster))
    return "".join(parts)


def compile_source(source: str, gencode: str, tools: Tools, folder: Path) -> Compiled:
    """Compiles with all warnings, and disassembles. Nothing is linked."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "source.cu").write_text(source)
    command = [str(tools.compiler.nvcc), "-std=c++17", "-O3", "-gencode", gencode, "-Xcompiler", "-Wall,-Wextra"]
    command += ["-Xptxas", "-v", f"-I{LIGHT_DIR}", f"-I{tools.tvm_ffi.include_dir}", "--keep", "-c", "source.cu"]
    done = _run(command, folder)
    cubins = sorted(folder.glob("*.cubin"))
    if done.returncode or not cubins or tools.disassembler is None:
        return Compiled(done.returncode, done.stdout, {}, {})
    text = _run([str(tools.disassembler.path), "-c", cubins[0].name], folder)
    if text.returncode:
        return Compiled(text.returncode, text.stdout, {}, {})
    (ptx,) = folder.glob("*.ptx")
    return Compiled(0, done.stdout, _ptx_lines(ptx.read_text()), _instructions(text.stdout))


def warnings(output: str) -> list[str]:
    """Lines of a compiler's output that warn or remark."""
    words = re.compile(r"warning|remark|\bserializ|ignored|C75\d\d", re.IGNORECASE)
    return [line for line in output.splitlines() if words.search(line)]


def holds(instructions: tuple[str, ...], mnemonic: str) -> bool:
    """Whether some instruction is ``mnemonic`` (``*``: any letters), or that with more modifiers."""
    return any(fnmatchcase(found, mnemonic) or fnmatchcase(found, f"{mnemonic}.*") for found in instructions)


def holds_ptx(lines: tuple[str, ...], mnemonic: str) -> bool:
    """Whether some line of PTX holds ``mnemonic``, in which ``*`` stands for what a macro filled in."""
    pattern = re.compile(r"[\w.]+".join(map(re.escape, mnemonic.replace("%%", "%").split("*"))) + r"(?![\w:])")
    return any(pattern.search(line) for line in lines)


def waits(instructions: tuple[str, ...]) -> bool:
    """Whether a kernel waits for other threads or for TMA, so that the assembler may not merge loads either."""
    return any(holds(instructions, each) for each in ("BAR.SYNC", "SYNCS.PHASECHK", "UCGABAR_WAIT"))


def shared_loads(lines: tuple[str, ...]) -> int:
    """Loads from shared memory in PTX or SASS: two in a kernel where the compiler kept those around ``use`` apart."""
    return sum(bool(re.match(r"ld\.shared\.[bu]32\b|LDS\b", line)) for line in lines)


def _ptx_lines(text: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for part in re.split(r"^(?=\.(?:visible|extern|weak|func|entry)\b)", text, flags=re.MULTILINE):
        entry = re.search(r"\.entry\s+(\w+)", part)
        if entry:
            found[entry[1]] = tuple(line.strip() for line in part.splitlines())
    return found


def _instructions(text: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        section = _SECTION.match(line)
        if section:
            current = found.setdefault(section[1] or section[2], [])
        elif current is not None and (instruction := _INSTRUCTION.match(line)):
            current.append(instruction[1].rstrip("."))
    return {name: tuple(lines) for name, lines in found.items()}


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=600
    )
