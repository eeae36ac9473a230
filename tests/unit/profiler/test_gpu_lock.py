import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import gpu_lock as module
from ptxbench.profiler.gpu_lock import gpu_lock

PLUGINS = Path(module.__file__).parents[2]
HOLDER = """
import sys, time
from pathlib import Path
from ptxbench.profiler.gpu_lock import gpu_lock
with gpu_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""

Holder = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "gpu.lock"


@pytest.fixture
def hold(lock: Path) -> Iterator[Holder]:
    """Starts another process that holds the lock."""
    started: list[subprocess.Popen[str]] = []

    def start() -> "subprocess.Popen[str]":
        environment = os.environ | {"PYTHONPATH": str(PLUGINS)}
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE, text=True, env=environment
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_lock_is_free_again_behind_the_block(lock: Path) -> None:
    for _ in range(2):
        with gpu_lock(lock, timeout_s=0):
            pass


def test_lock_is_free_again_behind_an_error(lock: Path) -> None:
    with pytest.raises(ZeroDivisionError), gpu_lock(lock, timeout_s=0):
        _ = 1 / 0
    with gpu_lock(lock, timeout_s=0):
        pass


def test_held_by_another_process_is_an_error_that_names_the_file(lock: Path, hold: Holder) -> None:
    hold()
    begin = time.monotonic()
    expected = pytest.raises(InfrastructureError, match="another process has held this GPU")
    with expected as caught, gpu_lock(lock, timeout_s=0.2):
        pytest.fail("the lock was given twice")
    assert time.monotonic() - begin >= 0.2
    assert caught.value.kind == "busy_device"
    assert str(lock) in str(caught.value)


def test_killed_holder_lets_go(lock: Path, hold: Holder) -> None:
    holder = hold()
    holder.send_signal(signal.SIGKILL)
    with gpu_lock(lock, timeout_s=5):
        pass
    assert holder.wait() == -signal.SIGKILL


def test_waiting_ends_when_the_holder_ends(lock: Path, hold: Holder) -> None:
    holder = hold()
    timer = threading.Timer(0.2, holder.kill)
    timer.start()
    begin = time.monotonic()
    with gpu_lock(lock, timeout_s=10):
        waited = time.monotonic() - begin
    timer.join()
    assert 0.1 < waited < 8


def test_lock_of_one_thread_keeps_out_another_descriptor(lock: Path) -> None:
    with gpu_lock(lock, timeout_s=0), pytest.raises(InfrastructureError), gpu_lock(lock, timeout_s=0):
        pytest.fail("the lock was given twice")


def test_file_that_may_only_be_read_can_be_locked(lock: Path) -> None:
    lock.touch(mode=0o444)
    with gpu_lock(lock, timeout_s=0):
        pass
    assert lock.stat().st_mode & 0o777 == 0o444
