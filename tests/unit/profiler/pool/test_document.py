"""docs/pool.md says the numbers that the code has."""

from __future__ import annotations

import re
from typing import get_args

from ptxbench.profiler.footprint import PROCESSES_BYTES, STATE_SHARE
from ptxbench.profiler.pool.readings import COOL_BY_C, THERMAL_SHARE, AlarmKind
from ptxbench.profiler.pool.residents import CANDIDATE_BYTES
from ptxbench.profiler.pool.scheduler import OLDEST_EVERY
from ptxbench.profiler.pool.slot import DEVICE_FAULTS, FAULTS_IN_ROW
from ptxbench.profiler.pool.watch import CURED_BY_RESTART, Limits
from ptxbench.profiler.protocol import DeviceState
from ptxbench.records.evidence import DRIFT_BOUND
from tests.unit.factories import ROOT

TEXT = (ROOT / "docs" / "pool.md").read_text()
LIMITS = Limits()


def test_numbers():
    assert OLDEST_EVERY == 8
    for words in (
        "every eighth operation",
        f"{PROCESSES_BYTES >> 30} GiB for the processes and {CANDIDATE_BYTES >> 30} GiB for a candidate",
        f"all states together {STATE_SHARE:.0%} of it",
        f"over when {COOL_BY_C} C below",
        f"over {THERMAL_SHARE:.0%} of the time",
        f"longer than {LIMITS.stuck_s / 60:.0f} minutes",
        f"calm for {LIMITS.calm_s:.0f} s",
        f"within {DRIFT_BOUND:.0%} of",
        f"a pause of {LIMITS.pause_s / 60:.0f} minutes",
    ):
        assert words in TEXT, words
    assert FAULTS_IN_ROW == 3
    told = re.search(r"^\| `failing` \| three operations in a row ended with (.*) \| restart \|$", TEXT, re.MULTILINE)
    assert told is not None
    assert set(re.findall(r"`(\w+)`", told[1])) == DEVICE_FAULTS
    assert (LIMITS.attempts, LIMITS.poll_s, LIMITS.quarantine_s, LIMITS.quarantine_most_s) == (3, 1.0, 60.0, 1800.0)


def test_alarms_and_what_follows():
    rows = re.findall(r"^\| `(\w+)` \| .* \| (pause|restart) \|$", TEXT, re.MULTILINE)
    assert dict(rows) == {kind: "restart" if kind in CURED_BY_RESTART else "pause" for kind in get_args(AlarmKind)}


def test_states():
    listed = re.search(r"its state \(([^)]*)\)", TEXT)
    assert listed is not None
    assert set(re.findall(r"\w+", listed[1])) == set(get_args(DeviceState))
