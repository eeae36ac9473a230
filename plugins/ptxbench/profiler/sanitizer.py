"""compute-sanitizer's arguments and text report (compute-sanitizer documentation, "Command line options")."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ptxbench.records import SafetyFinding

if TYPE_CHECKING:
    from ptxbench.profiler.protocol import SafetyTool

PREFIX = "========="
PRINT_LIMIT = 20
PADDING_BYTES = 64 << 10
MAX_LINE_CHARS = 400
MAX_DETAILS = 5
"""Lines kept under a finding's heading: place, thread, address, nearest allocation."""
_BACKTRACE = "Saved host backtrace"
"""Above the frames of the interpreter and of our own program, which say nothing about the candidate."""
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error")
_RACE_SUMMARY = re.compile(r"RACECHECK SUMMARY: (\d+) hazard")
_AT = re.compile(r"(?:^|\baccess |\) )at (?P<what>.+?)(?:\+0x[0-9a-f]+(?: in (?P<where>.+?))?)?(?: \[\d+ hazards?\])?$")
"""``at KERNEL+0x1b0 in FILE:LINE``; of racecheck also ``... and Read access at ... [508 hazards]``."""
_NOT_A_FINDING = (
    "COMPUTE-SANITIZER",
    "ERROR SUMMARY",
    "RACECHECK SUMMARY",
    "LEAK SUMMARY",
    "Leaked ",  # memory kept for the next call is no misuse
    "Target application",
    "Host API memory access error",  # initcheck, of our own copies: another process wrote the arena
)
_RACE = ("Error: Race reported", "Error: Potential ")
"""racecheck's findings in its report modes ``analysis`` and ``hazard``. Its warnings are accesses that may be meant."""
_ASIDE = ("Program hit ", "Warning:", "Error: process didn't terminate successfully")
"""No findings. A failed API call (``Program hit``) is a finding's consequence or the candidate's own business."""
_FAILURE = ("Error:", "Internal", "Device not supported")
"""The tool itself failed: what it did not find means nothing."""


class Report(NamedTuple):
    """What the tool said. ``complete``: it reached its summary and did not fail; ``remark``: its own complaint."""

    findings: tuple[SafetyFinding, ...]
    total: int
    complete: bool
    remark: str


def arguments(tool: SafetyTool, report: Path) -> list[str]:
    """The tool's command line before the program."""
    # Padding keeps an access just past a buffer from landing in the next one, where nothing would be wrong with it.
    extra = ["--track-stream-ordered-races", "all", "--padding", str(PADDING_BYTES)] if tool == "memcheck" else []
    return ["--tool", tool, "--print-limit", str(PRINT_LIMIT), "--log-file", str(report), *extra]


def parse(text: str) -> Report:
    """Read a report, complete or cut off. Paragraphs are separated by an empty ``=========`` line."""
    findings: list[SafetyFinding] = []
    asides: list[str] = []
    failures: list[str] = []
    for block in _blocks(text):
        head = block[0]
        if head.startswith(_ASIDE):
            asides.append(head)
        elif head.startswith(_FAILURE) and not head.startswith(_RACE):
            failures.append(head)
        elif not head.startswith(_NOT_A_FINDING) and (finding := _finding(block)):
            findings.append(finding)
    summary = _SUMMARY.search(text) or _RACE_SUMMARY.search(text)
    # The summary counts failed API calls among the errors.
    counted = int(summary[1]) - sum(head.startswith("Program hit ") for head in asides) if summary else 0
    return Report(
        findings=tuple(findings[:PRINT_LIMIT]),
        total=max(counted, len(findings)) if findings else 0,
        complete=summary is not None and not failures,
        remark=next(iter(failures + asides), "")[:MAX_LINE_CHARS],
    )


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
    kernel = location = ""
    for line in block:
        at = _AT.search(line)
        if at and not kernel:
            kernel, location = at["what"], at["where"] or ""
    if not kernel and len(block) == 1:
        return None
    details = list(takewhile(lambda line: not line.startswith(_BACKTRACE), block[1:]))
    return SafetyFinding(
        kind=block[0][:MAX_LINE_CHARS],
        message="\n".join(line[:MAX_LINE_CHARS] for line in details[:MAX_DETAILS]),
        kernel=kernel[:MAX_LINE_CHARS],
        location=location,
    )
