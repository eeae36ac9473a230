"""compute-sanitizer's arguments and text report (compute-sanitizer documentation, "Command line options")."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ptxbench.records import LEAK, SafetyFinding
from ptxbench.records.base import MOST_COUNT

if TYPE_CHECKING:
    from ptxbench.records import SafetyTool

PREFIX = "========="
PRINT_LIMIT = 20
PADDING_BYTES = 64 << 10
MAX_LINE_CHARS = 400
MAX_DETAILS = 5
"""Lines kept under a finding's heading: place, thread, address, nearest allocation."""
_BACKTRACE = "Saved host backtrace"
"""Above the frames of the interpreter and of our own program, which say nothing about the candidate."""
_FRAME = "Host Frame:"
_OBJECT = "in kernel.so"
"""How a host frame ends that is of the candidate's object (``toolchain.cache``)."""
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d{1,15}) error")
_RACE_SUMMARY = re.compile(r"RACECHECK SUMMARY: (\d{1,15}) hazard")
_LEAK = "Leaked "
_LEAKED = re.compile(r"^Leaked (\d[\d,]{,20}) bytes?")
_LEAK_SUMMARY = re.compile(r"LEAK SUMMARY: (\d[\d,]{,20}) bytes? leaked in (\d[\d,]{,20}) allocation")
_AT = re.compile(
    r"(?:^|\baccess |\) )at (?P<what>.+?)(?:\+0x(?P<offset>[0-9a-f]+)(?: in (?P<where>.+?))?)?(?: \[\d+ hazards?\])?$"
)
"""``at KERNEL+0x1b0 in FILE:LINE``; of racecheck also ``... and Read access at ... [508 hazards]``."""
_NOT_A_FINDING = (
    "COMPUTE-SANITIZER",
    "ERROR SUMMARY",
    "RACECHECK SUMMARY",
    "LEAK SUMMARY",
    "Target application",
    "Host API memory access error",  # initcheck, of our own copies: another process wrote the arena
)
_RACE = ("Error: Race reported", "Error: Potential ")
"""racecheck's findings in its report modes ``analysis`` and ``hazard``. Its warnings are accesses that may be meant."""
_ASIDE = ("Program hit ", "Warning:", "Error: process didn't terminate successfully")
"""No findings. A failed API call (``Program hit``) is a finding's consequence or the candidate's own business."""
_FAILURE = ("Error:", "Internal", "Device not supported")
"""The tool itself failed: what it did not find means nothing."""


class Kept(NamedTuple):
    """Device memory that was not freed when the context was destroyed."""

    allocated_bytes: int = 0
    allocations: int = 0


class Report(NamedTuple):
    """What the tool said. ``complete``: it reached its summary and did not fail; ``remark``: its own complaint."""

    findings: tuple[SafetyFinding, ...]
    total: int
    complete: bool
    remark: str
    leaks: tuple[SafetyFinding, ...] = ()
    """Memory kept for the next call is no misuse, so it is among no findings."""
    kept: Kept = Kept()


def arguments(tool: SafetyTool, report: Path) -> list[str]:
    """The tool's command line before the program."""
    # Padding keeps an access just past a buffer from landing in the next one, where nothing would be wrong with it.
    memcheck = ["--track-stream-ordered-races", "all", "--padding", str(PADDING_BYTES), "--leak-check", "full"]
    extra = memcheck if tool == "memcheck" else []
    return ["--tool", tool, "--print-limit", str(PRINT_LIMIT), "--log-file", str(report), *extra]


def parse(text: str) -> Report:
    """Read a report, complete or cut off. Paragraphs are separated by an empty ``=========`` line."""
    findings: list[SafetyFinding] = []
    leaks: list[SafetyFinding] = []
    asides: list[str] = []
    failures: list[str] = []
    leaked = 0
    for block in _blocks(text):
        head = block[0]
        if size := _LEAKED.match(head):
            leaks.append(_leak(block))
            leaked += _number(size[1])
        elif head.startswith(_ASIDE):
            asides.append(head)
        elif head.startswith(_FAILURE) and not head.startswith(_RACE):
            failures.append(head)
        elif not head.startswith((_LEAK, *_NOT_A_FINDING)) and (finding := _finding(block)):
            findings.append(finding)
    summary = _SUMMARY.search(text) or _RACE_SUMMARY.search(text)
    total = _LEAK_SUMMARY.search(text)
    kept = Kept(_number(total[1]), _number(total[2])) if total else Kept(leaked, len(leaks))
    # The summary counts failed API calls and leaks among the errors.
    others = sum(head.startswith("Program hit ") for head in asides) + kept.allocations
    counted = int(summary[1]) - others if summary else 0
    return Report(
        findings=tuple(findings[:PRINT_LIMIT]),
        total=max(counted, len(findings)) if findings else 0,
        complete=summary is not None and not failures,
        remark=next(iter(failures + asides), "")[:MAX_LINE_CHARS],
        leaks=tuple(leaks[:PRINT_LIMIT]),
        kept=kept,
    )


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _blocks(text: str) -> list[list[str]]:
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        if not line.startswith(PREFIX):
            continue
        body = line[len(PREFIX) :]
        # Details are indented under their heading; a new heading starts a new paragraph.
        heading = body.startswith(" ") and not body.startswith("  ")
        if heading and blocks[-1]:
            blocks.append([])
        if body.strip():
            blocks[-1].append(body.strip())
    return [block for block in blocks if block]


def _finding(block: list[str]) -> SafetyFinding | None:
    place: re.Match[str] | None = None
    for line in block:
        place = place or _AT.search(line)
    if place is None and len(block) == 1:
        return None
    details = list(takewhile(lambda line: not line.startswith(_BACKTRACE), block[1:]))
    offset = int(place["offset"], 16) if place and place["offset"] else None
    return SafetyFinding(
        kind=block[0][:MAX_LINE_CHARS],
        message="\n".join(line[:MAX_LINE_CHARS] for line in details[:MAX_DETAILS]),
        kernel=place["what"][:MAX_LINE_CHARS] if place else "",
        location=(place["where"] or "")[:MAX_LINE_CHARS] if place else "",
        offset=offset if offset is None or offset <= MOST_COUNT else None,
    )


def _leak(block: list[str]) -> SafetyFinding:
    """Which function of the candidate allocated: its object's frames, innermost first. Host code has no lines."""
    frames = [line for line in block[1:] if line.startswith(_FRAME) and line.endswith(_OBJECT)]
    said = "\n".join(line[:MAX_LINE_CHARS] for line in (block[0], *frames[:MAX_DETAILS]))
    return SafetyFinding(kind=LEAK, message=said)
