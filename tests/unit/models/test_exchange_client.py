"""``exchange``: a folder, and somebody who answers."""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ptxbench.errors import InputError
from ptxbench.models import exchange_client
from ptxbench.models.client import CANCELLED, ModelClient, ModelError
from ptxbench.models.entry import Prices
from ptxbench.records import Message, Reply, Usage, prompt_sha256
from tests.unit.models.parts import SYSTEM, USER, client, entry, refusal, request

LABEL = "m-case-h100-v0-t0-turn0"
SHA256 = prompt_sha256((SYSTEM, USER))
OTHER = prompt_sha256((SYSTEM,))


@pytest.fixture(autouse=True)
def _quicker(monkeypatch) -> None:
    monkeypatch.setattr(exchange_client, "POLL_S", 0.1)
    monkeypatch.setattr(exchange_client, "SETTLED_S", 0.4)


def exchange(folder: Path, **fields: Any) -> ModelClient:
    return client(entry("exchange", **({"folder": str(folder), "timeout_s": 20.0} | fields)))


def put(folder: Path, name: str, content: str | bytes) -> None:
    path = folder / "replies" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def asked(folder: Path, answer: Callable[[], None], **fields: Any) -> Reply:
    """A call during which somebody answers."""
    replies: list[Reply] = []
    errors: list[ModelError] = []

    def call() -> None:
        try:
            replies.append(exchange(folder, **fields).complete(request()))
        except ModelError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    wait_for(folder / "requests" / f"{LABEL}.json")
    answer()
    thread.join(30)
    assert not errors
    return replies[0]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 10
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never appeared"
        time.sleep(0.02)


def test_a_request_holds_all_that_an_answer_needs(tmp_path):
    reply = asked(tmp_path, lambda: put(tmp_path, f"{LABEL}.json", json.dumps({"text": "t", "prompt_sha256": SHA256})))
    assert reply.text == "t"
    document = json.loads((tmp_path / "requests" / f"{LABEL}.json").read_text())
    assert document["messages"] == [
        {"role": "system", "content": SYSTEM.content},
        {"role": "user", "content": USER.content},
    ]
    assert (document["label"], document["prompt_sha256"]) == (LABEL, SHA256)
    assert document["settings"] == {"provider": "exchange"}
    text = (tmp_path / "requests" / f"{LABEL}.md").read_text()
    assert f"replies/{LABEL}.md or .txt" in text
    assert USER.content in text
    assert SHA256 in text


def test_a_reply_keeps_what_it_says_of_itself(tmp_path):
    content = {
        "text": "t",
        "reasoning": "r",
        "model": "m",
        "finish_reason": "length",
        "usage": {"input_tokens": 10, "output_tokens": 2},
        "prompt_sha256": SHA256,
    }
    put(tmp_path, f"{LABEL}.json", json.dumps(content))
    reply = exchange(tmp_path, prices=Prices(input=1e6, output=0)).complete(request())
    assert (reply.reasoning, reply.model, reply.ended, reply.cost_usd) == ("r", "m", "output_limit", 10)
    assert reply.usage == Usage(input_tokens=10, output_tokens=2)


@pytest.mark.parametrize("suffix", ["md", "txt"])
def test_plain_text_is_taken_as_it_is(tmp_path, suffix):
    text = "Ünïcode\r\n```cuda\r\nint a;\r\n```\n"
    reply = asked(tmp_path, lambda: put(tmp_path, f"{LABEL}.{suffix}", f"\ufeff{text}"))
    assert (reply.text, reply.ended, reply.model) == (text, "stop", "subject")


def test_plain_text_is_read_when_it_is_whole(tmp_path):
    path = tmp_path / "replies" / f"{LABEL}.md"

    def slowly() -> None:
        path.touch()
        time.sleep(0.6)
        with path.open("a") as file:
            for word in ("one ", "two ", "three"):
                file.write(word)
                file.flush()
                time.sleep(0.25)

    assert asked(tmp_path, slowly).text == "one two three"


def test_half_a_json_reply_is_waited_for(tmp_path):
    path = tmp_path / "replies" / f"{LABEL}.json"

    def slowly() -> None:
        path.write_text('{"text": "on')
        time.sleep(0.9)
        refused = path.with_name(f"{LABEL}.json.refused.txt")
        assert "expected a reply in JSON" in refused.read_text()
        path.write_text('{"text": "one"}')

    assert asked(tmp_path, slowly).text == "one"
    assert not path.with_name(f"{LABEL}.json.refused.txt").exists()


def test_a_reply_to_another_request_is_refused_and_said(tmp_path):
    put(tmp_path, f"{LABEL}.json", json.dumps({"text": "t", "prompt_sha256": OTHER}))
    error = refusal(exchange(tmp_path, timeout_s=1.5))
    assert error.kind == "timeout"
    expected = f"expected prompt_sha256 {SHA256}, found that of another request: {OTHER}"
    assert f"{LABEL}.json was refused: {expected}" in str(error)
    assert expected in (tmp_path / "replies" / f"{LABEL}.json.refused.txt").read_text()


@pytest.mark.parametrize(("name", "content"), [("md", "old"), ("txt", "old"), ("json", '{"text": "old"}')])
def test_a_reply_without_a_hash_that_was_there_before_is_refused(tmp_path, name, content):
    """It answers an earlier request under the same label."""
    put(tmp_path, f"{LABEL}.{name}", content)
    error = refusal(exchange(tmp_path, timeout_s=1.5))
    assert "found a file that was there before it was asked" in str(error)
    put(tmp_path, f"{LABEL}.{name}", content.replace("old", "new"))
    assert exchange(tmp_path).complete(request()).text == "new"


def test_a_wrong_reply_can_be_mended(tmp_path):
    path = tmp_path / "replies" / f"{LABEL}.md"

    def twice() -> None:
        put(tmp_path, path.name, b"\xff\xfe")
        wait_for(path.with_name(f"{path.name}.refused.txt"))
        put(tmp_path, path.name, "good")

    assert asked(tmp_path, twice).text == "good"


def test_a_later_session_finds_the_reply(tmp_path):
    error = refusal(exchange(tmp_path), request(cancelled=lambda: (tmp_path / "requests" / f"{LABEL}.json").exists()))
    assert error.kind == CANCELLED
    asked_at = (tmp_path / "requests" / f"{LABEL}.json").read_bytes()
    put(tmp_path, f"{LABEL}.md", "after days")
    started = time.monotonic()
    assert exchange(tmp_path).complete(request()).text == "after days"
    assert time.monotonic() - started < 20
    assert (tmp_path / "requests" / f"{LABEL}.json").read_bytes() == asked_at


def test_another_conversation_under_the_same_label_is_asked_anew(tmp_path):
    put(tmp_path, f"{LABEL}.json", json.dumps({"text": "one", "prompt_sha256": SHA256}))
    assert exchange(tmp_path).complete(request()).text == "one"
    longer = request(Message(role="assistant", content="a"), Message(role="user", content="b"))
    error = refusal(exchange(tmp_path, timeout_s=1.0), longer)
    assert f"found that of another request: {SHA256}" in str(error)
    document = json.loads((tmp_path / "requests" / f"{LABEL}.json").read_text())
    assert document["prompt_sha256"] == prompt_sha256(longer.messages)


def test_who_answers_may_say_that_the_context_is_full(tmp_path):
    content = {"text": "too long for me", "finish_reason": "context_exhausted", "prompt_sha256": SHA256}
    put(tmp_path, f"{LABEL}.json", json.dumps(content))
    error = refusal(exchange(tmp_path))
    assert (error.kind, "too long for me" in str(error)) == ("context_exhausted", True)


def test_closing_gives_up(tmp_path):
    found = exchange(tmp_path)
    threading.Timer(0.3, found.close).start()
    started = time.monotonic()
    assert refusal(found).kind == CANCELLED
    assert time.monotonic() - started < 20


def test_a_folder_that_cannot_be_one(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"expected a folder for the exchange, found a file"):
        exchange(tmp_path / "file")
    found = exchange(tmp_path / "box")
    (tmp_path / "box").write_text("")
    assert refusal(found).kind == "unavailable"


def a_huge_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate((64 << 20) + 1)


@pytest.mark.parametrize("suffix", ["json", "md"])
@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (os.mkfifo, "expected a regular file, found a pipe"),
        (Path.mkdir, "expected a regular file, found a folder"),
        (lambda path: path.symlink_to("/dev/zero"), "found a symbolic link"),
        (lambda path: path.symlink_to("/etc/passwd"), "found a symbolic link"),
        (lambda path: path.symlink_to(path), "found a symbolic link"),
        (a_huge_file, "expected at most 67108864 bytes, found 67108865"),
    ],
)
def test_what_is_no_file_is_refused_and_waited_on(tmp_path, make: Callable[[Path], object], problem, suffix):
    path = tmp_path / "replies" / f"{LABEL}.{suffix}"
    refused = path.with_name(f"{path.name}.refused.txt")

    def twice() -> None:
        make(path)
        wait_for(refused)
        assert problem in refused.read_text()
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        put(tmp_path, f"{LABEL}.md", "good")

    assert asked(tmp_path, twice).text == "good"


def test_a_refusal_that_cannot_be_written_is_in_the_error(tmp_path):
    os.makedirs(tmp_path / "replies" / f"{LABEL}.json.refused.txt" / "inner")
    put(tmp_path, f"{LABEL}.json", "{")
    error = refusal(exchange(tmp_path, timeout_s=1.5))
    assert (error.kind, "expected a reply in JSON" in str(error)) == ("timeout", True)


def test_replies_that_are_no_folder_are_waited_on(tmp_path):
    """Other conversations of the session must not end with this one."""
    tmp_path.joinpath("replies").write_text("")
    error = refusal(exchange(tmp_path, timeout_s=1.0))
    assert (error.kind, "replies was refused: expected a folder" in str(error)) == ("timeout", True)

    def mend() -> None:
        shutil.rmtree(tmp_path / "replies")
        (tmp_path / "replies").symlink_to("replies")
        time.sleep(0.5)
        (tmp_path / "replies").unlink()
        put(tmp_path, f"{LABEL}.md", "good")

    (tmp_path / "replies").unlink()
    (tmp_path / "requests" / f"{LABEL}.json").unlink()
    assert asked(tmp_path, mend).text == "good"


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to(path), lambda path: path.symlink_to("/dev/zero")]
)
def test_a_request_that_is_no_file_is_written_anew(tmp_path, make: Callable[[Path], object]):
    (tmp_path / "requests").mkdir()
    make(tmp_path / "requests" / f"{LABEL}.json")
    put(tmp_path, f"{LABEL}.json", json.dumps({"text": "t", "prompt_sha256": SHA256}))
    assert exchange(tmp_path).complete(request()).text == "t"
    assert (tmp_path / "requests" / f"{LABEL}.json").is_file()


def test_a_request_that_cannot_be_written_is_a_fault_of_its_turn(tmp_path):
    (tmp_path / "requests" / f"{LABEL}.json" / "inner").mkdir(parents=True)
    assert refusal(exchange(tmp_path)).kind == "server_error"


def test_counts_that_cannot_be_are_not_told(tmp_path):
    content = {"text": "t", "usage": {"input_tokens": -10, "output_tokens": 2}, "cost_usd": -1, "prompt_sha256": SHA256}
    put(tmp_path, f"{LABEL}.json", json.dumps(content))
    reply = exchange(tmp_path).complete(request())
    assert (reply.usage, reply.cost_usd) == (Usage(output_tokens=2), None)
