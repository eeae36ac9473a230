"""Findings of compute-sanitizer: what, in which kernel, by which thread, at which line of the candidate, how often."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from ptxbench.agent.feedback.parts import Turn
from ptxbench.agent.feedback.places import place
from ptxbench.agent.feedback.wording import count, listed, safe, short_name
from ptxbench.records import SafetyEvidence, SafetyFinding

SHOWN_FINDINGS = 3

_OFFSET = re.compile(r"(?:^|\s)at (?P<kernel>.+?)\+0x(?P<offset>[0-9a-f]+)")
_THREAD = re.compile(r"by thread (\([\d,]+\)) in block (\([\d,]+\))")
_PLACE = re.compile(r"\s+at .+?\+0x[0-9a-f]+.*$")
_ACCESS_KIND = re.compile(r"(Read|Write) (?:access|Thread)\b")
"""racecheck names both sides of a race."""
_NEAREST = re.compile(r"and is ([\d,]+) bytes? (before|after|inside) the nearest allocation .*?of size ([\d,]+) bytes")
_ACCESS = re.compile(r"^Access to 0x[0-9a-f]{6,}")
_NOISE = ("Saved host backtrace", "Host Frame")
_FAR_BYTES = 1 << 30
"""An access further than this from every buffer did not overrun one: its pointer is wrong."""
_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "int32": 4, "int64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1}


def sanitizer_facts(turn: Turn) -> tuple[str, ...]:
    """One fact per distinct finding, the first tools first; empty where no tool found something."""
    facts: list[str] = []
    for safety in turn.evidence.safety:
        distinct = list(_distinct(safety.findings))
        facts += [_fact(turn, safety, finding) for finding in distinct[:SHOWN_FINDINGS]]
        total = max(safety.finding_count, len(safety.findings))
        if distinct and total > 1:
            facts.append(
                f"{safety.tool} counted {count(total, 'finding')}, at {count(len(distinct), 'place')}, before its end."
            )
    return tuple(facts)


def _distinct(findings: Sequence[SafetyFinding]) -> Iterator[SafetyFinding]:
    """The first finding of each kind at each place: one bad line is found by thousands of threads."""
    seen = set()
    for finding in findings:
        key = finding.kind, tuple(_OFFSET.findall(finding.message)) or finding.kernel
        if key not in seen:
            seen.add(key)
            yield finding


def _fact(turn: Turn, safety: SafetyEvidence, finding: SafetyFinding) -> str:
    thread = _THREAD.search(finding.message)
    where = f" in kernel {short_name(finding.kernel)}" if finding.kernel else ""
    by = f", by thread {thread[1]} of block {thread[2]}" if thread else ""
    lines = [f"{safety.tool}: {safe(_PLACE.sub('', finding.kind))}{where}{by}."]
    lines += dict.fromkeys(_places(turn, finding))
    lines += _details(turn, finding)
    return "\n".join(lines)


def _places(turn: Turn, finding: SafetyFinding) -> Iterator[str]:
    """The lines of the candidate that the tool names, or offsets in its code where no line is known."""
    for said in (finding.kind, *finding.message.splitlines()):
        for match in _OFFSET.finditer(said):
            offset = int(match["offset"], 16)
            at = turn.locate(finding.kernel or match["kernel"], offset)
            if not at and offset == finding.offset:
                at = finding.lines
            access = _ACCESS_KIND.search(said)
            start = f"{access[1]} access at" if access else "At"
            if quoted := place(turn.source, at):
                inlined = f", inlined at line {at[1]}" if len(at) > 1 else ""
                yield f"{start} line {at[0]}{inlined}:\n{quoted}"
            else:
                yield f"{start} byte 0x{offset:x} of the kernel's code."


def overruns(finding: SafetyFinding) -> bool:
    """Whether the access is near a buffer, so that it ran over its end, and was not led astray by a wrong pointer."""
    nearest = _NEAREST.search(finding.message.replace("\n", " "))
    return nearest is None or int(nearest[1].replace(",", "")) <= _FAR_BYTES


def _details(turn: Turn, finding: SafetyFinding) -> Iterator[str]:
    nearest = _NEAREST.search(finding.message.replace("\n", " "))
    for line in finding.message.splitlines():
        if _OFFSET.search(line) or _THREAD.search(line) or line.startswith(_NOISE) or "nearest allocation" in line:
            continue
        yield safe(_ACCESS.sub("The address", line))
    if nearest:
        distance, side, size = int(nearest[1].replace(",", "")), nearest[2], int(nearest[3].replace(",", ""))
        if distance > _FAR_BYTES:
            yield "It is nowhere near any buffer: the pointer is wrong (null, uninitialized, freed, a bad index)."
            return
        distance = distance - 1 if side == "after" else distance  # the tool calls the first byte behind it 1
        tensors = tensors_of_size(turn, size)
        what = f" (the size of {listed(tensors)})" if tensors else ""
        at = f"{distance:,} bytes {side}" if distance else "right behind the end of"
        yield f"It is {at} an allocation of {size:,} bytes{what}."


def tensors_of_size(turn: Turn, size: int) -> list[str]:
    """Arguments of the kernel that take ``size`` bytes."""
    shapes: Mapping[str, tuple[int, ...] | None] = {**turn.case.input_shapes(), **turn.case.output_shapes()}
    dtypes = turn.case.dtypes()
    return [
        name
        for name, shape in shapes.items()
        if shape is not None and math.prod(shape) * _BYTES.get(dtypes[name], 0) == size
    ]
