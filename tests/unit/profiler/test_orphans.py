"""What a candidate under a tool leaves behind on purpose: processes that descend from nobody who knows them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ptxbench.profiler.environment import import_path
from tests.unit.profiler.stand_in import is_alive

ORACLE = """
import json, os, subprocess, sys, time
from pathlib import Path
from ptxbench.profiler.endings import adopt_orphans, end_orphans
from ptxbench.profiler.worker import Command, Worker

if sys.argv[1] == "adopting":
    adopt_orphans()
own = subprocess.Popen(["sleep", "100"])
# As a tool would be: no keeper, and a candidate below that may start what it likes. Both parents of the daemon end.
script = "(setsid sh -c 'sleep 101 & echo $! > daemon.new; mv daemon.new daemon' &) ; sleep 100"
workers = [Worker(Command(["sh", "-c", script]), environment={"PATH": "/usr/bin:/bin"}) for _ in range(2)]
daemons = []
for worker in workers:
    while not (worker.work / "daemon").exists():
        time.sleep(0.01)
    daemons.append(int((worker.work / "daemon").read_text()))
time.sleep(0.1)
workers[0].close()
zombies = [line for line in subprocess.run(["ps", "-o", "stat=", "--ppid", str(os.getpid())], capture_output=True,
           text=True).stdout.split() if line.startswith("Z")]
print(json.dumps({"daemons": daemons, "zombies": len(zombies), "own": own.poll(), "other": workers[1].process.poll()}))
sys.stdout.flush()
sys.stdin.read()
workers[1].close()
own.kill()
for pid in daemons:
    try:
        os.kill(pid, 9)
    except OSError:
        pass
"""


@pytest.mark.parametrize("mode", ["adopting", "not"])
def test_a_daemon_ends_with_the_sandbox_that_left_it(mode: str) -> None:
    """``not`` shows what it is for. The other worker and what this process started for itself are left alone."""
    with subprocess.Popen(
        [sys.executable, "-c", ORACLE, mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": import_path()},
        text=True,
    ) as oracle:
        assert oracle.stdout is not None
        told = json.loads(oracle.stdout.readline())
        # All orphans have the same parent, so those of another sandbox under a tool end too: there is one at a time.
        assert [is_alive(pid) for pid in told["daemons"]] == [mode == "not"] * 2
        assert (told["own"], told["other"], told["zombies"]) == (None, None, 0)
        oracle.communicate(timeout=20)
    assert not any(map(is_alive, told["daemons"]))
