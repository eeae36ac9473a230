import threading
from pathlib import Path

from ptxbench.adapt.dossier import Dossiers
from ptxbench.adapt.rationale import Left, Refused, Subject, Writer, Written
from ptxbench.adapt.rationale_rules import Window
from ptxbench.adapt.teacher import Teacher
from ptxbench.agent.budget import Budget
from ptxbench.agent.meter import Meter
from ptxbench.records import Message
from tests.unit.agent.talking import ENTRY, Client, reply

TEXT = "I see that the feedback names the last row, so I look at my bound and make it one larger, and I leave the rest."
SUBJECT = Subject("s", (Message(role="user", content="task"),), "// failed", "wrong", "// repaired")
GOOD, BAD = reply(f"<rationale>{TEXT}</rationale>"), reply("no block")


def writer(folder: Path, client: Client, stop: threading.Event | None = None, window: Window | None = None) -> Writer:
    teacher = Teacher(ENTRY, client, Budget(), Meter(), stop or threading.Event())
    return Writer(teacher, Dossiers(folder), window or Window(10, 200), attempts=3)


def test_the_conversation_goes_on_from_the_first_message_that_would_be_another_one(tmp_path: Path):
    client = Client([BAD, GOOD])
    written = writer(tmp_path, client).write(SUBJECT)
    assert isinstance(written, Written)
    assert (written.text, written.attempts) == (TEXT, 2)
    assert len(set(written.prompts)) == 2

    other = Client([GOOD])
    again = writer(tmp_path, other, window=Window(10, 199)).write(SUBJECT)
    assert isinstance(again, Written)
    assert again.attempts == 1
    dossier = Dossiers(tmp_path).load("s")
    assert (len(dossier.asked), len(dossier.unused)) == (1, 2)
    assert len(list(Dossiers(tmp_path).spent(None))) == 3


def test_an_answer_is_on_disk_before_it_is_read(tmp_path: Path):
    assert isinstance(writer(tmp_path, Client([BAD, BAD, BAD])).write(SUBJECT), Refused)
    assert len(Dossiers(tmp_path).load("s").asked) == 3
    # Read again, by today's rules, without a call.
    found = writer(tmp_path, Client([])).write(SUBJECT)
    assert isinstance(found, Refused)
    assert found.reason == "form"


def test_a_stopped_session_asks_nothing(tmp_path: Path):
    stop = threading.Event()
    stop.set()
    client = Client([GOOD])
    assert writer(tmp_path, client, stop).write(SUBJECT) == Left("stopped")
    assert client.requests == []
