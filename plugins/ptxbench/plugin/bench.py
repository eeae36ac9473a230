"""What one pytest session works on. Everything is read when it is first needed: most sessions need none of it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ptxbench.plugin.items import plan_trajectories
from ptxbench.plugin.options import Options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ptxbench.agent import Engine, Profilers, RunStore, TrajectoryPlan
    from ptxbench.cases import Case, Suite
    from ptxbench.models import Model

EVIDENCE_FOLDERS = (Path("generated", "reference"), Path("tests", "evidence"))
"""Where committed evidence lies in a checkout. It answers by content hash alone, so all of it can be searched."""

BENCH = pytest.StashKey["Bench"]()
"""Where a session on a checkout keeps its ``Bench``."""


class Bench:
    """Checkout, options, and what follows from them. Its properties raise InputError for broken input."""

    def __init__(self, root: Path, options: Options, run_folder: Path | None = None) -> None:
        self.root = root
        self.options = options
        self._run_folder = run_folder

    @cached_property
    def run_folder(self) -> Path:
        """Where this session's turns go: as given, as the option says, or a fresh folder."""
        from ptxbench.agent import fresh_run_name, resolve_run

        name = self.options.run if self.options.run is not None else fresh_run_name(datetime.now(UTC))
        return self._run_folder or resolve_run(self.root, name)

    @property
    def run_name(self) -> str:
        """What ``--run`` would have to be to resume this run."""
        in_generated = self.run_folder.parent == self.root / "generated"
        return self.run_folder.name if in_generated else str(self.run_folder)

    @cached_property
    def suite(self) -> Suite:
        """The selected suite."""
        from ptxbench.cases import load_suite

        return load_suite(self.root, self.options.suite)

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """Its selected cases, on every architecture; ``-m`` chooses among those."""
        from ptxbench.cases import select_cases

        return select_cases(self.suite, globs=(self.options.case,) if self.options.case is not None else ())

    @cached_property
    def models(self) -> tuple[Model, ...]:
        """The selected models."""
        from ptxbench.agent import RunStore, resolve_run
        from ptxbench.models import open_models

        return open_models(
            self.options.models, root=self.root, open_run=lambda text: RunStore.read(resolve_run(self.root, text))
        )

    @cached_property
    def plans(self) -> tuple[TrajectoryPlan, ...]:
        """Every trajectory that the options ask for."""
        return plan_trajectories(self.options, self.cases, self.models)

    @cached_property
    def store(self) -> RunStore:
        """The run folder, created or resumed."""
        from ptxbench.agent import RunStore, suite_identity

        return RunStore.open(self.run_folder, {self.suite.name: suite_identity(self.suite.table)})

    def open_profilers(self) -> Profilers:
        """The profilers that ``--profiler`` asks for; none is started yet."""
        from ptxbench.agent import Profilers
        from ptxbench.profiler import open_profiler

        roots = tuple(self.root / folder for folder in EVIDENCE_FOLDERS)
        return Profilers(self.options.profiler, lambda name: open_profiler(name, root=self.root, evidence_roots=roots))

    def open_engine(self, plans: Sequence[TrajectoryPlan], profilers: Profilers) -> Engine:
        """An engine for this process's trajectories; nothing runs yet."""
        from ptxbench.agent import Engine, Evaluator
        from ptxbench.toolchain import Toolchain

        return Engine(
            plans,
            store=self.store,
            evaluator=Evaluator(Toolchain.discover, _compile_slots()),
            profilers=profilers,
            concurrency=self.options.concurrency,
        )


def _compile_slots() -> int:
    """Builds at a time: this process's part of the machine's cores."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1, (os.cpu_count() or 1) // workers)
