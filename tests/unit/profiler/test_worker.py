"""Conversations with real processes. What becomes of processes and folders is in test_worker_processes.py."""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import worker as module
from ptxbench.profiler.replies import WorkerError
from ptxbench.profiler.worker import OUTPUT_TAIL_CHARS, Worker, sandbox_command
from ptxbench.records import RunStatus
from tests.conftest import compute_capability
from tests.unit.profiler.stand_in import CONNECT, HONEST, IMPORTED, LOADED, READY, Start

SERVING = CONNECT + READY + LOADED


def loaded(worker: Worker) -> Worker:
    worker.wait_ready()
    worker.load({"handle": "00"})
    return worker


def fault_of_call(worker: Worker, timeout_s: float = 10) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        worker.call(timeout_s)
    return caught.value


@pytest.mark.skipif(compute_capability() is not None, reason="there is a CUDA device")
def test_sandbox_that_cannot_start_is_an_infrastructure_error_with_its_last_words() -> None:
    worker = Worker(sandbox_command())
    try:
        with pytest.raises(InfrastructureError, match="did not start: the process exited with code 1") as caught:
            worker.wait_ready()
    finally:
        worker.close()
    assert caught.value.kind == "sandbox_failed"
    assert "its last words: " in str(caught.value)
    assert "Error" in str(caught.value).partition("its last words: ")[2]


@pytest.mark.parametrize("by_path", [False, True])
def test_whole_conversation(start: Start, by_path: bool) -> None:
    worker = loaded(start(SERVING + HONEST, by_path=by_path))
    worker.wait_ready()
    worker.warm_up(3)
    walls = [worker.call() for _ in range(4)]
    assert all(wall > 0 for wall in walls)
    assert worker.collect(4).spans == (1000,) * 4
    assert worker.collect(0).spans == ()
    worker.notify("quit")
    assert worker.exit_code(10) == 0


def test_wall_time_is_that_of_the_call(start: Start) -> None:
    worker = loaded(start(SERVING + 'hear()\ntime.sleep(0.2)\nsay(b"o")\n'))
    assert 0.2e9 <= worker.call() < 2e9


def test_call_can_be_awaited_in_steps(start: Start) -> None:
    worker = loaded(start(SERVING + 'hear()\ntime.sleep(0.3)\nsay(b"o")\nhear()\n'))
    worker.begin_call()
    assert not worker.answered(0.01)
    assert worker.answered(5)
    worker.finish_call()


def test_job_reaches_the_worker_and_its_error_comes_back(start: Start) -> None:
    worker = start(
        CONNECT + READY + 'job = json.loads(hear())\nsay(json.dumps({"error": job["symbol"], "code": 7}).encode())\n'
    )
    worker.wait_ready()
    with pytest.raises(WorkerError, match=r"^run$") as caught:
        worker.load({"symbol": "run"})
    assert (caught.value.status, caught.value.code) == (RunStatus.LOAD_ERROR, 7)


def test_an_object_that_was_changed_since_it_was_built_is_not_run(start: Start, tmp_path: Path) -> None:
    so_path = tmp_path / "kernel.so"
    so_path.write_bytes(b"as it was built")
    job = {"so_path": str(so_path), "so_sha256": hashlib.sha256(b"as it was built").hexdigest()}
    worker = start(SERVING + "hear()\n")
    worker.wait_ready()
    worker.load(job)
    so_path.write_bytes(b"of somebody else")
    other = start(SERVING + "hear()\n")
    other.wait_ready()
    with pytest.raises(InfrastructureError, match="expected the object that was built") as caught:
        other.load(job)
    assert caught.value.kind == "internal_error"


def test_error_of_a_call(start: Start) -> None:
    worker = loaded(start(SERVING + """hear(); say(b'{"error": "an illegal address", "code": 700}'); hear()\n"""))
    fault = fault_of_call(worker)
    assert (fault.status, str(fault), fault.code) == (RunStatus.RUNTIME_ERROR, "an illegal address", 700)


def test_endless_call_is_a_timeout(start: Start) -> None:
    worker = loaded(start(SERVING + "hear(); time.sleep(60)\n"))
    begin = time.monotonic()
    fault = fault_of_call(worker, 0.2)
    assert (fault.status, str(fault)) == (RunStatus.TIMEOUT, "no answer within 0.2 s")
    assert time.monotonic() - begin < 20


def test_calls_end_at_the_deadline_for_all(start: Start) -> None:
    worker = loaded(start(SERVING + 'hear(); say(b"o"); hear(); time.sleep(60)\n'))
    worker.deadline = time.monotonic() + 30
    worker.call()
    worker.deadline = time.monotonic() + 0.1
    fault = fault_of_call(worker)
    assert (fault.status, str(fault)) == (RunStatus.TIMEOUT, "no answer within the time for all calls")
    assert time.monotonic() - worker.deadline < 5


def test_message_that_never_ends_is_a_timeout(start: Start) -> None:
    worker = loaded(start(SERVING + 'hear(); os.write(channel.fileno(), b"\\0\\0\\0\\x09half"); time.sleep(60)\n'))
    assert fault_of_call(worker, 0.2).status is RunStatus.TIMEOUT


def test_message_without_bounds_is_refused(start: Start) -> None:
    worker = loaded(start(SERVING + 'hear(); os.write(channel.fileno(), b"\\x7f\\xff\\xff\\xff"); time.sleep(60)\n'))
    fault = fault_of_call(worker)
    assert fault.status is RunStatus.RUNTIME_ERROR
    assert "announced a reply of 2147483647 bytes" in str(fault)


@pytest.mark.parametrize(
    ("last_deed", "words", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the process was ended by SIGSEGV during a call", -11),
        ("os.kill(os.getpid(), 40)", "the process was ended by signal 40 during a call", -40),
        ("os._exit(3)", "the process exited with code 3 during a call", None),
        ("os._exit(0)", "the process exited with code 0 during a call", None),
    ],
)
def test_end_during_a_call(start: Start, last_deed: str, words: str, code: int | None) -> None:
    fault = fault_of_call(loaded(start(f"{SERVING}hear(); {last_deed}\n")))
    assert (fault.status, str(fault), fault.code) == (RunStatus.CRASHED, words, code)


def test_end_between_calls(start: Start) -> None:
    worker = loaded(start(SERVING + "os._exit(4)\n"))
    assert worker.exit_code(10) == 4
    fault = fault_of_call(worker)
    assert (fault.status, str(fault)) == (RunStatus.CRASHED, "the process exited with code 4 during a call")
    worker.notify("quit")


def test_closed_channel_of_a_process_that_lives_on(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "END_TIMEOUT_S", 0.1)
    fault = fault_of_call(loaded(start(SERVING + "hear(); channel.close(); time.sleep(60)\n")))
    assert (fault.status, str(fault)) == (RunStatus.CRASHED, "the process closed its channel but did not end")


GARBAGE = ["", "PASSED", "oo", "{}", "[]", "null", '{"error": 1}', '{"code": 1}', "[" * 50_000, "\x00\udcff"]


def test_garbage_in_place_of_an_answer_is_the_candidates_error(start: Start) -> None:
    body = f"for text in {GARBAGE!r}: hear(); channel.send_bytes(text.encode('utf-8', 'surrogateescape'))\n"
    worker = loaded(start(SERVING + body))
    for text in GARBAGE:
        fault = fault_of_call(worker)
        assert fault.status is RunStatus.RUNTIME_ERROR, text[:20]
        assert "answered with something else than an answer to this request" in str(fault)


def test_garbage_in_place_of_a_loading_answer(start: Start) -> None:
    worker = start(CONNECT + READY + 'hear(); channel.send_bytes(b"loaded!")\n')
    worker.wait_ready()
    with pytest.raises(WorkerError, match=r"else than an answer to this request, of 7 bytes: b'loaded!'") as caught:
        worker.load({})
    assert caught.value.status is RunStatus.LOAD_ERROR


def test_garbage_in_place_of_a_recording(start: Start) -> None:
    forged = [
        *GARBAGE,
        "o",
        json.dumps({"spans": [1], "activities": [1], "stray": 0, "launches": []}),
        json.dumps({"spans": [1, -1], "activities": [1, 1], "stray": 0, "launches": []}),
        json.dumps({"spans": [1, 1], "activities": [1, 1], "stray": 0, "launches": [["gemm"]]}),
    ]
    worker = loaded(start(f"{SERVING}for text in {forged!r}: hear(); say(text.encode('utf-8', 'surrogateescape'))\n"))
    for _ in forged:
        with pytest.raises(WorkerError, match="something else than a recording") as caught:
            worker.collect(2)
        assert caught.value.status is RunStatus.RUNTIME_ERROR


@pytest.mark.parametrize("ahead", ['say(b"o")', 'os.write(channel.fileno(), b"\\0\\0")'])
def test_answer_that_was_sent_ahead_counts_for_no_call(start: Start, ahead: str) -> None:
    worker = loaded(start(f'{SERVING}hear(); say(b"o"); {ahead}; time.sleep(60)\n'))
    worker.call()
    assert worker.answered(10)
    fault = fault_of_call(worker)
    assert (fault.status, str(fault)) == (RunStatus.RUNTIME_ERROR, "the process answered without being asked")


def test_answers_sent_ahead_stop_every_request(start: Start) -> None:
    worker = loaded(start(f'{SERVING}os.write(channel.fileno(), b"\\0\\0\\0\\1o" * 9); time.sleep(60)\n'))
    assert worker.answered(10)
    for request in (lambda: worker.warm_up(1), lambda: worker.collect(1), lambda: worker.load({}), worker.begin_call):
        with pytest.raises(WorkerError, match="without being asked"):
            request()


def test_garbage_in_place_of_ready_is_an_infrastructure_error(start: Start) -> None:
    worker = start(CONNECT + 'print("what I meant to say", flush=True); say(b"hello")\ntime.sleep(60)\n')
    with pytest.raises(InfrastructureError, match=r"something else than imported.*what I meant to say") as caught:
        worker.wait_ready()
    assert caught.value.kind == "sandbox_failed"


def test_context_is_created_when_asked_for_and_not_before(start: Start) -> None:
    worker = start(f"{CONNECT}{IMPORTED}print('context', flush=True)\n" + """say(b'{"stage": "ready"}')\nhear()\n""")
    assert worker.answered(10)
    assert (worker.warming, worker.output_tail()) == (False, "")
    worker.warm()
    worker.warm()
    assert worker.warming
    worker.wait_ready()
    assert worker.output_tail() == "context\n"


def test_warming_does_not_wait_for_the_imports(start: Start) -> None:
    worker = start("time.sleep(0.3)\n" + SERVING + HONEST)
    worker.warm()
    assert not worker.warming
    loaded(worker).call()


def test_warming_a_process_that_ended_is_an_infrastructure_error(start: Start) -> None:
    worker = start("print('no library', flush=True); sys.exit(1)\n")
    assert worker.answered(10)
    with pytest.raises(InfrastructureError, match="no library"):
        worker.warm()


def test_not_ready_in_time(start: Start) -> None:
    with pytest.raises(InfrastructureError, match=r"did not start: no answer within 0\.1 s"):
        start("time.sleep(60)\n").wait_ready(0.1)


def test_end_before_connecting(start: Start) -> None:
    worker = start('print("no such device", flush=True)\nsys.exit(2)\n', by_path=True)
    with pytest.raises(InfrastructureError, match=r"exited with code 2 before connecting.*no such device") as caught:
        worker.wait_ready()
    assert caught.value.kind == "sandbox_failed"


def test_no_connection_in_time(start: Start) -> None:
    with pytest.raises(InfrastructureError, match="no connection within 0 s"):
        start("time.sleep(60)\n", by_path=True).wait_ready(0.3)


def test_output_is_quoted_from_its_end_only(start: Start, tmp_path: Path) -> None:
    noise = "import sys; sys.stdout.buffer.write(b'\\xff' * 3_000_000 + b'the last words'); sys.stdout.flush()\n"
    worker = loaded(start(SERVING + noise + 'hear(); print("x" * 100, file=sys.stderr, flush=True); say(b"o"); hear()'))
    worker.call()
    tail = worker.output_tail()
    assert len(tail) == OUTPUT_TAIL_CHARS
    assert tail.endswith("the last words" + "x" * 100 + "\n")
    assert tail.startswith("\ufffd")
    worker.close()
    assert worker.output_tail() == ""


def test_output_is_quoted_whatever_flags_its_process_gives_the_file(start: Start) -> None:
    """With O_DIRECT, which holds for all who share a description, a reading at any offset fails: not the oracle's."""
    deed = (
        "import fcntl\nprint('last words', flush=True)\n"
        "fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_DIRECT | os.O_APPEND)\n"
    )
    worker = loaded(start(SERVING + deed + HONEST))
    worker.call()
    assert worker.output_tail() == "last words\n"


@pytest.mark.parametrize("request_of", [Worker.call, lambda worker: worker.collect(0)])
def test_a_byte_out_of_band_keeps_nobody_waiting(start: Start, request_of: Callable[[Worker], object]) -> None:
    deed = "import socket\nsocket.socket(fileno=os.dup(channel.fileno())).send(b'!', socket.MSG_OOB)\n"
    worker = loaded(start(SERVING + deed + "time.sleep(5)\n"))
    assert worker.answered(5)
    begun = time.monotonic()
    with pytest.raises(WorkerError, match="answered without being asked"):
        request_of(worker)
    assert time.monotonic() - begun < 2
