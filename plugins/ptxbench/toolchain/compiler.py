"""One compilation of one candidate in a private folder: preprocess, screen, compile, assemble, link, screen again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ptxbench.records.build import Cubin, Finding, KernelResources
from ptxbench.toolchain import faults, headers
from ptxbench.toolchain.disassembly import Disassembly, disassemble
from ptxbench.toolchain.discovery import Tools
from ptxbench.toolchain.elf import Elf
from ptxbench.toolchain.plan import MODULE_ID, OBJECT_NAME
from ptxbench.toolchain.preprocessing import MISSING_DIR, preprocess
from ptxbench.toolchain.resources import parse_resources
from ptxbench.toolchain.sass import describe_cubin, function_names
from ptxbench.toolchain.screen import HeaderFolders, screen_object, screen_shared_object
from ptxbench.toolchain.steps import FRONT_END_STEPS, StepError, Steps
from ptxbench.toolchain.translation import SOURCE_NAME

SHARED_OBJECT_NAME = "kernel.so"
EXPORT_PREFIX = "__tvm_ffi_"
"""What TVM-FFI puts before the name of an exported function."""

_EXPORTS_NAME = "exports.map"
_EXPORTS = "{ global: " + EXPORT_PREFIX + "*; local: *; };\n"


class Compilation(NamedTuple):
    """What one attempt gave. ``shared_object`` is None unless everything succeeded."""

    findings: tuple[Finding, ...] = ()
    log: str = ""
    failed_step: str = ""
    timed_out: bool = False
    limited: bool = False
    """A limit of time, memory or file size ended it: true of this machine and moment only."""
    crashed: bool = False
    """A tool crashed on this source, twice. Such an end can still be the machine's."""
    disassembled: bool = True
    """Whether the disassembler, if there is one, read the device code."""
    shared_object: Path | None = None
    so_sha256: str | None = None
    cubins: tuple[Cubin, ...] = ()
    resources: tuple[KernelResources, ...] = ()

    @property
    def lasting(self) -> bool:
        """Whether the same content surely gives this again, so that it may be cached."""
        return not self.limited and not self.crashed

    @property
    def rejected_by_front_end(self) -> bool:
        """Whether the language's front end rejected the source, or crashed, so that other headers may change that."""
        return self.failed_step in FRONT_END_STEPS and not self.limited


class Compiler:
    """Compiles a source in the folder of ``steps``, whose plan was made for the same headers.

    ``stub_dir`` gives the folder of the stand-in for libcuda, which only a link needs. What the screen finds ends the
    compilation, unless ``screened`` is off, which only the self-test's is.
    """

    def __init__(self, tools: Tools, stub_dir: Callable[[], Path], steps: Steps, *, screened: bool = True) -> None:
        self._screened = screened
        self._tools = tools
        self._stub_dir = stub_dir
        self._steps = steps
        self._folder = steps.folder

    def compile(self, source: str, entry_symbol: str) -> Compilation:
        """Compiles and inspects ``source``. Raises InfrastructureError for what is not the candidate's fault."""
        prepare(self._steps, source, self._tools)
        with ThreadPoolExecutor(2) as pool:
            try:
                return self._compile(pool, source, entry_symbol)
            except StepError as failure:
                return self._failed(failure)
            finally:
                # Whatever ends the compilation ends its processes, or leaving the pool would wait for them.
                self._steps.session.cancel()

    def _compile(self, pool: ThreadPoolExecutor, source: str, entry_symbol: str) -> Compilation:
        steps = self._steps
        findings = preprocess(steps, pool, source, self._header_folders())
        if findings and self._screened:
            return Compilation(findings=findings)
        host, device = pool.submit(steps.run, "host_front"), pool.submit(steps.run_device)
        # The host's errors come first, as from nvcc; a source that is wrong for both is reported once.
        host.result()
        device.result()
        disassembly = pool.submit(disassemble, steps, self._tools.disassembler)
        steps.run("host_compile")
        findings = screen_object((self._folder / OBJECT_NAME).read_bytes())
        if findings and self._screened:
            return Compilation(findings=findings)
        steps.run("link", self._link_command())
        return self._finish(entry_symbol, disassembly)

    def _header_folders(self) -> HeaderFolders:
        tools = self._tools
        ours = (Path(MISSING_DIR), headers.LIGHT_DIR, tools.tvm_ffi.include_dir)
        return HeaderFolders(self._folder, (*ours, *self._steps.plan.include_dirs, *tools.host.include_dirs))

    def _link_command(self) -> tuple[str, ...]:
        tools = self._tools
        return (
            *(str(tools.host.path), "-shared", OBJECT_NAME, "-o", SHARED_OBJECT_NAME),
            # Only the entry is visible, so that no candidate interposes on the process that loads it; and what is
            # undefined is a compile error, not a surprise at load time.
            *(f"-Wl,--version-script={_EXPORTS_NAME}", "-Wl,--exclude-libs,ALL", "-Wl,-z,defs", "-Wl,--as-needed"),
            *(f"-L{folder}" for folder in (self._stub_dir(), tools.compiler.library_dir, tools.tvm_ffi.library_dir)),
            *("-lcuda", "-ltvm_ffi", "-lcudart_static", "-ldl", "-lrt", "-lpthread"),
        )

    def _finish(self, entry_symbol: str, disassembly: Future[Disassembly]) -> Compilation:
        path = self._folder / SHARED_OBJECT_NAME
        content, image = path.read_bytes(), self._steps.product("assemble").read_bytes()
        findings = screen_shared_object(content, image)
        if findings and self._screened:
            return Compilation(findings=findings)
        exported = {symbol.name for symbol in Elf(content).symbols(".dynsym") if symbol.defined}
        if EXPORT_PREFIX + entry_symbol not in exported:
            advice = f"TVM_FFI_DLL_EXPORT_TYPED_FUNC({entry_symbol}, FUNCTION);"
            message = f"{SOURCE_NAME} exports no function named {entry_symbol}: end it with {advice}\n"
            return Compilation(log=self._steps.log() + message, failed_step="link")
        text, note = disassembly.result()
        return Compilation(
            log=self._steps.log() + note,
            disassembled=note == "",
            shared_object=path,
            so_sha256=hashlib.sha256(content).hexdigest(),
            cubins=(describe_cubin(image, self._steps.plan.device_arch, text),) if function_names(image) else (),
            resources=parse_resources(self._steps.outputs.get("assemble", "")),
        )

    def _failed(self, failure: StepError) -> Compilation:
        session, result = self._steps.session, failure.result
        log = self._steps.log()
        if session.timed_out_tool is not None:
            limit = f"compilation stopped after {session.limits.seconds:g} s, its time limit"
            log = f"{log}{limit}, while {session.timed_out_tool} ran\n"
            return Compilation(log=log, failed_step=failure.step, timed_out=True, limited=True)
        exceeded = faults.limit_note(result)
        if exceeded is not None:
            return Compilation(log=f"{log}{exceeded}\n", failed_step=failure.step, limited=True)
        crash = faults.crash(result)
        if crash is not None:
            log = f"{log}{result.tool} crashed on this source ({crash}), and again when it was run once more\n"
            return Compilation(log=log, failed_step=failure.step, crashed=True)
        faults.raise_if_infrastructure(result, self._folder)
        return Compilation(log=log, failed_step=failure.step)


def prepare(steps: Steps, source: str, tools: Tools) -> None:
    """Put what the steps read into their folder."""
    path = steps.folder / SOURCE_NAME
    path.write_bytes(source.encode("utf-8", "surrogatepass"))
    # __TIMESTAMP__ is the file's. A source whose device code differs from build to build would have no evidence and,
    # measured on another machine, end as a fault of the machinery.
    os.utime(path, (0, 0))
    (steps.folder / steps.plan.module_id_file).write_text(MODULE_ID)
    (steps.folder / _EXPORTS_NAME).write_text(_EXPORTS)
    headers.link_headers(steps.folder, tools.tvm_ffi.include_dir)
