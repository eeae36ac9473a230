"""compute-sanitizer's arguments and text report (compute-sanitizer documentation, "Command line options")."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ptxbench.records import SafetyFinding

if TYPE_CHECKING:
    from ptxbench.profiler.protocol import SafetyTool

PREFIX = "========="
PRINT_LIMIT = 20
MAX_LINE_CHARS = 400
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error")
_RACE_SUMMARY = re.compile(r"RACECHECK SUMMARY: (\d+) hazard")
_AT = re.compile(r"^at (?P<what>.+?)(?:\+0x[0-9a-f]+)?(?: in (?P<where>\S+))?$")
_NOT_A_FINDING = ("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY", "LEAK SUMMARY", "Target application")
_HOST_API = "Program hit "
"""A failed API call is reported too; it is the consequence of a finding or the candidate's own business."""


class Report(NamedTuple):
    """What the tool said. ``complete``: it reached its summary; ``remark``: its own complaint, if any."""

    findings: tuple[SafetyFinding, ...]
    total: int
    complete: bool
    remark: str


def arguments(tool: SafetyTool, report: Path) -> list[str]:
    """The tool's command line before the program."""
    extra = ["--track-stream-ordered-races", "all"] if tool == "memcheck" else []
    return ["--tool", tool, "--print-limit", str(PRINT_LIMIT), "--log-file", str(report), *extra]


def parse(text: str) -> Report:
    """Read a report, complete or cut off. Paragraphs are separated by an empty ``=========`` line."""
    findings: list[SafetyFinding] = []
    remark = ""
    for block in _blocks(text):
        head = block[0]
        if head.startswith(_NOT_A_FINDING):
            continue
        if head.startswith((_HOST_API, "Error:", "Warning:", "Internal", "Device not supported")):
            remark = remark or head[:MAX_LINE_CHARS]
            continue
        finding = _finding(block)
        if finding:
            findings.append(finding)
    summary = _SUMMARY.search(text) or _RACE_SUMMARY.search(text)
    total = max(int(summary[1]) if summary else 0, len(findings)) if findings else 0
    return Report(tuple(findings[:PRINT_LIMIT]), total, summary is not None, remark)


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
    for line in block[1:]:
        at = _AT.match(line)
        if at and not kernel:
            kernel, location = at["what"], at["where"] or ""
    if not kernel and len(block) == 1:
        return None
    return SafetyFinding(
        kind=block[0][:MAX_LINE_CHARS],
        message="\n".join(line[:MAX_LINE_CHARS] for line in block[1:6]),
        kernel=kernel[:MAX_LINE_CHARS],
        location=location,
    )
