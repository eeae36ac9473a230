import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from ptxbench.toolchain.process import MAX_OUTPUT_BYTES, Limits, Session

ENV = {"PATH": os.environ["PATH"]}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if path.exists() and path.read_text().endswith("\n"):
            return path.read_text()
        time.sleep(0.01)
    raise AssertionError(f"{path} did not appear")


def test_output_and_exit_code_come_back(tmp_path: Path):
    with Session(tmp_path, ENV | {"SECRET": "no"}, Limits()) as session:
        result = session.run(["sh", "-c", "echo out; echo err >&2; pwd; exit 3"])
    assert result == ("sh", 3, f"out\nerr\n{tmp_path}\n")
    assert not result.ok


def test_arguments_are_passed_untouched(tmp_path: Path):
    with Session(tmp_path, ENV, Limits()) as session:
        assert session.run(["printf", "%s|", "a b", "$HOME", '"', "-v  "]).output == 'a b|$HOME|"|-v  |'


def test_the_time_limit_kills_the_whole_group(tmp_path: Path):
    with Session(tmp_path, ENV, Limits(seconds=0.5)) as session:
        result = session.run(["sh", "-c", "sleep 60 & echo $! > child; wait"])
        assert session.timed_out_tool == "sh"
    assert result.returncode == -signal.SIGKILL
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(child)


def test_what_a_step_leaves_running_is_killed(tmp_path: Path):
    with Session(tmp_path, ENV, Limits()) as session:
        assert session.run(["sh", "-c", "sleep 60 > /dev/null & echo $! > child"]).ok
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(child)


def test_the_deadline_is_shared_by_all_steps(tmp_path: Path):
    with Session(tmp_path, ENV, Limits(seconds=0.4)) as session:
        session.run(["sleep", "0.3"])
        assert session.timed_out_tool is None
        session.run(["sleep", "0.3"])
        assert session.timed_out_tool == "sleep"


def test_time_that_went_before_counts(tmp_path: Path):
    with Session(tmp_path, ENV, Limits(seconds=60), started=time.monotonic() - 61) as session:
        session.run(["sleep", "60"])
        assert session.timed_out_tool == "sleep"


def test_cancelling_ends_running_steps_and_refuses_new_ones(tmp_path: Path):
    with Session(tmp_path, ENV, Limits()) as session:
        results = []
        thread = threading.Thread(target=lambda: results.append(session.run(["sh", "-c", "echo > up; sleep 60"])))
        thread.start()
        wait_for(tmp_path / "up")
        session.cancel()
        thread.join(10)
        assert results[0].returncode == -signal.SIGKILL
        assert session.run(["true"]).returncode == -signal.SIGKILL
        assert session.timed_out_tool is None


def test_memory_is_limited(tmp_path: Path):
    with Session(tmp_path, ENV, Limits(memory_bytes=512 << 20)) as session:
        result = session.run([sys.executable, "-c", "bytearray(1 << 30)"])
        assert "MemoryError" in result.output
        assert session.run([sys.executable, "-c", "bytearray(1 << 20)"]).ok


def test_file_size_is_limited(tmp_path: Path):
    with Session(tmp_path, ENV, Limits(file_bytes=1 << 20)) as session:
        result = session.run(["dd", "if=/dev/zero", "of=big", "bs=64k", "count=64"])
    assert result.returncode == -signal.SIGXFSZ
    assert (tmp_path / "big").stat().st_size <= 1 << 20


def test_of_endless_output_the_start_and_the_end_are_read(tmp_path: Path):
    script = f"echo start; yes | head -c {2 * MAX_OUTPUT_BYTES}; echo end"
    with Session(tmp_path, ENV, Limits()) as session:
        cut = session.run(["sh", "-c", script]).output
        whole = session.run(["sh", "-c", script], whole=True).output
    assert len(cut) == MAX_OUTPUT_BYTES
    assert len(whole) == 2 * MAX_OUTPUT_BYTES + len("start\nend\n")
    for output in (cut, whole):
        assert output.startswith("start\n")
        assert output.endswith("end\n")


def test_a_missing_tool_has_the_shell_s_exit_code(tmp_path: Path):
    with Session(tmp_path, ENV, Limits()) as session:
        assert session.run(["no-such-tool"]).returncode == 127


def test_a_folder_that_is_gone_is_an_oserror(tmp_path: Path):
    with Session(tmp_path / "gone", ENV, Limits()) as session, pytest.raises(FileNotFoundError):
        session.run(["true"])
