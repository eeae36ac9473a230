"""A call that fails: a CUDA error, an exception of the candidate's, a dead process, an object that does not load."""

from __future__ import annotations

from ptxbench.agent.feedback.kernels import launch_limits, static_kernels
from ptxbench.agent.feedback.output_tail import printed
from ptxbench.agent.feedback.parts import Parts, Turn
from ptxbench.agent.feedback.progress import progress
from ptxbench.agent.feedback.sanitizer_findings import sanitizer_facts
from ptxbench.agent.feedback.wording import safe
from ptxbench.records import RunStatus

_CUDA_ERRORS = {
    1: "An argument of a CUDA call or launch is invalid; often more dynamic shared memory than was allowed with "
    "cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), at most 227 KB per block.",
    9: "The launch configuration is invalid: more than 1024 threads per block, a zero extent, or too large a grid.",
    98: "The kernel has no code for this device.",
    209: "The object has no code for this device.",
    700: "A kernel accessed an address that is mapped to nothing: a bad pointer, index, or tensor map address.",
    701: "The launch needs more resources than a block may have: registers x threads above 65,536, or shared memory.",
    710: "A device-side assertion failed.",
    715: "A kernel executed an illegal instruction: for wgmma or TMA mostly a malformed descriptor or tensor map, "
    "an unaligned shared memory address, or setmaxnreg with values out of range.",
    716: "A misaligned access: vector and TMA accesses need aligned addresses (TMA destinations 128 bytes).",
    717: "An instruction got an address of the wrong state space, for example a generic one where shared is needed.",
    718: "A jump to an invalid program counter: corrupted stack or function pointer.",
    719: "The kernel failed during execution: often an access out of shared memory's bounds, a misused barrier, a "
    "wgmma descriptor out of range, or a block of a cluster that exits while others still access its shared memory.",
    720: "The cooperative launch is larger than what the device can hold at once.",
    912: "The cluster size is not allowed, or too large for the shared memory asked for.",
}
"""CUDA runtime API, "CUDA Toolkit error codes": code -> its usual causes in kernels of this kind."""

_LAUNCH_ERRORS = frozenset({1, 9, 98, 209, 701, 720, 912})
"""Codes under which the launch itself was refused."""


def describe(turn: Turn) -> Parts:
    """What ended the call, where, what the sanitizer saw, and what usually causes it."""
    run = turn.evidence.run
    facts = [f"It ended with: {safe(run.message) or 'no message'}", progress(run, turn.case), *sanitizer_facts(turn)]
    advice = []
    code = run.error_code or 0
    if run.status is RunStatus.RUNTIME_ERROR and code in _CUDA_ERRORS:
        advice.append(_CUDA_ERRORS[code])
    if code in _LAUNCH_ERRORS:
        facts += launch_limits(turn)
    elif code:
        facts += static_kernels(turn)
    facts += printed(run)
    return Parts(_HEADLINES[run.status], tuple(fact for fact in facts if fact), (*advice, *_advice(turn)))


_HEADLINES = {
    RunStatus.RUNTIME_ERROR: "Your kernel compiles, and calling it failed with an error.",
    RunStatus.CRASHED: "Your kernel compiles, and the process that called it died.",
    RunStatus.LOAD_ERROR: "Your kernel compiles, and the built object could not be loaded.",
    RunStatus.TIMEOUT: "Your kernel did not end.",
    RunStatus.COMPLETED: "Calling your kernel failed.",
}


def _advice(turn: Turn) -> tuple[str, ...]:
    run = turn.evidence.run
    if run.status is RunStatus.CRASHED:
        return (
            "The host code died, not the kernel: look for null or dangling host pointers, DLTensor fields read "
            "wrongly, exit() or abort().",
        )
    if run.status is RunStatus.LOAD_ERROR:
        return ("Look at static initializers and at what the export macro names: the entry is called run.",)
    if "Mismatched number of arguments" in run.message or "TypeError" in run.message:
        names = ", ".join([*turn.case.input_shapes(), *turn.case.output_shapes()])
        return (f"The entry takes all inputs, then all outputs, in this order: {names}.",)
    if not run.error_code:
        return ("The message is your own code's: check what it tests against the shapes of this workload.",)
    return ("Errors of a launch are silent unless cudaGetLastError() is checked after it.",)
