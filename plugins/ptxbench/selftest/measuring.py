"""A self-test's measurements: compilers run ahead on the processors, so that the device waits for none of them."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import Profiler
from ptxbench.profiler.defences import DEFENCES
from ptxbench.records import BuildStatus, Evidence, RunStatus, SafetyEvidence, Verdict
from ptxbench.records.texts import placeless
from ptxbench.selftest.kept import Kept, Store, slim_build, slim_evidence
from ptxbench.selftest.subjects import Subject
from ptxbench.selftest.weakened import judge_without
from ptxbench.toolchain import Built, Toolchain

CALL_TIMEOUT_S = 3.0
"""For one call. The slowest kernel of the corpora takes 20 ms; an attack that hangs shall not cost the usual 10 s."""
ATTEMPTS = 2
"""As a run of the benchmark: what was the machinery's fault once may pass."""
RUNS_NOTHING = (RunStatus.TIMEOUT, RunStatus.LOAD_ERROR)


class Judged(NamedTuple):
    """A subject with its verdict; None where it is unknown."""

    subject: Subject
    verdict: Verdict | None
    kept: Kept | None
    why: str = ""
    """Why there is no verdict."""
    reused: bool = False
    """Whether it was measured before."""

    @property
    def escaped(self) -> bool:
        """Whether an attack scores, or an honest kernel is rejected."""
        return self.verdict is not None and self.subject.escaped(self.verdict)

    @property
    def differences(self) -> list[str]:
        """How the verdict differs from the expected one."""
        return [] if self.verdict is None else self.subject.entry.differences(self.verdict)


def judged_of(subject: Subject, kept: Kept | None, *, reused: bool = True) -> Judged:
    """The verdict by today's rules on what was kept."""
    if kept is None:
        return Judged(subject, None, None, "not measured")
    if kept.fault:
        return Judged(subject, None, kept, kept.fault)
    if kept.build.status is BuildStatus.OK and kept.evidence is None:
        return Judged(subject, None, kept, "built and not measured")
    verdict = judge_without(subject.case, kept.build, kept.evidence, kept.without)
    return Judged(subject, verdict, kept, reused=reused)


class Plan(NamedTuple):
    """How to measure."""

    jobs: int
    """Compilations at a time."""
    commit: str
    without: tuple[str, ...] = ()
    deadline: float = float("inf")
    """On the monotonic clock."""
    all_safety: bool = False
    """memcheck on everything that ran, not only where a verdict on safety is expected."""


class Bench:
    """Toolchain and profiler of one set of defences."""

    def __init__(self, toolchain: Toolchain, profiler: Callable[[], Profiler], store: Store, plan: Plan) -> None:
        self._toolchain = toolchain
        self._open = profiler
        self._profiler: Profiler | None = None
        self._store = store
        self._plan = plan

    def run(self, subjects: Sequence[Subject]) -> Iterator[Judged]:
        """Measure what was not measured before, in this order where compiling keeps up, and judge all of it."""
        waiting: dict[Future[Built | InfrastructureError], tuple[int, Subject]] = {}
        stop = threading.Event()
        with ThreadPoolExecutor(self._plan.jobs, thread_name_prefix="ptxbench-selftest-compile") as pool:
            try:
                for number, subject in enumerate(subjects):
                    future = pool.submit(self._build, subject, stop)
                    waiting[future] = (number, subject)
                yield from self._measured(waiting)
            finally:
                stop.set()
                for future in waiting:
                    future.cancel()

    def close(self) -> None:
        """Write what was measured and end the oracle. Idempotent. Raises InfrastructureError("disk_full")."""
        # In this order: whoever is impatient with a slow end shall lose nothing.
        try:
            self._store.write()
        finally:
            if self._profiler is not None:
                self._profiler.close()
                self._profiler = None

    def _measured(self, waiting: dict[Future[Built | InfrastructureError], tuple[int, Subject]]) -> Iterator[Judged]:
        while waiting:
            done, _ = wait(waiting, timeout=max(0.0, self._left()), return_when=FIRST_COMPLETED)
            if not done or self._left() <= 0:
                for _, subject in sorted(waiting.values(), key=lambda item: item[0]):
                    reused = self._store.current(subject, self._plan.without)
                    late = Judged(subject, None, None, "the time limit came first")
                    yield late if reused is None else judged_of(subject, reused)
                return
            # Of those that are built, the one that is planned first: waiting for a slower build would idle the device.
            future = min(done, key=lambda one: waiting[one][0])
            _, subject = waiting.pop(future)
            yield self._judged(subject, future.result())

    def _left(self) -> float:
        return min(self._plan.deadline - time.monotonic(), threading.TIMEOUT_MAX)

    def _build(self, subject: Subject, stop: threading.Event) -> Built | InfrastructureError:
        if stop.is_set():
            return InfrastructureError("stopped", "the self-test ended before")
        try:
            return self._toolchain.build(subject.candidate, subject.case.arch)
        except InfrastructureError as error:
            return error

    def _judged(self, subject: Subject, built: Built | InfrastructureError) -> Judged:
        before = self._store.current(subject, self._plan.without)
        if isinstance(built, InfrastructureError):
            unbuilt = Judged(subject, None, None, f"{built.kind}: {built}")
            return unbuilt if before is None else judged_of(subject, before)
        if before is not None and not _differs(before, built):
            return judged_of(subject, before)
        started = time.monotonic()
        evidence: Evidence | None = None
        fault = ""
        if built.build.status is BuildStatus.OK:
            evidence, fault = self._with_retry(subject, built)
        kept = Kept(
            name=subject.name,
            source_sha256=subject.candidate.sha256,
            case=subject.case.name,
            commit=self._plan.commit,
            kept_at=datetime.now(UTC).isoformat(timespec="seconds"),
            build=slim_build(built.build, subject.case.arch),
            evidence=slim_evidence(evidence, subject.case.arch),
            without=self._plan.without,
            fault=placeless(fault)[:400],
            seconds=round(time.monotonic() - started, 3),
        )
        self._store.keep(kept)
        return judged_of(subject, kept, reused=False)

    def _with_retry(self, subject: Subject, built: Built) -> tuple[Evidence | None, str]:
        """Evidence, or the fault of the machinery that stayed."""
        fault = ""
        for _ in range(ATTEMPTS):
            try:
                if self._profiler is None:
                    self._profiler = self._open()
                return measure(self._profiler, subject, built, self._plan), ""
            except InfrastructureError as error:
                if error.kind == "no_device":
                    raise
                fault = f"{error.kind}: {error}"
        return None, fault


def _differs(before: Kept, built: Built) -> bool:
    return (before.build.status, before.build.cubin_sha256) != (built.build.status, built.build.cubin_sha256)


def measure(profiler: Profiler, subject: Subject, built: Built, plan: Plan) -> Evidence | None:
    """What the verdict of one subject needs, by the product's own profiler. Raises InfrastructureError."""
    case = subject.case
    evidence = profiler.evaluate(case, built)
    if evidence is None:
        return None
    evidence = evidence.model_copy(update={"safety": _safety(profiler, subject, built, evidence, plan)})
    verdict = judge_without(case, built.build, evidence, plan.without)
    if subject.counts and verdict.correct and verdict.target_present:
        evidence = evidence.model_copy(update={"instructions": profiler.instructions(case, built)})
    return evidence


def _safety(
    profiler: Profiler, subject: Subject, built: Built, evidence: Evidence, plan: Plan
) -> tuple[SafetyEvidence, ...]:
    """The sanitizers that are asked for, until one finds something."""
    if evidence.run.status in RUNS_NOTHING:
        return ()
    off = {tool for tool in ("memcheck", "sanitizers") if tool in plan.without}
    found: list[SafetyEvidence] = []
    for tool in subject.tools or (("memcheck",) if plan.all_safety else ()):
        if ("memcheck" if tool == "memcheck" else "sanitizers") in off:
            continue
        found.append(profiler.sanitize(subject.case, built, tool))
        if found[-1].findings:
            break
    return tuple(found)


def default_jobs() -> int:
    """A quarter of the processors: each compilation keeps two busy, and a timing's hand-overs spin on two others."""
    return max(1, len(os.sched_getaffinity(0)) // 4)


def harness_commit(root: Path) -> str:
    """The commit of the checkout, ``+`` behind it where tracked files differ; ``unknown`` where git cannot tell."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def open_local(root: Path, without: Sequence[str]) -> Profiler:
    """This machine's device, with a shorter time for a call. Raises InfrastructureError("no_device")."""
    from ptxbench.profiler.local import LocalProfiler

    measured = tuple(name for name in without if DEFENCES[name] == "measure")
    return LocalProfiler(root=root, without=measured, call_timeout_s=CALL_TIMEOUT_S)
