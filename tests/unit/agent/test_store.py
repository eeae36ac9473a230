"""The run folder: what it keeps, what it refuses, and what damage cannot do to it."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ptxbench.agent import RunStore, suite_identity
from ptxbench.agent.turn_files import DamagedTurn
from ptxbench.errors import InfrastructureError, InputError
from ptxbench.records import (
    Candidate,
    Exchange,
    InfrastructureFault,
    PendingReply,
    PromptIdentity,
    Reply,
    TrajectoryEnd,
    TurnRecord,
)
from ptxbench.verdict import judge_infrastructure
from tests.unit.factories import ROOT, make_record, suite_case

SUITES = {"primary": "a" * 64}
CANDIDATE = Candidate(source="// ünï\r\nint x;\n")


@pytest.fixture
def store(tmp_path) -> RunStore:
    return RunStore.open(tmp_path / "run", SUITES)


def record(turn: int = 0, trajectory: int = 0, candidate: Candidate = CANDIDATE) -> TurnRecord:
    return make_record(turn, trajectory=trajectory, source_sha256=candidate.sha256)


def faulty(turn: int = 0) -> TurnRecord:
    fault = InfrastructureFault(kind="oracle_died", message="gone")
    return make_record(turn, build=None, evidence=None, fault=fault, verdict=judge_infrastructure(fault))


def test_a_turn_comes_back_as_it_was(store):
    store.save(record(3), CANDIDATE)
    path = store.turn_path(record(3).key)
    assert path.relative_to(store.folder) == Path("turns", "reference-gemm_n7168_k5120-h100-v0-t0", "turn3.json")
    assert path.with_suffix(".cu").read_bytes() == CANDIDATE.source.encode()
    stored = RunStore.read(store.folder).load(record(3).key)
    assert stored == (record(3), CANDIDATE)
    assert store.load(record(4).key) is None
    assert not list(store.folder.rglob("*.tmp"))


def test_turns_are_listed_by_trajectory_and_number(store):
    for turn in (10, 2, 0):
        store.save(record(turn), CANDIDATE)
    store.save(record(0, trajectory=1), CANDIDATE)
    assert [(key.trajectory, key.turn) for key in store.turn_keys()] == [(0, 0), (0, 2), (0, 10), (1, 0)]


def test_lone_surrogates_survive(store):
    candidate = Candidate(source="// \ud800 from a model\n")
    store.save(record(candidate=candidate), candidate)
    assert store.candidate(record().key) == candidate


@pytest.mark.parametrize("damage", ["half", "empty", "garbage", "other source", "no source", "other turn", "build"])
def test_a_damaged_turn_is_moved_aside_and_counts_as_not_stored(store, damage):
    store.save(record(), CANDIDATE)
    path = store.turn_path(record().key)
    text = path.read_text()
    match damage:
        case "half":
            path.write_text(text[: len(text) // 2])
        case "empty":
            path.write_text("")
        case "garbage":
            path.write_bytes(b"\xff\x00{")
        case "other source":
            path.with_suffix(".cu").write_text("int y;")
        case "no source":
            path.with_suffix(".cu").unlink()
        case "other turn":
            path.write_text(text.replace('"turn": 0', '"turn": 5'))
        case "build":
            data = json.loads(text)
            data["build"]["candidate_sha256"] = data["evidence"]["candidate_sha256"] = "f" * 64
            path.write_text(json.dumps(data))
    assert list(store.turns()) == []
    assert store.load(record().key) is None
    assert not path.exists()
    aside = sorted(entry.name for entry in (store.folder / "aside").iterdir())
    assert len(aside) == (1 if damage == "no source" else 2)
    (note,) = store.take_notes()
    assert str(path) in note
    assert "done again" in note
    assert store.take_notes() == []
    store.save(record(), CANDIDATE)
    assert store.load(record().key) is not None


def test_a_fault_is_kept_apart_until_the_turn_finishes(store):
    store.save_fault(faulty())
    assert store.load(faulty().key) is None
    assert list(store.turns()) == []
    assert store.load_fault(faulty().key) == faulty()
    store.save(record(), CANDIDATE)
    assert store.load_fault(faulty().key) is None


def test_a_fault_that_cannot_be_removed_or_read_does_not_lose_the_turn(store):
    path = store.fault_path(record().key)
    (path / "in the way").mkdir(parents=True)
    assert store.load_fault(faulty().key) is None
    store.save(record(), CANDIDATE)
    assert store.load(record().key) == (record(), CANDIDATE)


def test_entries_name_what_is_damaged(store):
    store.save(record(0), CANDIDATE)
    store.save(record(1), CANDIDATE)
    path = store.turn_path(record(0).key)
    path.write_text("{")
    damaged, whole = store.entries()
    assert whole == (record(1), CANDIDATE)
    assert isinstance(damaged, DamagedTurn)
    assert damaged.path == path
    assert damaged.reason.startswith("not a whole record")


@pytest.mark.parametrize("name", ["turns", "replies", "faults", "aside", "locks", "agents"])
def test_a_file_where_the_run_needs_a_folder_is_named(store, name):
    (store.folder / name).write_text("")
    with pytest.raises(InputError, match=rf"run/{name}: expected a folder, found a file; move it away"):
        RunStore.open(store.folder, SUITES)
    with pytest.raises(InputError, match=rf"run/{name}: expected a folder, found a file"):
        RunStore.read(store.folder)


def test_resuming_keeps_the_first_identity_and_adds_suites(store):
    again = RunStore.open(store.folder, {"primary": "a" * 64, "general": "b" * 64})
    assert again.identity.created_at == store.identity.created_at
    assert RunStore.read(store.folder).identity.suites == {"primary": "a" * 64, "general": "b" * 64}


def test_resuming_with_another_suite_content_is_refused(store):
    with pytest.raises(InputError, match=r"expected the suite 'primary' as it was .*\(a{12}\), found .*\(b{12}\)"):
        RunStore.open(store.folder, {"primary": "b" * 64})
    assert RunStore.read(store.folder).identity.suites == SUITES


def test_the_identity_of_a_suite_is_its_content():
    cases = [suite_case(), suite_case("mha_bwd_d128")]
    looser = cases[0].model_copy(update={"tolerance": cases[0].tolerance.model_copy(update={"atol": 0.02})})
    assert suite_identity(cases) == suite_identity(reversed(cases))
    assert suite_identity([looser, cases[1]]) != suite_identity(cases)
    assert suite_identity(cases[:1]) != suite_identity(cases)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"expected a run folder or an empty one, found 'notes\.txt' but no run\.json"):
        RunStore.open(tmp_path, SUITES)
    with pytest.raises(InputError, match=r"expected a run folder, found no run\.json"):
        RunStore.read(tmp_path / "absent")


@pytest.mark.parametrize("text", ["", "{", '{"schema_version": 2}', '{"schema_version": 1, "surprise": 1}'])
def test_a_broken_identity_is_refused_and_left_alone(store, text):
    (store.folder / "run.json").write_text(text)
    with pytest.raises(InputError, match=r"run\.json: expected the identity of a run, found .* restore the file"):
        RunStore.open(store.folder, SUITES)
    assert (store.folder / "run.json").read_text() == text


def test_an_unwritable_folder_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"--run .*file/run: expected a folder that can be written, found: .*choose"):
        RunStore.open(tmp_path / "file" / "run", SUITES)


def test_a_full_disk_is_a_clear_fault_and_loses_nothing(store, monkeypatch):
    store.save(record(0), CANDIDATE)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        InfrastructureError, match=r"the disk is full\. What was stored before is intact; free"
    ) as fault:
        store.save(record(1), CANDIDATE)
    assert fault.value.kind == "disk_full"
    with pytest.raises(InfrastructureError):
        store.save(record(0), Candidate(source="other"))
    monkeypatch.undo()
    assert store.load(record(0).key) == (record(0), CANDIDATE)
    assert store.load(record(1).key) is None
    assert not list(store.folder.rglob("*.tmp"))


WRITER = """
import sys
from pathlib import Path
from ptxbench.agent import RunStore
from tests.unit.agent.test_store import CANDIDATE, SUITES, record
store = RunStore.open(Path(sys.argv[1]), SUITES)
print("ready", flush=True)
turn = 0
while True:
    store.save(record(turn), CANDIDATE)
    turn += 1
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "plugins"), str(ROOT)])}
    return subprocess.Popen([sys.executable, "-c", *arguments], stdout=subprocess.PIPE, text=True, env=environ)


def test_a_killed_writer_leaves_only_whole_turns(tmp_path):
    folder = tmp_path / "run"
    writer = start(WRITER, str(folder))
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    turns = folder / "turns" / record().key.trajectory_id
    deadline = time.monotonic() + 30
    while len(list(turns.glob("*.json"))) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    writer.send_signal(signal.SIGKILL)
    writer.wait(10)
    writer.stdout.close()
    store = RunStore.open(folder, SUITES)
    written = sorted(turns.glob("turn*.json"))
    assert len(written) >= 5
    assert [path for path in written if store.load(record(int(path.stem[4:])).key) is None] == []
    assert store.take_notes() == []


HOLDER = """
import sys, time
from pathlib import Path
from ptxbench.agent import RunStore
store = RunStore.read(Path(sys.argv[1]))
with store.trajectory("t", lambda: False):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_waits_for_a_trajectory_and_a_killed_holder_frees_it(store):
    holder = start(HOLDER, str(store.folder))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    with store.trajectory("t", stop.is_set) as held:
        assert not held
    with store.trajectory("another", lambda: False) as held:
        assert held
    holder.kill()
    holder.wait(10)
    holder.stdout.close()
    with store.trajectory("t", lambda: False) as held:
        assert held


def test_records_are_plain_json(store):
    store.save(record(), CANDIDATE)
    data = json.loads(store.turn_path(record().key).read_text())
    assert data["key"]["case"] == "gemm_n7168_k5120"
    assert data["source_sha256"] == CANDIDATE.sha256


def end(turn: int, reason: str = "context_exhausted") -> TrajectoryEnd:
    return TrajectoryEnd(key=record(turn).key, reason=reason, message="full")  # type: ignore[arg-type]


def pending(turn: int = 0, text: str = "an answer") -> PendingReply:
    identity = PromptIdentity(template="1", pack="p 1", pack_sha256="a" * 64, level="full")
    answer = Reply(text=text, ended="stop", finish_reason="stop", latency_s=1.0, model="m")
    exchange = Exchange(added=(), prompt_sha256="b" * 64, prompt=identity, asked_at="2026-11-29", reply=answer)
    return PendingReply(key=record(turn).key, exchange=exchange)


def test_the_end_of_a_trajectory_lies_beside_its_turns(store):
    assert store.load_end(record().key) is None
    store.save(record(0), CANDIDATE)
    store.save_end(end(1))
    path = store.folder / "turns" / record().key.trajectory_id / "end.json"
    written = path.stat().st_mtime_ns
    store.save_end(end(1))
    assert path.stat().st_mtime_ns == written
    assert store.load_end(record(7).key) == end(1)
    assert list(RunStore.read(store.folder).ends()) == [end(1)]
    assert [key.turn for key in store.turn_keys()] == [0]


def test_an_end_that_is_overtaken_disappears(store):
    store.save_end(end(2, "budget"))
    store.save(record(1), CANDIDATE)
    assert store.load_end(record().key) == end(2, "budget")
    store.save(record(2), CANDIDATE)
    assert store.load_end(record().key) is None


def test_a_damaged_or_foreign_end_is_none(store):
    store.save_end(end(2))
    path = store.end_path(record().key)
    path.write_text(path.read_text().replace('"trajectory": 0', '"trajectory": 4'))
    assert store.load_end(record().key) is None
    path.write_text("{")
    assert list(store.ends()) == []


def test_a_reply_is_kept_until_its_turn_is_stored(store):
    store.save_reply(pending(1))
    assert store.load_reply(record(1).key) == pending(1)
    assert store.load_reply(record(0).key) is None
    store.save(record(0), CANDIDATE)
    assert list(store.pending_replies()) == [pending(1)]
    store.save(record(1), CANDIDATE)
    assert list(store.pending_replies()) == []


def test_a_reply_that_is_no_longer_wanted_is_kept_as_unused(store):
    store.save_reply(pending(0, "first"))
    store.save_reply(pending(0, "second"))
    assert store.load_reply(record().key) == pending(0, "second")
    assert {entry.exchange.reply.text for entry in store.pending_replies()} == {"first", "second"}
    store.save(record(), CANDIDATE)
    assert [entry.exchange.reply.text for entry in store.pending_replies()] == ["first"]


def test_what_a_kill_while_storing_leaves_behind_is_not_taken_for_unfinished(store):
    """The turn is written first; the process dies before it removes what was only of the unfinished turn."""
    store.save_fault(faulty())
    store.save_reply(pending())
    left = {path: path.read_bytes() for path in (store.fault_path(record().key), store.reply_path(record().key))}
    store.save(record(), CANDIDATE)
    store.save_end(end(0, "budget"))
    for path, content in left.items():
        path.write_bytes(content)
    # Whoever counts what was spent does so before any turn is loaded.
    assert list(store.pending_replies()) == []
    assert list(store.faults()) == []
    assert store.load(record().key) == (record(), CANDIDATE)
    assert not [path for path in left if path.exists()]
    assert list(store.ends()) == []


def test_of_a_fault_and_an_end_of_its_turn_the_later_one_holds(store):
    for turn in (1, 2, 3):
        store.save_fault(faulty(turn))
    store.save_end(end(2))
    assert [fault.key.turn for fault in store.faults()] == [1]
    assert list(store.ends()) == [end(2)]
    store.save_fault(faulty(1))
    assert list(store.ends()) == [end(2)]
    store.save_fault(faulty(2))
    assert list(store.ends()) == []


@pytest.mark.parametrize("damage", ["", "{", "another turn"])
def test_a_damaged_reply_is_none(store, damage):
    store.save_reply(pending(0))
    path = store.reply_path(record().key)
    path.write_text(path.read_text().replace('"turn": 0', '"turn": 3') if damage == "another turn" else damage)
    assert store.load_reply(record().key) is None


def test_a_run_remembers_how_many_turns_its_models_were_given(store):
    assert store.turns_given("claude") is None
    RunStore.open(store.folder, SUITES, {"claude": 8})
    RunStore.open(store.folder, SUITES, {"claude": 4, "gpt": 2})
    again = RunStore.read(store.folder)
    assert (again.turns_given("claude"), again.turns_given("gpt")) == (8, 2)


def test_a_run_of_an_earlier_version_is_read(store):
    path = store.folder / "run.json"
    document = json.loads(path.read_text())
    del document["turns"]
    path.write_text(json.dumps(document))
    assert RunStore.read(store.folder).turns_given("claude") is None
    assert RunStore.open(store.folder, SUITES, {"claude": 8}).turns_given("claude") == 8
