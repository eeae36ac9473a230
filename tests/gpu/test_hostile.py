"""Two hundred hostile candidates in a row cost nobody but themselves.

``PTXBENCH_EVIDENCE_DIR=DIR`` keeps what was seen as ``DIR/hostile.json``.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ptxbench.profiler.local import LocalProfiler
from ptxbench.profiler.procedure import failed
from ptxbench.profiler.worker import SANDBOX_PROGRAM
from ptxbench.records import Candidate, Evidence, RunStatus
from ptxbench.toolchain import Built, Toolchain
from tests.gpu.conftest import HERE, ROOT
from tests.support.figures import keep_figures

if TYPE_CHECKING:
    from ptxbench.cases import Case

CANDIDATES = 200
CALL_TIMEOUT_S = 1.0
WALL_LIMIT_S = 360.0
RECOVERY_LIMIT_S = 30.0
LATENCY_SHARE = 0.01
EVALUATIONS = 5
"""Of the reference before and behind."""
MEMORY_SLACK_MIB = 64
"""The driver's own, of a device that nobody uses."""
FIRST_SANDBOX_UID = 2_000_000_000
MARK = re.compile(rb"HOSTILE-0000/_{16}")
CRASHED, TIMEOUT, ERROR, DONE = RunStatus.CRASHED, RunStatus.TIMEOUT, RunStatus.RUNTIME_ERROR, RunStatus.COMPLETED
DEEDS: dict[str, tuple[int, set[RunStatus]]] = {
    "hang_host": (1, {TIMEOUT}),
    "hang_device": (1, {TIMEOUT}),
    "fault_host": (2, {CRASHED}),
    "fault_device": (2, {ERROR}),
    "memory_hog": (1, {TIMEOUT, CRASHED}),
    "device_hog": (1, {DONE, ERROR, TIMEOUT}),
    "fork_bomb": (2, {DONE, TIMEOUT}),
    "thread_bomb": (1, {DONE, TIMEOUT, ERROR}),
    "huge_print": (2, {DONE}),
    "early_exit": (2, {CRASHED}),
    "get_away": (2, {CRASHED}),
    "signal_games": (1, {TIMEOUT, CRASHED}),
    "aborts": (1, {CRASHED}),
    "forge": (1, {ERROR, CRASHED}),
}
"""Deed -> how often in a round, and the statuses that it may get. Completed ones fail their first check."""


@pytest.fixture
def own_profiler() -> Iterator[LocalProfiler]:
    profiler = LocalProfiler(root=ROOT, call_timeout_s=CALL_TIMEOUT_S)
    yield profiler
    profiler.close()


def in_turn() -> list[str]:
    """Deeds of all candidates, mixed so that each comes behind different others."""
    one_round = [deed for deed, (count, _) in DEEDS.items() for _ in range(count)]
    step = next(step for step in (7, 9, 11, 13) if len(one_round) % step)
    return [one_round[index * step % len(one_round)] for index in range(CANDIDATES)]


def hostile(built: Built, number: int, deed: str, folder: Path) -> Built:
    """The built object with another mark: a candidate of its own."""
    assert built.so_path is not None
    data = built.so_path.read_bytes()
    mark = f"HOSTILE-{number:04}/{deed}".encode().ljust(29, b"\0")
    assert len(MARK.findall(data)) == 1
    changed = MARK.sub(lambda _: mark, data)
    path = folder / f"hostile{number:04}.so"
    path.write_bytes(changed)
    build = built.build.model_copy(update={"so_sha256": sha256(changed).hexdigest()})
    return Built(build, path)


def used_mib() -> int:
    """Memory of the first device that is in use, as the driver tells."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    lines = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    return int(lines[0])


def leftovers() -> list[str]:
    """Processes of sandboxes, by the users that they alone have or by their program."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status = (folder / "status").read_text()
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            uid = int(re.search(r"^Uid:\s+(\d+)", status, re.MULTILINE)[1])  # type: ignore[index]
            if uid >= FIRST_SANDBOX_UID or str(SANDBOX_PROGRAM).encode() in command.split(b"\0"):
                found.append(f"{folder.name} uid {uid} {command[:80]!r}")
    return found


def latency_ns(evidences: list[Evidence]) -> float:
    runs = [[trial.timing for trial in evidence.run.trials if trial.timing] for evidence in evidences]
    return statistics.median(statistics.median(statistics.median(each.span_ns) for each in run) for run in runs)


def expect_own_verdict(evidence: Evidence, number: int, deed: str) -> None:
    """Everything in the evidence is of this candidate."""
    run = evidence.run
    assert run.status in DEEDS[deed][1], (number, deed, run.status, run.message)
    if run.status is RunStatus.COMPLETED:
        assert not run.trials or any(failed(check) for trial in run.trials for check in trial.checks), (number, deed)
    if deed in ("early_exit", "get_away"):
        assert f"exited with code {3 + number % 100} " in run.message, (number, deed, run.message)
    marks = set(re.findall(r"HOSTILE-\d{4}", run.output_tail))
    # What is printed behind it may push it out of the tail that is kept.
    assert marks == {f"HOSTILE-{number:04}"} or (deed == "huge_print" and not marks), (number, deed, marks)


def test_two_hundred_hostile_candidates(
    own_profiler: LocalProfiler, gemm: Case, toolchain: Toolchain, reference_gemm: str, tmp_path: Path
) -> None:
    others = set(leftovers())
    memory_before = used_mib()
    reference = toolchain.build(Candidate(source=reference_gemm), gemm.arch)
    # The screen would keep most of its deeds from being tried.
    unscreened = Toolchain.discover(screened=False)
    built = unscreened.build(Candidate(source=(HERE / "kernels" / "hostile.cu").read_text()), gemm.arch)

    def evaluate(candidate: Built) -> Evidence:
        evidence = own_profiler.evaluate(gemm, candidate)
        assert evidence is not None
        return evidence

    evaluate(reference)
    before = [evaluate(reference) for _ in range(EVALUATIONS)]
    begin = time.monotonic()
    rows = []
    faults = []
    for number, deed in enumerate(in_turn()):
        started = time.monotonic()
        evidence = evaluate(hostile(built, number, deed, tmp_path))
        seconds = round(time.monotonic() - started, 3)
        rows.append({"deed": deed, "status": evidence.run.status.value, "seconds": seconds})
        try:
            expect_own_verdict(evidence, number, deed)
        except AssertionError as error:
            faults.append(str(error))
    wall_s = time.monotonic() - begin
    recovering = time.monotonic()
    first_after = evaluate(reference)
    recovery_s = time.monotonic() - recovering
    after = [evaluate(reference) for _ in range(EVALUATIONS)]
    own_profiler.close()
    left = sorted(set(leftovers()) - others)
    memory_after = used_mib()
    change = latency_ns(after) / latency_ns(before) - 1
    record = {
        "device": before[0].device.model_dump(),
        "measured_at": before[0].measured_at,
        "containment": first_after.run.containment.model_dump() if first_after.run.containment else None,
        "candidates": len(rows),
        "statuses": {deed: sorted({row["status"] for row in rows if row["deed"] == deed}) for deed in DEEDS},
        "wrongly_attributed": faults,
        "wall_s": round(wall_s, 1),
        "recovery_s": round(recovery_s, 2),
        "latency_before_ns": latency_ns(before),
        "latency_after_ns": latency_ns(after),
        "latency_change": round(change, 5),
        "device_memory_before_mib": memory_before,
        "device_memory_after_mib": memory_after,
        "processes_left": left,
        "rows": rows,
    }
    keep_figures("hostile.json", record)
    assert first_after.run.status is RunStatus.COMPLETED
    expect_figures(record)


def expect_figures(record: dict[str, Any]) -> None:
    """What is demanded of a run's figures, here and of stored ones."""
    assert record["candidates"] == len(record["rows"]) == CANDIDATES
    assert [row["deed"] for row in record["rows"]] == in_turn()
    assert all(row["status"] in DEEDS[row["deed"]][1] for row in record["rows"])
    assert record["wrongly_attributed"] == []
    assert record["processes_left"] == []
    assert abs(record["latency_after_ns"] / record["latency_before_ns"] - 1) < LATENCY_SHARE
    assert record["device_memory_after_mib"] <= record["device_memory_before_mib"] + MEMORY_SLACK_MIB
    assert record["recovery_s"] < RECOVERY_LIMIT_S
    assert record["wall_s"] < WALL_LIMIT_S
