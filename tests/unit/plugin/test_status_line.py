"""The line below pytest's output, as a terminal shows it."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.plugin.progress import describe, duration
from ptxbench.plugin.status_line import StatusLine
from tests.unit.plugin.screen import Screen


class Terminal:
    """A status line that writes into a pipe, which a screen shows."""

    def __init__(self, columns: int = 80) -> None:
        self.reading, writing = os.pipe()
        self.file = os.fdopen(writing, "w", encoding="utf-8")
        self.screen = Screen(columns)
        self.text = ""
        self.line = StatusLine(self.file, lambda: self.text, lambda: columns)

    def draw(self, text: str) -> None:
        self.text = text
        self.line.draw()

    def show(self) -> list[str]:
        self.file.flush()
        os.set_blocking(self.reading, False)
        data = b""
        while True:
            try:
                piece = os.read(self.reading, 65536)
            except BlockingIOError:
                break
            if not piece:
                break
            data += piece
        self.screen.write(data.decode())
        return self.screen.text()

    def close(self) -> None:
        self.line.close()
        self.file.close()
        os.close(self.reading)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def test_it_stands_below_and_the_cursor_stays(terminal):
    terminal.line.file.write("tests/test_a.py ..")
    terminal.draw("1 of 3 turns")
    assert terminal.show() == ["tests/test_a.py ..", "1 of 3 turns"]
    terminal.line.file.write("F")
    assert terminal.show() == ["tests/test_a.py ..F"]
    terminal.draw("2 of 3 turns")
    terminal.draw("3 of 3 turns")
    assert terminal.show() == ["tests/test_a.py ..F", "3 of 3 turns"]
    terminal.line.file.write("   [100%]\n")
    assert terminal.show() == ["tests/test_a.py ..F   [100%]", ""]


def test_colours_do_not_move_the_cursor(terminal):
    terminal.line.file.write("\x1b[32m.\x1b[0m\x1b[31mF\x1b[0m")
    terminal.draw("status")
    terminal.line.file.write(".")
    assert terminal.show() == [".F."]


def test_long_lines_wrap_as_without_it():
    terminal = Terminal(columns=20)
    terminal.line.file.write("x" * 33)
    terminal.draw("a status that is longer than the line is wide")
    assert terminal.show() == ["x" * 20, "x" * 13, "a status that is lo"]
    terminal.line.file.write("yy")
    assert terminal.show() == ["x" * 20, "x" * 13 + "yy"]
    terminal.close()


def test_at_the_right_edge_it_waits():
    terminal = Terminal(columns=20)
    terminal.line.file.write("x" * 20)
    terminal.draw("status")
    assert terminal.show() == ["x" * 20]
    terminal.line.file.write("y")
    terminal.draw("status")
    assert terminal.show() == ["x" * 20, "y", "status"]
    terminal.close()


def test_it_is_gone_at_the_end(terminal):
    terminal.line.file.write("...\n")
    terminal.line.start()
    terminal.draw("status")
    terminal.line.close()
    assert terminal.show() == ["...", ""]
    terminal.line = StatusLine(terminal.file, lambda: "")


def test_an_empty_text_is_no_line(terminal):
    terminal.line.file.write("..")
    terminal.draw("status")
    terminal.draw("")
    assert terminal.show() == [".."]


def test_the_file_is_the_one_it_watches(terminal):
    assert terminal.line.file.encoding == "utf-8"
    assert terminal.line.file.fileno() == terminal.file.fileno()
    assert terminal.line.file.write("abc") == 3


@given(st.lists(st.tuples(st.text("ab.\n", max_size=30), st.sampled_from(["", "s", "status line", "long " * 10]))))
def test_what_pytest_prints_looks_as_without_it(pieces):
    alone, terminal = Screen(17), Terminal(17)
    for printed, status in pieces:
        alone.write(printed)
        terminal.line.file.write(printed)
        terminal.draw(status)
        shown = terminal.show()
        assert shown[: len(alone.text())] == alone.text()
    terminal.line.close()
    assert terminal.show() == alone.text()
    terminal.file.close()
    os.close(terminal.reading)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99.4, "99 s"), (99.6, "2 min"), (5900, "98 min"), (6000, "1 h 40 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_the_line_says_what_is_known():
    from ptxbench.agent.meter import Progress

    assert describe(Progress()) == ""
    assert describe(Progress(planned=8, resolved=1)) == "PTXBench: 1 of 8 turns, 0 correct"
    full = Progress(
        planned=96, resolved=24, worked=24, correct=7, calls=25, usd=3.456, tokens=1_250_000,
        elapsed_s=600.0, busy_s=90.0, measuring_s=100.0,
    )  # fmt: skip
    assert describe(full) == ("PTXBench: 24 of 96 turns, 7 correct, USD 3.46, 1.25M tokens, GPU busy 90%, 30 min left")
    assert describe(full).isascii()
