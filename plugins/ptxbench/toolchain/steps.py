"""The named steps of one compilation, run in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ptxbench.toolchain import driver, faults
from ptxbench.toolchain.plan import CompilePlan
from ptxbench.toolchain.process import Session, StepResult

DEVICE_STEPS = ("device_front", "assemble", "pack")
PREPROCESS_STEPS = ("host_preprocess", "device_preprocess")
FRONT_END_STEPS = frozenset({*PREPROCESS_STEPS, "host_front", "host_compile", "device_front"})
"""Steps that read the language: what they reject, other headers could make them accept."""

_LOG_ORDER = (*PREPROCESS_STEPS, "host_front", *DEVICE_STEPS, "host_compile", "link")


class StepError(Exception):
    """A step failed, and with it the compilation."""

    def __init__(self, step: str, result: StepResult) -> None:
        super().__init__(step)
        self.step = step
        self.result = result


class Steps:
    """Runs steps of a plan and keeps their output by name."""

    def __init__(self, plan: CompilePlan, folder: Path, session: Session) -> None:
        self.plan = plan
        self.folder = folder
        self.session = session
        self.outputs: dict[str, str] = {}

    def attempt(self, name: str, command: Sequence[str] | None = None, *, whole: bool = False) -> StepResult:
        """Runs a step, by default the plan's of that name, and returns how it ended; once more if it crashed.

        ``whole`` reads all of its output. Raises InfrastructureError when a crash does not repeat itself.
        """
        command = self.command(name) if command is None else command
        result = self._run(name, command, whole=whole)
        if faults.crash(result) is not None:
            first, result = result, self._run(name, command, whole=whole)
            if not self._blames_source(result):
                faults.raise_if_infrastructure(result, self.folder)
                raise faults.not_repeated(first, result)
        self.outputs[name] = result.output
        return result

    def run(self, name: str, command: Sequence[str] | None = None) -> None:
        """Runs a step. Raises StepError when it does not succeed."""
        result = self.attempt(name, command)
        if not result.ok:
            raise StepError(name, result)

    def run_device(self) -> None:
        """Compiles, assembles and packs the device half. Raises StepError."""
        for name in DEVICE_STEPS:
            self.run(name)

    def command(self, name: str) -> tuple[str, ...]:
        """The plan's command for a step."""
        command: tuple[str, ...] = getattr(self.plan, name)
        return command

    def product(self, name: str) -> Path:
        """The file that a step of the plan writes (its ``-o``)."""
        command = self.command(name)
        return self.folder / command[command.index("-o") + 1]

    def _run(self, name: str, command: Sequence[str], *, whole: bool) -> StepResult:
        if not driver.drives(command):
            return self.session.run(command, whole=whole)
        report = self.folder / f"{name}.statuses"
        report.unlink(missing_ok=True)
        return driver.traced(self.session.run(driver.watched(command, report.name), whole=whole), command, report)

    def _blames_source(self, second: StepResult) -> bool:
        """Whether a second try leaves the first one's crash to the source."""
        stopped = self.session.timed_out_tool is not None or faults.limit_note(second) is not None
        return stopped or faults.crash(second) is not None

    def log(self) -> str:
        """Output of the steps that ran, in nvcc's order; what both halves say alike is said once."""
        outputs = (self.outputs[name].rstrip() for name in _LOG_ORDER if name in self.outputs)
        return "".join(f"{output}\n" for output in dict.fromkeys(outputs) if output)
