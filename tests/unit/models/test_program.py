"""Real programs and what they say."""

import sys
import time
from pathlib import Path

import pytest

from ptxbench.models.client import ModelError
from ptxbench.models.program import Ran, run_program

KEEP = (1000, 100)


def ran(folder: Path, program: str, seconds: float = 20.0) -> Ran:
    start = "import os, signal, subprocess, sys, time\n"
    return run_program(
        [sys.executable, "-c", start + program], folder, seconds=seconds, keep=KEEP, cancelled=lambda: False
    )


def test_both_ends_are_kept(tmp_path):
    found = ran(tmp_path, "print('a' * 300_000 + 'end'); print('b' * 300_000 + 'last', file=sys.stderr); sys.exit(3)")
    assert found.code == 3
    assert found.output == (b"a" * 300_000 + b"end\n")[-1000:]
    assert found.errors == (b"b" * 300_000 + b"last\n")[-100:]
    assert list(tmp_path.iterdir()) == []


def test_it_runs_in_its_folder_without_input(tmp_path):
    assert ran(tmp_path, "print(os.getcwd(), repr(sys.stdin.read()))").output.decode().split() == [str(tmp_path), "''"]


def test_an_endless_output_fills_nothing(tmp_path):
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    found = ran(tmp_path, "os.execvp('yes', ['yes', 'for ever'])", seconds=2.0)
    assert time.monotonic() - started < 10
    assert found.code is None
    assert b"\nfor ever\nfor ever\n" in found.output
    assert len(found.output) == 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


def test_a_flood_can_be_cancelled(tmp_path):
    started = time.monotonic()
    with pytest.raises(ModelError, match=r"told to stop"):
        run_program(["yes"], tmp_path, seconds=60, keep=KEEP, cancelled=lambda: time.monotonic() - started > 0.5)
    assert time.monotonic() - started < 10


def test_what_is_said_at_the_end_is_heard(tmp_path):
    program = (
        "def bye(*_): print('x' * 200_000 + 'goodbye', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, bye); print('here', flush=True); time.sleep(60)"
    )
    found = ran(tmp_path, program, seconds=1.0)
    assert found.code is None
    assert found.output.endswith(b"xgoodbye\n")


def test_a_closed_output_is_no_end(tmp_path):
    found = ran(tmp_path, "os.close(1); os.close(2); time.sleep(0.5); os._exit(7)")
    assert (found.code, found.output) == (7, b"")


def test_a_child_that_got_away_and_writes_on_is_not_waited_for(tmp_path):
    child = "import time\ntry:\n  while True: print('x' * 10_000)\nexcept OSError: pass"
    started = time.monotonic()
    found = ran(
        tmp_path, f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True); time.sleep(0.5)"
    )
    assert found.code == 0
    assert time.monotonic() - started < 10


def test_a_program_that_is_none(tmp_path):
    with pytest.raises(FileNotFoundError):
        run_program([str(tmp_path / "none")], tmp_path, seconds=1, keep=KEEP, cancelled=lambda: False)
