"""Preprocessing a candidate for host and device, and the screen of what came out, even when a header is missing."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ptxbench.errors import InfrastructureError
from ptxbench.records.build import Finding
from ptxbench.toolchain.process import StepResult
from ptxbench.toolchain.screen import HeaderFolders, screen_source, screen_translation, unique
from ptxbench.toolchain.steps import PREPROCESS_STEPS, StepError, Steps
from ptxbench.toolchain.translation import missing_header, read_translation

MISSING_DIR = "missing"
"""Folder of empty stand-ins for headers that are not there."""

MAX_PREPROCESSED_BYTES = 32 << 20
"""Larger than any kernel with all of CUDA's and the standard library's headers; macros can make it endless."""

_MAX_MISSING = 16
"""Missing headers that the screen looks past; more than a kernel includes."""

_MAX_HEADER_CHARS = 200
"""Longer names could exceed what the file system takes."""

_SAFE_HEADER = re.compile(r"[\w+-][\w.+-]*(?:/[\w+-][\w.+-]*)*")


def preprocess(steps: Steps, pool: ThreadPoolExecutor, source: str, folders: HeaderFolders) -> tuple[Finding, ...]:
    """Runs both halves side by side and screens them.

    A finding counts more than an error: a missing library header is a finding, as a present one is.
    Raises StepError when a half fails and nothing is found.
    """
    forged = screen_source(source)
    if forged:
        return forged
    for name in PREPROCESS_STEPS:
        # g++ removes its output when it fails; through a second name what there is can still be screened.
        steps.product(name).touch()
        _kept(steps, name).hardlink_to(steps.product(name))
    running = {name: pool.submit(steps.attempt, name) for name in PREPROCESS_STEPS}
    results = {name: future.result() for name, future in running.items()}
    failed = next((StepError(name, result) for name, result in results.items() if not result.ok), None)
    findings: list[Finding] = []
    for name, result in results.items():
        complete = result if result.ok else _past_missing(steps, name, result)
        findings += _screen(steps, name, complete, source, folders)
    if failed is not None and not findings:
        raise failed
    return unique(sorted(findings, key=lambda finding: finding.line or 0))


def _kept(steps: Steps, name: str) -> Path:
    return steps.folder / f"{name}.kept"


def _screen(steps: Steps, name: str, result: StepResult, source: str, folders: HeaderFolders) -> tuple[Finding, ...]:
    path = steps.product(name) if result.ok else _kept(steps, name)
    if path.stat().st_size > MAX_PREPROCESSED_BYTES:
        output = f"the preprocessed source has more than {MAX_PREPROCESSED_BYTES >> 20} MiB\n"
        steps.outputs[name] = output
        raise StepError(name, result._replace(returncode=1, output=output))
    text = path.read_text("utf-8", "replace")
    try:
        return screen_translation(read_translation(text), folders, source)
    except InfrastructureError:
        if result.ok:
            raise
        return ()  # it failed before it came to the source


def _past_missing(steps: Steps, name: str, result: StepResult) -> StepResult:
    """Preprocesses again, with empty files for missing headers, until it passes or stops for another reason."""
    for _ in range(_MAX_MISSING):
        missing = missing_header(result.output)
        if result.ok or missing is None or not _stand_in(steps.folder / MISSING_DIR, missing):
            break
        command = steps.command(name)
        steps.product(name).unlink(missing_ok=True)
        steps.product(name).hardlink_to(_kept(steps, name))
        result = steps.session.run((command[0], f"-I{MISSING_DIR}", *command[1:]))
    return result


def _stand_in(folder: Path, header: str) -> bool:
    """Makes an empty file for a missing header, unless its name is an odd one. Returns whether it did."""
    if len(header) > _MAX_HEADER_CHARS or not _SAFE_HEADER.fullmatch(header):
        return False
    path = folder / header
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(exist_ok=False)
    except (FileExistsError, NotADirectoryError):  # one header's name is the folder of another, or it is there already
        return False
    return True
