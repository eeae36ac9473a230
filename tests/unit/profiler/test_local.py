"""What can be said of the local profiler without a device: the real oracle that finds none, and stand-in oracles."""

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import local
from ptxbench.profiler.local import LocalProfiler
from ptxbench.profiler.safety_cache import SafetyCache
from ptxbench.records import Evidence
from ptxbench.toolchain import Built
from tests.conftest import compute_capability
from tests.unit.factories import (
    DEVICE,
    digest,
    make_baseline,
    make_build,
    make_call,
    make_comparison,
    make_instructions,
    make_run,
    make_safety,
    make_trial,
    suite_case,
)
from tests.unit.profiler.stand_in import is_alive

OPENING = """\
import json, os, sys, time
from multiprocessing.connection import Connection
channel = Connection(int(sys.argv[sys.argv.index("--fd") + 1]))
def hear():
    try:
        return json.loads(channel.recv_bytes())
    except EOFError:
        sys.exit()
def say(**answer):
    channel.send_bytes(json.dumps(answer).encode())
"""
HELLO = f"""\
assert hear()["op"] == "hello"
libraries = {{"torch": "2.11.0", "pid": str(os.getpid())}}
say(result={{"device": {DEVICE.model_dump(mode="json")!r}, "libraries": libraries}})
"""


class Open(Protocol):
    """Opens a local profiler whose oracle is ``OPENING`` and the given program."""

    def __call__(self, program: str, stopped: Callable[[], bool] = ...) -> LocalProfiler: ...


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "device_present", lambda: True)


@pytest.fixture
def open_with(device: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    package = tmp_path / "oracles" / "ptxbench" / "profiler"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    monkeypatch.setattr(local, "import_path", lambda: str(tmp_path / "oracles"))
    opened: list[LocalProfiler] = []

    def open_profiler(program: str, stopped: Callable[[], bool] = lambda: False) -> LocalProfiler:
        (package / "oracle.py").write_text(OPENING + program)
        opened.append(LocalProfiler(root=tmp_path, stopped=stopped))
        return opened[-1]

    yield open_profiler
    for profiler in opened:
        profiler.close()


def built() -> Built:
    return Built(make_build(), Path("/builds/kernel.so"))


def oracle_pid(evidence: Evidence) -> int:
    return int(evidence.libraries["pid"])


def test_no_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local, "device_present", lambda: False)
    with pytest.raises(InfrastructureError, match="expected a CUDA device and driver, found none") as caught:
        LocalProfiler(root=tmp_path)
    assert caught.value.kind == "no_device"


@pytest.mark.skipif(compute_capability() is not None, reason="there is a CUDA device")
def test_oracle_that_finds_no_device_says_so_and_is_gone(device: None, tmp_path: Path) -> None:
    profiler = LocalProfiler(root=tmp_path)
    with pytest.raises(InfrastructureError, match="expected a CUDA device that torch can use") as caught:
        profiler.health()
    assert caught.value.kind == "no_device"
    assert profiler._process is None
    profiler.close()


def serving(*results: str) -> str:
    """A program that greets and then answers each request with the next JSON text."""
    return f"{HELLO}for result in {list(results)!r}:\n    hear()\n    say(result=json.loads(result))\nhear()\n"


def test_health_names_the_device(open_with: Open) -> None:
    health = open_with(serving()).health()
    assert (health.kind, health.device) == ("local", DEVICE)
    assert health.message == "NVIDIA H200, driver 580.159"


def test_evidence_is_what_ran_and_where(open_with: Open) -> None:
    run = make_run()
    profiler = open_with(serving(run.model_dump_json()))
    evidence = profiler.evaluate(suite_case(), built())
    assert evidence is not None
    assert (evidence.run, evidence.device) == (run, DEVICE)
    assert evidence.libraries["torch"] == "2.11.0"
    assert (evidence.candidate_sha256, evidence.so_sha256, evidence.cubin_sha256) == tuple(map(digest, "abc"))
    assert (evidence.definition, evidence.arch) == (suite_case().definition.name, "h100")
    assert evidence.workload_uuid == suite_case().workload.uuid
    assert Evidence.model_validate_json(evidence.model_dump_json()) == evidence


def test_errors_without_bounds_survive_the_way(open_with: Open) -> None:
    call = make_call(outputs=(make_comparison(max_rel_error=math.inf, rms_error=math.inf, mismatched=3),))
    run = make_run(trials=(make_trial(checks=(call,), timing=None),))
    # As the oracle writes them: numbers of Python's JSON, not the strings of a stored record.
    evidence = open_with(serving(json.dumps(run.model_dump(mode="json")))).evaluate(suite_case(), built())
    assert evidence is not None
    assert evidence.run == run


def test_request_holds_what_the_oracle_needs(open_with: Open) -> None:
    program = f'{HELLO}request = hear()\nsay(fault={{"kind": "busy_device", "message": json.dumps(request)}})\nhear()\n'
    with pytest.raises(InfrastructureError) as caught:
        open_with(program).sanitize(suite_case(), built(), "racecheck")
    assert caught.value.kind == "busy_device"
    request = json.loads(str(caught.value))
    assert request.pop("case") == suite_case().model_dump_json()
    sha256 = built().build.so_sha256
    assert sha256
    assert request.pop("so_sha256") == sha256
    assert request == {"op": "sanitize", "so_path": "/builds/kernel.so", "symbol": "run", "tool": "racecheck"}


def test_tools_answers(open_with: Open) -> None:
    instructions, safety = make_instructions(), make_safety("initcheck", "uninitialized")
    profiler = open_with(serving(instructions.model_dump_json(), safety.model_dump_json()))
    assert profiler.instructions(suite_case(), built()) == instructions
    assert profiler.sanitize(suite_case(), built(), "initcheck") == safety


def test_an_object_that_was_checked_before_is_not_checked_again(
    open_with: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "find_tool", lambda name: f"/tools/{name}")
    monkeypatch.setattr(local, "tool_version", lambda path: "2025.3.1")
    safety = make_safety("racecheck", "a hazard")
    # The oracle answers one request, and ends at the second.
    profiler = open_with(f"{HELLO}hear()\nsay(result=json.loads({safety.model_dump_json()!r}))\nhear()\nsys.exit(1)\n")
    profiler._safety_cache = SafetyCache(tmp_path / "safety")
    assert profiler.sanitize(suite_case(), built(), "racecheck") == safety
    again = profiler.sanitize(suite_case(), built(), "racecheck")
    assert again.checked_before.startswith("20")
    assert again.findings == safety.findings
    other = Built(make_build(so_sha256=digest("9")), Path("/builds/kernel.so"))
    with pytest.raises(InfrastructureError):
        profiler.sanitize(suite_case(), other, "racecheck")


def test_fault_comes_back_typed_and_the_oracle_lives_on(open_with: Open) -> None:
    run = make_run().model_dump_json()
    profiler = open_with(
        f'{HELLO}hear()\nsay(fault={{"kind": "reference_failed", "message": "mend the definition"}})\n'
        f"hear()\nsay(result=json.loads({run!r}))\nhear()\n"
    )
    with pytest.raises(InfrastructureError, match=r"^mend the definition$") as caught:
        profiler.evaluate(suite_case(), built())
    assert caught.value.kind == "reference_failed"
    evidence = profiler.evaluate(suite_case(), built())
    assert evidence is not None
    assert is_alive(oracle_pid(evidence))


def test_oracle_that_died_is_replaced(open_with: Open) -> None:
    profiler = open_with(f"{HELLO}hear()\nsys.exit(1)\n")
    with pytest.raises(InfrastructureError, match="ended during 'evaluate'") as caught:
        profiler.evaluate(suite_case(), built())
    assert caught.value.kind == "oracle_died"
    # A new process runs the program as it is now.
    open_with(serving(make_run().model_dump_json()))
    assert profiler.evaluate(suite_case(), built()) is not None


def test_oracle_with_a_fault_of_its_own_is_replaced(open_with: Open) -> None:
    profiler = open_with(f'{HELLO}hear()\nsay(fault={{"kind": "oracle_died", "message": "KeyError"}})\nhear()\n')
    with pytest.raises(InfrastructureError, match="KeyError"):
        profiler.evaluate(suite_case(), built())
    open_with(serving(make_run().model_dump_json()))
    assert profiler.evaluate(suite_case(), built()) is not None


def test_oracle_that_hangs_is_ended(open_with: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "REQUEST_TIMEOUT_S", 0.3)
    monkeypatch.setattr(local, "END_TIMEOUT_S", 0.1)
    profiler = open_with(f"{HELLO}hear()\ntime.sleep(60)\n")
    profiler.health()
    process = profiler._process
    assert process is not None
    with pytest.raises(InfrastructureError, match="did not answer 'evaluate' within 0 s; it was ended") as caught:
        profiler.evaluate(suite_case(), built())
    assert caught.value.kind == "oracle_timeout"
    assert not is_alive(process.pid)


def test_an_answer_that_was_interrupted_is_nobody_elses(open_with: Open) -> None:
    """The next request must not be answered by what the last one had asked for."""
    slow, other = (make_run(message=text).model_dump(mode="json") for text in ("the first", "the second"))
    once = "said = open('once', 'x') if not os.path.exists('once') else None\n"
    answers = f"hear()\ntime.sleep(0.5 if said else 0)\nsay(result={slow!r} if said else {other!r})\nhear()\n"
    profiler = open_with(f"{HELLO}os.chdir(os.path.dirname(os.path.abspath(__file__)))\n{once}{answers}")
    profiler.health()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            profiler.evaluate(suite_case(), built())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    evidence = profiler.evaluate(suite_case(), built())
    assert evidence is not None
    assert evidence.run.message == "the second"


def test_start_that_failed_is_tried_again(open_with: Open) -> None:
    profiler = open_with('hear()\nsay(fault={"kind": "no_device", "message": "gone"})\n')
    for _ in range(2):
        with pytest.raises(InfrastructureError, match=r"^gone$"):
            profiler.health()


def test_close_ends_the_oracle_and_can_be_repeated(open_with: Open) -> None:
    profiler = open_with(serving(make_run().model_dump_json()))
    evidence = profiler.evaluate(suite_case(), built())
    assert evidence is not None
    profiler.close()
    profiler.close()
    assert not is_alive(oracle_pid(evidence))


def test_calls_of_several_threads_take_turns(open_with: Open) -> None:
    count = 8
    profiler = open_with(serving(*[make_run().model_dump_json()] * count))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: profiler.evaluate(suite_case(), built()), range(count)))
    assert all(evidence is not None for evidence in found)
    assert len({oracle_pid(evidence) for evidence in found if evidence}) == 1


def test_a_stop_gives_up_who_waits_for_the_device(open_with: Open) -> None:
    """48 conversations wait for one GPU: ending the session must not measure them all first."""
    program = f"{HELLO}hear()\ntime.sleep(1)\nsay(result={make_run().model_dump(mode='json')!r})\nhear()\n"
    stop = threading.Event()
    profiler = open_with(program, stop.is_set)
    found: list[str] = []

    def evaluate() -> None:
        try:
            assert profiler.evaluate(suite_case(), built()) is not None
            found.append("measured")
        except InfrastructureError as error:
            found.append(error.kind)

    threads = [threading.Thread(target=evaluate) for _ in range(4)]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join()
    assert found == ["measured", "stopped", "stopped", "stopped"]


def test_the_oracle_sees_the_device_that_it_is_for(open_with: Open) -> None:
    run = make_run().model_dump(mode="json")
    program = f'{HELLO}hear()\nsay(result={run!r}, states={{os.environ["CUDA_VISIBLE_DEVICES"]: 7}})\nhear()\n'
    profiler = open_with(program)
    profiler.visible = "GPU-a"
    assert (profiler.oracle_pid, profiler.states) == (None, {})
    assert profiler.start() == DEVICE
    pid = profiler.oracle_pid
    assert profiler.start() == DEVICE
    assert profiler.evaluate(suite_case(), built()) is not None
    assert (profiler.oracle_pid, profiler.states) == (pid, {"GPU-a": 7})
    profiler.close()
    assert profiler.states == {}, "they are gone with the oracle"


def test_qualifying_is_the_librarys_latency(open_with: Open) -> None:
    baseline = make_baseline()
    program = f'{HELLO}assert hear()["op"] == "qualify"\nsay(result={baseline.model_dump(mode="json")!r})\nhear()\n'
    assert open_with(program).qualify(suite_case()) == baseline


def test_whoever_waits_is_freed_by_an_interrupt(open_with: Open) -> None:
    profiler = open_with(f"{HELLO}hear()\ntime.sleep(60)\n")
    profiler.interrupt()
    pid = None
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(profiler.evaluate, suite_case(), built())
        while pid is None:
            pid = profiler.oracle_pid if profiler._device is not None else None
            time.sleep(0.01)
        profiler.interrupt()
        with pytest.raises(InfrastructureError, match="ended during 'evaluate'") as caught:
            asked.result(20)
    assert caught.value.kind == "oracle_died"
    assert not is_alive(pid)
    assert profiler.oracle_pid is None
