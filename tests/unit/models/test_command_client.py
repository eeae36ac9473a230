"""``command``: real programs in real folders."""

import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ptxbench.errors import InputError
from ptxbench.models.client import CANCELLED, ModelClient
from ptxbench.models.entry import ModelEntry, Prices
from ptxbench.records import Message, Usage
from tests.unit.models.parts import USER, client, entry, refusal, request

LABEL = "m-case-h100-v0-t0-turn0"
KERNEL = "// the first one\nint a;\n"
SECOND = (
    Message(role="assistant", content=f"Here.\n\n```cuda\n{KERNEL}```"),
    Message(role="user", content="It is slow."),
)


def agent(folder: Path, program: str, **fields: Any) -> ModelClient:
    path = folder / "agent"
    path.write_text(f"#!{sys.executable}\nimport os, sys, time, json, pathlib, subprocess\n{program}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return client(agent_entry(path, **fields), folder)


def agent_entry(path: Path | str, *arguments: str, **fields: Any) -> ModelEntry:
    return entry("command", command=(str(path), *arguments), **fields)


def test_an_agent_finds_the_conversation_and_hands_over_a_kernel(tmp_path):
    program = (
        "assert pathlib.Path('prompt.md').read_text().endswith('It is slow.\\n')\n"
        "last = json.load(open('conversation.json'))['messages'][-1]\n"
        "assert last == {'role': 'user', 'content': 'It is slow.'}\n"
        "kernel = pathlib.Path('kernel.cu')\n"
        "kernel.write_text(kernel.read_text() + 'int b;\\n')\n"
        "print('made it', 'faster', file=sys.stdout)\n"
        "print('a log', file=sys.stderr)"
    )
    found = agent(tmp_path, program)
    reply = found.complete(request(*SECOND))
    assert reply.source == KERNEL + "int b;\n"
    assert (reply.text, reply.ended, reply.finish_reason) == ("made it faster", "stop", "exit code 0")
    assert reply.model == "subject"
    assert reply.usage == Usage()
    assert (tmp_path / "agents" / LABEL / "conversation.json").is_file()
    settings: Any = found.settings()
    assert settings["command"] == ["agent"]


def test_there_is_no_kernel_before_the_first(tmp_path):
    found = agent(tmp_path, "print(sorted(os.listdir()))")
    reply = found.complete(request())
    assert reply.text == "['conversation.json', 'prompt.md']"
    assert reply.source is None


@pytest.mark.parametrize(
    ("program", "note"),
    [
        ("", ""),
        ("pathlib.Path('kernel.cu').write_text(pathlib.Path('kernel.cu').read_text())", ""),
        ("os.remove('kernel.cu')", ""),
        ("open('kernel.cu', 'w').close()", ""),
        ("open('kernel.cu', 'wb').write(b'\\xff')", "not UTF-8"),
        ("os.remove('kernel.cu'); os.mkfifo('kernel.cu')", "expected a regular file, found a pipe"),
        ("os.remove('kernel.cu'); os.symlink('/dev/zero', 'kernel.cu')", "found a symbolic link"),
        ("open('kernel.cu', 'w').truncate(5 << 20)", "expected at most 4194304 bytes"),
    ],
)
def test_an_agent_that_wrote_no_new_kernel_gives_an_answer_without(tmp_path, program, note):
    reply = agent(tmp_path, program).complete(request(*SECOND))
    assert (reply.source, reply.ended) == (None, "stop")
    assert note in reply.text


def test_a_failed_agent_is_a_fault_with_its_last_words(tmp_path):
    error = refusal(agent(tmp_path, "print('x' * 5000); sys.exit('no connection to the model')"))
    assert error.kind == "server_error"
    assert "exit code 1, no kernel.cu; its last words: no connection to the model" in str(error)
    error = refusal(agent(tmp_path, "print('only stdout'); sys.exit(3)"))
    assert "exit code 3, no kernel.cu; its last words: only stdout" in str(error)


def test_a_kernel_counts_however_the_agent_ended(tmp_path):
    reply = agent(tmp_path, "open('kernel.cu', 'w').write('int a;'); sys.exit(2)").complete(request())
    assert (reply.source, reply.ended, reply.finish_reason) == ("int a;", "unknown", "exit code 2")


def test_at_the_time_limit_what_was_written_counts(tmp_path):
    program = "open('kernel.cu', 'w').write('int a;')\nprint('working', flush=True)\ntime.sleep(60)"
    started = time.monotonic()
    reply = agent(tmp_path, program, timeout_s=1.5).complete(request())
    assert (reply.source, reply.ended, reply.finish_reason) == ("int a;", "output_limit", "time limit")
    assert time.monotonic() - started < 10
    error = refusal(agent(tmp_path, "time.sleep(60)", timeout_s=0.5))
    assert (error.kind, "no kernel.cu within 0.5 s" in str(error)) == ("timeout", True)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def all_end(pids: Path) -> bool:
    """Whether all processes of the file are gone soon: a killed one takes a moment."""
    deadline = time.monotonic() + 5
    while any(is_running(int(pid)) for pid in pids.read_text().split()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "pathlib.Path('pids').write_text(f'{os.getpid()} {child.pid}')\n"
)


@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_giving_up_ends_the_whole_group(tmp_path, how):
    found = agent(tmp_path, STUBBORN + "time.sleep(60)")
    pids = tmp_path / "agents" / LABEL / "pids"

    def given_up() -> bool:
        if pids.is_file() and pids.read_text() and how == "closed":
            found.close()
        return how == "cancelled" and pids.is_file() and bool(pids.read_text())

    assert refusal(found, request(cancelled=given_up)).kind == CANCELLED
    assert all_end(pids)


def test_what_an_agent_leaves_behind_is_ended_too(tmp_path):
    found = agent(tmp_path, STUBBORN + "open('kernel.cu', 'w').write('int a;')")
    started = time.monotonic()
    assert found.complete(request()).source == "int a;"
    assert time.monotonic() - started < 20
    assert all_end(tmp_path / "agents" / LABEL / "pids")


def test_an_attempt_starts_in_a_fresh_folder(tmp_path):
    found = agent(tmp_path, "print(sorted(os.listdir())); open('left', 'w'); open('kernel.cu', 'w').write('int a;')")
    found.complete(request())
    assert found.complete(request()).text == "['conversation.json', 'prompt.md']"


def test_an_agent_may_state_its_usage(tmp_path):
    stated = {"text": "", "model": "inner-1", "usage": {"input_tokens": 10, "output_tokens": 5}, "cost_usd": 0.25}
    program = f"pathlib.Path('reply.json').write_text({json.dumps(stated)!r}); print('said')"
    reply = agent(tmp_path, program).complete(request())
    assert (reply.text, reply.model, reply.cost_usd, reply.cost_source) == ("said", "inner-1", 0.25, "provider")
    assert reply.usage == Usage(input_tokens=10, output_tokens=5)
    priced = agent(tmp_path, program, prices=Prices(input=1e6, output=0)).complete(request())
    assert (priced.cost_usd, priced.cost_source) == (10, "models_file")
    error = refusal(agent(tmp_path, "open('reply.json', 'w').write('{'); print('x')"))
    assert error.kind == "malformed_response"


def test_the_environment_goes_to_the_agent_and_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_API_KEY", "s3cretvalue99")
    found = agent(
        tmp_path, "print('with', os.environ['AGENT_API_KEY']); sys.exit('bad ' + os.environ['AGENT_API_KEY'])"
    )
    assert "s3cretvalue99" not in f"{refusal(found)} {found!r} {found.settings()}"
    found = agent(tmp_path, "print('with', os.environ['AGENT_API_KEY'])")
    assert found.complete(request()).text == "with [hidden]"
    stored = [path.read_text() for path in (tmp_path / "agents").rglob("*") if path.is_file()]
    assert stored
    assert not any("s3cretvalue99" in text for text in stored)


def test_a_key_at_the_cut_is_hidden_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_API_KEY", "s3cretvalue99")
    for length in range(19_985, 20_001):
        reply = agent(tmp_path, f"print('ü' * 9 + os.environ['AGENT_API_KEY'] + 'x' * {length})").complete(request())
        assert not any("s3cretvalue99"[-size:] in reply.text for size in range(4, 13))


def test_only_the_end_of_much_output_is_kept(tmp_path):
    reply = agent(tmp_path, "print('ü' * 100_000 + 'end')").complete(request())
    assert len(reply.text) <= 20_000
    assert reply.text.endswith("üend")


def test_a_missing_program_is_said_before_any_call(tmp_path):
    with pytest.raises(InputError, match=r"expected a program called 'no-such-agent'; found none"):
        client(agent_entry("no-such-agent"), tmp_path)
    (tmp_path / "data").write_text("not a program")
    with pytest.raises(InputError, match=r"found none that can be run"):
        client(agent_entry(tmp_path / "data"), tmp_path)


def test_a_program_that_goes_away_is_a_lasting_fault(tmp_path):
    found = agent(tmp_path, "")
    os.remove(tmp_path / "agent")
    error = refusal(found)
    assert (error.kind, "cannot be run" in str(error)) == ("unavailable", True)
    assert USER.content not in str(error)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        ("os.mkfifo('reply.json')", "a pipe"),
        ("os.symlink('/dev/zero', 'reply.json')", "a symbolic link"),
        ("os.symlink('/etc/passwd', 'reply.json')", "a symbolic link"),
        ("os.mkdir('reply.json')", "a folder"),
        ("open('reply.json', 'w').truncate(65 << 20)", "found 68157440"),
    ],
)
def test_a_reply_that_is_no_file_is_neither_read_nor_waited_for(tmp_path, make, found):
    started = time.monotonic()
    error = refusal(agent(tmp_path, make, timeout_s=20))
    assert time.monotonic() - started < 10
    assert error.kind == "malformed_response"
    assert "reply.json of the agent: expected " in str(error)
    assert found in str(error)


def test_an_agent_cannot_earn_tokens_or_money(tmp_path):
    stated = {"text": "", "usage": {"input_tokens": -1_000_000, "output_tokens": 10**400}, "cost_usd": -3.0}
    program = f"pathlib.Path('reply.json').write_text({json.dumps(stated)!r})"
    reply = agent(tmp_path, program, prices=Prices(input=2, output=10)).complete(request())
    assert (reply.usage, reply.cost_usd, reply.cost_source) == (Usage(), None, "unknown")


@pytest.mark.parametrize(
    "replacement", ["open(here, 'w').write('x')", "os.symlink(other, here)", "os.symlink(here, here)"]
)
def test_an_agent_that_replaces_its_folder_spoils_its_own_turn_only(tmp_path, replacement):
    other = tmp_path / "other"
    other.mkdir()
    (other / "kernel.cu").write_text("not the agent's")
    program = (
        f"import shutil; here, other = os.getcwd(), {str(other)!r}\n"
        f"if here.endswith({LABEL!r}): os.chdir('/'); shutil.rmtree(here); {replacement}"
    )
    found = agent(tmp_path, program)
    for _ in range(2):
        error = refusal(found)
        assert (error.kind, "replaced its working folder" in str(error)) == ("server_error", True)
    assert found.complete(request(label="another")).ended == "stop"
    assert (other / "kernel.cu").read_text() == "not the agent's"


def test_an_agent_that_removes_its_folder_has_no_kernel(tmp_path):
    found = agent(tmp_path, "import shutil; shutil.rmtree(os.getcwd()); print('gone')")
    for _ in range(2):
        reply = found.complete(request())
        assert (reply.source, reply.text) == (None, "gone")


def test_a_write_protected_cache_is_no_reason_to_fail(tmp_path):
    program = (
        "os.makedirs('cache/inner'); open('cache/inner/f', 'w').close(); os.symlink('/', 'cache/link')\n"
        "os.chmod('cache/inner', 0o500); os.chmod('cache', 0o500); os.chmod('.', 0o500)"
    )
    found = agent(tmp_path, program)
    for _ in range(2):
        assert found.complete(request()).ended == "stop"


def test_a_kernel_that_holds_a_credential_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_API_KEY", "s3cretvalue99")
    error = refusal(agent(tmp_path, "open('kernel.cu', 'w').write('// ' + os.environ['AGENT_API_KEY'])"))
    assert error.kind == "malformed_response"
    assert "kernel.cu holds the value of an environment variable that is named like a credential" in str(error)
    assert "s3cretvalue99" not in str(error)


def test_an_endless_output_is_not_kept_on_disk(tmp_path):
    program = "print('x' * 99, flush=True)\nwhile True: print('prints for ever')"
    error = refusal(agent(tmp_path, program, timeout_s=1.5))
    assert error.kind == "timeout"
    assert "prints for ever" in str(error)
    assert len(str(error)) < 800
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 10_000
