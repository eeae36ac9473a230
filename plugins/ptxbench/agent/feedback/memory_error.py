"""A kernel that reads or writes where it must not."""

from __future__ import annotations

from ptxbench.agent.feedback.numerical_error import output_facts
from ptxbench.agent.feedback.parts import Parts, Turn
from ptxbench.agent.feedback.sanitizer_findings import overruns, sanitizer_facts
from ptxbench.verdict.rules import Rule


def describe(turn: Turn) -> Parts:
    """What the sanitizer says, what was overwritten, and whether the outputs were right all the same."""
    facts = list(sanitizer_facts(turn))
    if turn.verdict.rule == Rule.MEMORY_GUARD:
        facts.append("Bytes next to a buffer of an argument, outside of it, were overwritten.")
    outputs = output_facts(turn)
    facts += outputs or ["The outputs themselves were right in every call that was compared."]
    return Parts(
        "Your kernel accesses memory that it must not access. That makes it wrong whatever it computes.",
        tuple(facts),
        tuple(_advice(turn)),
    )


def _advice(turn: Turn) -> list[str]:
    findings = [finding for safety in turn.evidence.safety for finding in safety.findings]
    kinds = " ".join(finding.kind for finding in findings)
    advice = []
    if not findings or any(overruns(finding) for finding in findings):
        advice.append(
            "Check the last tile and the last vector: every load and store needs its bound, also of vector width."
        )
    if any(not overruns(finding) for finding in findings):
        advice.append(
            "Follow the pointer: where it comes from, and that its memory is not freed before the kernel ends."
        )
    if "__shared__" in kinds:
        advice.append("Compare the offsets into shared memory with the bytes that the launch asks for.")
    if "misaligned" in kinds.lower():
        advice.append("Vector accesses need pointers and offsets that are multiples of their size.")
    if turn.verdict.rule == Rule.MEMORY_GUARD:
        advice.append(
            "Compare the extents of the grid and of tensor maps with the tensors' shapes; TMA clips, stores do not."
        )
    return advice
