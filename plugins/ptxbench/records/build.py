"""What compiling and inspecting a candidate found. Facts only; the judge decides what they mean."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Literal

from ptxbench.records.base import Count, Record, Sha256


class BuildStatus(StrEnum):
    """How far a candidate got before it ran."""

    OK = "ok"
    SCREENED = "screened"
    COMPILE_ERROR = "compile_error"


class Finding(Record):
    """One hit of the source or symbol screen (PROTOCOL 4.1)."""

    rule: str
    message: str
    file: str | None = None
    line: int | None = None
    excerpt: str = ""


class KernelResources(Record):
    """ptxas -v for one kernel. Bytes, per thread except ``static_smem_bytes`` (per block)."""

    kernel: str
    registers: Count
    stack_bytes: Count
    spill_store_bytes: Count
    spill_load_bytes: Count
    static_smem_bytes: Count
    barriers: Count


class KernelSass(Record):
    """Static instruction histogram of one kernel: opcode up to its first dot -> lines of SASS."""

    kernel: str
    opcodes: dict[str, Count]


class Cubin(Record):
    """One device image embedded in the shared object."""

    sha256: Sha256
    size_bytes: Count
    arch: str
    kernels: tuple[KernelSass, ...]


class ToolchainIdentity(Record):
    """What compiled it. No paths: the same tools elsewhere are the same toolchain."""

    nvcc: str
    origin: Literal["PATH", "CUDA_HOME", "pip"]
    host_compiler: str
    disassembler: str
    flags: tuple[str, ...]
    tvm_ffi: str
    headers: Literal["light", "full"]
    """``light``: our own small TVM-FFI front; ``full``: the headers of apache-tvm-ffi."""


class Build(Record):
    """One candidate built for one architecture."""

    schema_version: Literal[1] = 1
    candidate_sha256: Sha256
    arch: str
    status: BuildStatus
    findings: tuple[Finding, ...] = ()
    log: str = ""
    """Compiler output, without paths of this machine, at most ``MAX_LOG_CHARS`` characters."""
    log_truncated: bool = False
    timed_out: bool = False
    so_sha256: Sha256 | None = None
    cubins: tuple[Cubin, ...] = ()
    resources: tuple[KernelResources, ...] = ()
    toolchain: ToolchainIdentity
    inspection: Literal["ok", "unavailable"] = "ok"
    """``unavailable``: built, but no disassembler was found or it failed, so instruction facts are unknown."""

    @property
    def cubin_sha256(self) -> str | None:
        """Identity of the device code: its one cubin's hash, else the hash of all their hashes. None: nothing built."""
        if self.so_sha256 is None:
            return None
        if len(self.cubins) == 1:
            return self.cubins[0].sha256
        return hashlib.sha256("".join(sorted(cubin.sha256 for cubin in self.cubins)).encode()).hexdigest()

    @property
    def kernels(self) -> tuple[str, ...]:
        """Mangled names of all kernels in the object."""
        return tuple(kernel.kernel for cubin in self.cubins for kernel in cubin.kernels)


MAX_LOG_CHARS = 20_000
