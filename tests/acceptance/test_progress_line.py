"""The progress line, on a pseudo-terminal and away from one."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from tests.acceptance.conversations import Conversations, Entry, answer, by_turn
from tests.support.llm_server import LlmServer
from tests.unit.plugin.screen import Screen

LINE = re.compile(r"PTXBench: \d+ of 4 turns, 0 correct")
SLOW = [answer("", delay_s=0.8), answer("", delay_s=0.8)]


@pytest.fixture
def talk(checkout: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Conversations:
    return Conversations(checkout, monkeypatch)


def on_a_terminal(talk: Conversations, arguments: list[str]) -> str:
    """Everything that a session writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    environ = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "CI")} | {"TERM": "xterm"}
    command = [sys.executable, "-m", "pytest", *arguments]
    process = subprocess.Popen(command, cwd=talk.path, env=environ, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    data = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        data += piece
    process.wait(60)
    os.close(ours)
    return data.decode()


@pytest.mark.parametrize("more", [(), ("-n", "2", "-v")])
def test_a_terminal_shows_progress_and_in_the_end_only_what_pytest_says(
    talk: Conversations, more: tuple[str, ...]
) -> None:
    with LlmServer(by_turn(SLOW)) as server:
        arguments = talk.arguments(Entry(server), turns=2)
        written = on_a_terminal(talk, [*arguments, "--trajectories=2", "--concurrency=1", *more])
    assert LINE.search(written)
    assert re.search(r"USD 0\.0\d, \d\.\dk tokens", written)
    screen = Screen(80, rows=10_000)
    screen.write(re.sub(r"\x1b\[(?:0|\d+;\d+|[0-9;]*)m", "", written))
    shown = "\n".join(screen.text())
    assert not LINE.search(shown)
    for whole in ("test session starts", "4 failed", "Total: 4 turns, 0 correct", "Run: generated/talk"):
        assert whole in shown
    if "-v" not in more:
        (dots,) = [line for line in screen.text() if line.startswith("ptx_tests/test_turns.py ")]
        assert re.fullmatch(r"ptx_tests/test_turns\.py FFFF +\[100%\]", dots)


def test_elsewhere_there_is_none(talk: Conversations) -> None:
    with LlmServer(by_turn(SLOW)) as server:
        result = talk.run(Entry(server), turns=1)
        assert "PTXBench: " not in result.stdout.str()
        assert "\x1b" not in result.stdout.str()
        written = on_a_terminal(talk, [*talk.arguments(Entry(server), turns=1, run="loud"), "-s"])
    assert "1 failed" in written
    assert "PTXBench: " not in written
