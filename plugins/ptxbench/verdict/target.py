"""The target indicator of PROTOCOL 4.6: executed, not executed, or unknown, which is neither."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ptxbench.cases.arch import opcode_base
from ptxbench.cases.case import Case
from ptxbench.records import (
    Build,
    BuildStatus,
    Evidence,
    InstructionCount,
    InstructionEvidence,
    Outcome,
    Target,
    ToolStatus,
)
from ptxbench.verdict.instruction_counts import counts_of_call
from ptxbench.verdict.kernel_names import is_kernel_of
from ptxbench.verdict.quoting import quote
from ptxbench.verdict.rules import Flag, TargetRule


class TargetDecision(NamedTuple):
    """The indicator with the rule that gave it."""

    target: Target
    rule: TargetRule
    message: str
    present: bool | None
    families: dict[str, int]
    counts: tuple[InstructionCount, ...] = ()
    """Counts that are known to be of the evaluated workload; empty where the indicator is unknown."""
    flags: tuple[Flag, ...] = ()


def judge_target(case: Case, build: Build, evidence: Evidence | None, outcome: Outcome) -> TargetDecision:
    """Decide the indicator. ``evidence`` must belong to ``build``; ``outcome`` is that of the same turn."""
    if build.status is not BuildStatus.OK and not build.cubins:
        return TargetDecision(
            Target.NOT_EXECUTED, TargetRule.NO_OBJECT, "nothing was built, so nothing executed", None, {}
        )
    if build.inspection != "ok":
        message = "the object could not be inspected: install a disassembler, or read in the build's log why it failed"
        return TargetDecision(Target.UNKNOWN, TargetRule.NOT_INSPECTED, message, None, {})
    static = _static_families(case, build)
    if not static:
        message = f"no selected family of {case.arch.name} is in the object"
        return TargetDecision(Target.NOT_EXECUTED, TargetRule.ABSENT, message, False, {})
    unprofiled = _why_unprofiled(evidence, outcome)
    if unprofiled is not None or evidence is None:
        rule, message = unprofiled or (TargetRule.NO_EVIDENCE, "")
        return TargetDecision(Target.UNKNOWN, rule, message, True, static)
    return _dynamic(case, build, evidence, static)


def _static_families(case: Case, build: Build) -> dict[str, int]:
    lines: Counter[str] = Counter()
    for cubin in build.cubins:
        for kernel in cubin.kernels:
            for opcode, count in kernel.opcodes.items():
                if count > 0 and case.arch.selects(opcode):
                    lines[opcode_base(opcode)] += count
    return dict(sorted(lines.items()))


def _why_unprofiled(evidence: Evidence | None, outcome: Outcome) -> tuple[TargetRule, str] | None:
    """Return why the dynamic part cannot be decided, None when the tool's counts may be read."""
    if evidence is None:
        return TargetRule.NO_EVIDENCE, "the object holds a selected family; no evidence says whether it executed"
    if outcome is Outcome.MEMORY_ERROR:
        return TargetRule.UNDEFINED_BEHAVIOUR, "the candidate's behaviour is undefined, so counts would mean nothing"
    if outcome is not Outcome.CORRECT:
        return TargetRule.NOT_PROFILED, "only correct candidates are profiled"
    instructions = evidence.instructions
    if instructions.status is ToolStatus.NOT_RUN:
        return TargetRule.NOT_RUN, f"the instruction profiler did not run: {quote(instructions.message) or 'no reason'}"
    if instructions.status is not ToolStatus.OK:
        message = f"the instruction profiler ended as {instructions.status.value}: {quote(instructions.message)}"
        return TargetRule.TOOL_FAILED, message
    if not instructions.kernels and not instructions.counts:
        return TargetRule.TOOL_FAILED, "the instruction profiler saw no kernel at all"
    return None


def _dynamic(case: Case, build: Build, evidence: Evidence, static: dict[str, int]) -> TargetDecision:
    instructions, own = evidence.instructions, build.kernels
    seen = {*instructions.kernels, *(count.kernel for count in instructions.counts)}
    foreign = sorted(name for name in seen if not is_kernel_of(name, own))
    if foreign:
        message = f"kernels ran under the profiler that are not in the object: {', '.join(map(quote, foreign[:3]))}"
        return TargetDecision(Target.UNKNOWN, TargetRule.FOREIGN_KERNEL, message, True, static)
    counts = tuple(count for count in counts_of_call(evidence) if _ran_when_timed(count.kernel, build, evidence))
    difference = _difference(case, build, evidence, counts)
    if difference is not None:
        rule, flag = TargetRule.DIFFERS_UNDER_PROFILER, Flag.DIFFERS_UNDER_PROFILER
        return TargetDecision(Target.UNKNOWN, rule, difference, True, static, (), (flag,))
    return _executed(case, static, counts)


def _ran_when_timed(shown: str, build: Build, evidence: Evidence) -> bool:
    """Whether the kernel also ran in a timed iteration; True when those launches were not recorded."""
    launches = [launch.name for launch in evidence.run.launches]
    candidates = [name for name in build.kernels if is_kernel_of(shown, (name,))]
    return not launches or any(is_kernel_of(launch, candidates) for launch in launches)


def _difference(case: Case, build: Build, evidence: Evidence, counts: tuple[InstructionCount, ...]) -> str | None:
    """Return how the candidate behaved differently under the profiler, None when it did not."""
    instructions = evidence.instructions
    if instructions.outputs_match is False:
        return "the outputs under the instruction profiler are not those without it"
    for launch in evidence.run.launches:
        if not any(_same_kernel(launch.name, shown, build) for shown in _kernels_seen(instructions)):
            return f"kernel {quote(launch.name)} runs when timed and does not run under the profiler"
    if _selected(case, instructions.counts) and not _selected(case, counts):
        return "a selected instruction executes only in kernels that do not run when timed"
    return None


def _kernels_seen(instructions: InstructionEvidence) -> set[str]:
    return {*instructions.kernels, *(count.kernel for count in instructions.counts)}


def _same_kernel(one: str, other: str, build: Build) -> bool:
    """Whether two tools' names can be the same kernel of this object."""
    return any(is_kernel_of(one, (name,)) and is_kernel_of(other, (name,)) for name in build.kernels)


def _selected(case: Case, counts: tuple[InstructionCount, ...]) -> dict[str, int]:
    """Return selected families with a positive predicate-enabled thread count."""
    threads: Counter[str] = Counter()
    for count in counts:
        if case.arch.selects(count.opcode) and count.thread_inst_executed_true > 0:
            threads[opcode_base(count.opcode)] += count.thread_inst_executed_true
    return dict(threads)


def _executed(case: Case, static: dict[str, int], counts: tuple[InstructionCount, ...]) -> TargetDecision:
    executed = _selected(case, counts)
    families = dict(sorted({**dict.fromkeys(static, 0), **executed}.items()))
    if executed:
        text = ", ".join(f"{family} {threads}" for family, threads in sorted(executed.items()))
        message = f"predicate-enabled thread executions: {text}"
        return TargetDecision(Target.EXECUTED, TargetRule.EXECUTED, message, True, families, counts)
    message = f"{', '.join(static)} in the object, never executed on the evaluated workload"
    return TargetDecision(Target.NOT_EXECUTED, TargetRule.NOT_EXECUTED, message, True, families, counts)
