from typing import Any

import pytest

from ptxbench.adapt.rationale_rules import Window, read_rationale
from tests.unit.agent.talking import reply

WINDOW = Window(20, 120)
TEXT = (
    "The feedback reports a wrong first call, so I look at what the epilogue reads. My accumulators are read before "
    "the last group is done. I add a wait in front of the store and leave the rest as it is."
)


def faults(text: str, window: Window = WINDOW, **changes: Any) -> list[str]:
    reading = read_rationale(reply(text, **changes), window, kernel="int wait_here_for_everything(0);", known=("k-",))
    return [fault.kind for fault in reading.faults]


def test_a_good_reply_is_its_block():
    reading = read_rationale(
        reply(f"Sure.\n<rationale>\n{TEXT}\n</rationale>\nDone."), WINDOW, kernel="int x;", known=()
    )
    assert reading == (TEXT, ())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (TEXT, "form"),
        ("", "form"),
        ("<rationale></rationale>", "form"),
        (f"<rationale>{TEXT}", "form"),
        (f"<rationale>{TEXT}</rationale><rationale>{TEXT}</rationale>", "form"),
        (f"<rationale><rationale>{TEXT}</rationale></rationale>", "form"),
        (f"<rationale>{TEXT}\n```cuda\nint x;\n```\n</rationale>", "form"),
        (f"<rationale>{TEXT} So: ```int x;```</rationale>", "form"),
        (f"<rationale>{TEXT} <code>int x;</code></rationale>", "form"),
        (f"<rationale>{TEXT} <|im_end|></rationale>", "form"),
        (f"<rationale>{TEXT} <\uff5cend\u2581of\u2581sentence\uff5c></rationale>", "form"),
        (f"<rationale>{TEXT} <end_of_turn></rationale>", "form"),
        (f"<rationale>{TEXT} </s></rationale>", "form"),
        (f"<rationale># Cause\n{TEXT}</rationale>", "form"),
        (f"<rationale>{TEXT.replace('I ', 'one ').replace('My', 'The')}</rationale>", "person"),
        (f"<rationale>{TEXT} You should wait.</rationale>", "person"),
        ("<rationale>I wait.</rationale>", "short"),
        (f"<rationale>{TEXT * 5}</rationale>", "long"),
        (f"<rationale>{TEXT} int wait_here_for_everything(0);</rationale>", "leak"),
    ],
)
def test_ill_formed_replies_say_why(text: str, kind: str):
    assert faults(text) == [kind]


def test_reasoning_that_a_server_leaves_in_the_answer_is_not_read():
    thoughts = "<think>\nI put it between <rationale> and </rationale>, as asked.\n</think>\n"
    assert faults(f"{thoughts}<rationale>{TEXT}</rationale>") == []
    assert faults(f"{thoughts}{TEXT}") == ["form"]
    # In the rationale it would end the student's own reasoning.
    assert faults(f"<rationale>{TEXT} </think> {TEXT}</rationale>") == ["form"]


def test_an_answer_that_was_cut_off_is_none():
    assert faults(f"<rationale>{TEXT}</rationale>", ended="output_limit") == ["form"]


def test_a_record_leaves_room_for_less():
    assert Window(20, 120).within(50) == Window(20, 50)
    assert faults(f"<rationale>{TEXT}</rationale>", Window(20, 120).within(25)) == ["long"]
