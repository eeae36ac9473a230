"""The room's face: from a candidate to a Build and its shared object."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import threading
import time
from pathlib import Path
from typing import Protocol, Self

import ptxbench
from ptxbench.errors import InfrastructureError, InputError
from ptxbench.records.build import Build, BuildStatus, ToolchainIdentity
from ptxbench.records.candidate import Candidate
from ptxbench.toolchain import headers, logs
from ptxbench.toolchain.cache import DEFAULT_MAX_BYTES, BuildCache, Built, default_cache_dir
from ptxbench.toolchain.compiler import Compilation, Compiler, prepare
from ptxbench.toolchain.discovery import Tools, discover
from ptxbench.toolchain.faults import disk_full
from ptxbench.toolchain.headers import Headers
from ptxbench.toolchain.plan import NVCC_FLAGS, CompilePlan, PlanError, compiler_environ, read_plan
from ptxbench.toolchain.process import Limits, Session
from ptxbench.toolchain.source_lines import SourceLines, lines_of, with_line_info, write_line_table
from ptxbench.toolchain.steps import Steps
from ptxbench.toolchain.stub import write_stub

_SYMBOL = re.compile(r"[A-Za-z_]\w*")
_TEMPORARY_DIR = "tmp"


class Arch(Protocol):
    """What the toolchain needs to know of an architecture."""

    @property
    def name(self) -> str:
        """Its name in suites, for example ``h100``."""

    @property
    def gencode(self) -> str:
        """nvcc's ``-gencode`` operand, for example ``arch=compute_90a,code=sm_90a``."""


class Toolchain:
    """Builds candidates with one set of tools and one cache. Safe to use from several threads and processes."""

    def __init__(self, tools: Tools, cache: BuildCache, limits: Limits | None = None, *, screened: bool = True) -> None:
        """``screened=False`` builds what the screen would stop, for a self-test that asks what else would stop it."""
        self._screened = screened
        self._tools = tools
        self._cache = cache
        self._limits = limits or Limits()
        self._lock = threading.Lock()
        self._plans: dict[tuple[str, Headers], CompilePlan] = {}
        self._stub_dir: Path | None = None

    @classmethod
    def discover(
        cls,
        cache_dir: Path | None = None,
        *,
        limits: Limits | None = None,
        max_cache_bytes: int = DEFAULT_MAX_BYTES,
        screened: bool = True,
    ) -> Self:
        """Finds the tools of this machine and opens the cache, by default the user's.

        Raises InfrastructureError("compiler_missing"), or InputError when the cache folder cannot be written.
        """
        cache = BuildCache(cache_dir or default_cache_dir(), max_cache_bytes)
        return cls(discover(), cache, limits, screened=screened)

    @property
    def tools(self) -> Tools:
        """The tools that were found, with their paths on this machine."""
        return self._tools

    @property
    def identity(self) -> ToolchainIdentity:
        """What compiles, for any architecture, with the light headers."""
        return self._identity(NVCC_FLAGS, "light")

    def build(self, candidate: Candidate, arch: Arch) -> Built:
        """Builds and inspects a candidate, or returns the cached build of the same content.

        A source on which a compiler crashes gets a compile error. Raises InputError for an entry that names no
        function, InfrastructureError for faults that are not the candidate's: ``compiler_missing``, ``disk_full``,
        ``compiler_crashed`` (killed from outside, or a crash that does not repeat itself).
        """
        symbol = candidate.entry.rpartition("::")[2]
        if not _SYMBOL.fullmatch(symbol):
            raise InputError(f"expected an entry FILE::FUNCTION such as kernel.cu::run; found {candidate.entry!r}")
        key = self._key(candidate, arch)
        try:
            built = self._cache.load(key, candidate_sha256=candidate.sha256)
            if built is None:
                with self._cache.locked(key):
                    built = self._cache.load(key, candidate_sha256=candidate.sha256)
                    built = built or self._build(key, candidate, symbol, arch)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise disk_full(self._cache.folder) from error
            message = f"expected to run the compiler in {self._cache.folder}; the system refused: {error}"
            raise InfrastructureError("compiler_crashed", message) from error
        return built._replace(candidate=candidate)

    def source_lines(self, candidate: Candidate, arch: Arch, built: Built) -> SourceLines | None:
        """Lines of the candidate's source by place in the device code of its build.

        A second build, cached like the first. None where there is no object or no disassembler, or where that build
        fails. Raises InfrastructureError as ``build`` does.
        """
        tool = self._tools.disassembler
        if built.so_path is None or tool is None:
            return None
        key = hashlib.sha256(f"source lines of {self._key(candidate, arch)}".encode()).hexdigest()
        with self._cache.locked(key):
            cached = self._cache.load(key) or self._build_lines(key, candidate, arch, built.build)
        return lines_of(cached.so_path, built.so_path) if cached is not None and cached.so_path is not None else None

    def _build_lines(self, key: str, candidate: Candidate, arch: Arch, build: Build) -> Built | None:
        tool, plan = self._tools.disassembler, with_line_info(self._plan(arch.gencode, build.toolchain.headers))
        assert tool is not None
        with (
            self._cache.work_folder() as folder,
            Session(folder, self._environ(plan, folder), self._limits) as session,
        ):
            steps = Steps(plan, folder, session)
            prepare(steps, candidate.source, self._tools)
            table = write_line_table(steps, tool)
            # The table takes the object's place in the entry.
            return self._cache.store(key, build, table) if table is not None else None

    def _build(self, key: str, candidate: Candidate, symbol: str, arch: Arch) -> Built:
        started = time.monotonic()
        choices = headers.header_choices(candidate.source)
        for choice in choices:
            plan = self._plan(arch.gencode, choice)
            with (
                self._cache.work_folder() as folder,
                Session(folder, self._environ(plan, folder), self._limits, started) as session,
            ):
                steps = Steps(plan, folder, session)
                compiler = Compiler(self._tools, self._stub, steps, screened=self._screened)
                result = compiler.compile(candidate.source, symbol)
                if result.rejected_by_front_end and choice != choices[-1]:
                    continue
                return self._keep(key, self._record(candidate, arch, choice, result, folder), result)
        raise AssertionError("header_choices is never empty")

    def _keep(self, key: str, build: Build, result: Compilation) -> Built:
        return self._cache.store(key, build, result.shared_object) if result.lasting else Built(build, None)

    def _record(self, candidate: Candidate, arch: Arch, choice: Headers, result: Compilation, folder: Path) -> Build:
        if result.findings:
            status = BuildStatus.SCREENED
        else:
            status = BuildStatus.OK if result.shared_object else BuildStatus.COMPILE_ERROR
        log, truncated = logs.bounded(logs.without_resources(self._scrubber(folder).scrub(result.log)))
        return Build(
            candidate_sha256=candidate.sha256,
            arch=arch.name,
            status=status,
            findings=result.findings,
            log=log,
            log_truncated=truncated,
            timed_out=result.timed_out,
            so_sha256=result.so_sha256,
            cubins=result.cubins,
            resources=result.resources,
            toolchain=self._identity((*NVCC_FLAGS, "-gencode", arch.gencode), choice),
            inspection="ok" if self._tools.disassembler and result.disassembled else "unavailable",
        )

    def _identity(self, flags: tuple[str, ...], choice: Headers) -> ToolchainIdentity:
        tools = self._tools
        return ToolchainIdentity(
            nvcc=tools.compiler.version,
            origin=tools.compiler.origin,
            host_compiler=f"g++ {tools.host.version}",
            disassembler=f"nvdisasm {tools.disassembler.version}" if tools.disassembler else "none",
            flags=flags,
            tvm_ffi=tools.tvm_ffi.version,
            headers=choice,
        )

    def _key(self, candidate: Candidate, arch: Arch) -> str:
        parts = {
            "candidate": candidate.sha256,
            "arch": arch.name,
            "gencode": arch.gencode,
            "toolchain": self.identity.model_dump(mode="json"),
            "light_headers": headers.light_digest(),
            "harness": ptxbench.__version__,
            **({} if self._screened else {"screened": False}),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _plan(self, gencode: str, choice: Headers) -> CompilePlan:
        with self._lock:
            if (gencode, choice) not in self._plans:
                nvcc, host = self._tools.compiler.nvcc, self._tools.host.path
                try:
                    self._plans[gencode, choice] = read_plan(nvcc, host, gencode, headers.include_dirs(choice))
                except PlanError as error:
                    raise InfrastructureError(
                        "compiler_missing", f"expected an nvcc that compiles for {gencode}; {nvcc} does not: {error}"
                    ) from error
            return self._plans[gencode, choice]

    def _stub(self) -> Path:
        with self._lock:
            if self._stub_dir is None:
                include_dir, host = self._tools.compiler.include_dir, self._tools.host.path
                digest = hashlib.sha256((include_dir / "cuda.h").read_bytes()).hexdigest()
                self._stub_dir = self._cache.artefact(
                    f"libcuda-stub-{digest[:16]}", lambda folder: write_stub(folder, host, include_dir)
                )
            return self._stub_dir

    def _environ(self, plan: CompilePlan, folder: Path) -> dict[str, str]:
        # Temporary files of killed tools disappear with the folder.
        temporary = folder / _TEMPORARY_DIR
        temporary.mkdir()
        return {**compiler_environ(), **plan.env, "TMPDIR": str(temporary), "HOME": str(folder)}

    def _scrubber(self, folder: Path) -> logs.PathScrubber:
        tools = self._tools
        return logs.PathScrubber(
            [
                (folder, ""),
                (headers.LIGHT_DIR, headers.LIGHT_LINK),
                (tools.tvm_ffi.include_dir, headers.FULL_LINK),
                (tools.compiler.include_dir, "cuda"),
                *((directory, "include") for directory in tools.host.include_dirs),
            ]
        )
