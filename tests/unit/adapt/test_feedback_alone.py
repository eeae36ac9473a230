"""The feedback of a record: what was said of this kernel stays, what was said of others goes."""

from __future__ import annotations

from ptxbench.adapt.feedback_alone import feedback_alone
from ptxbench.adapt.texts import filled
from ptxbench.agent.feedback import feedback
from ptxbench.models import PastTurn
from ptxbench.records import BuildStatus, Outcome
from ptxbench.verdict import judge
from tests.unit.factories import make_build, make_evidence, make_record, suite_case, unbuilt

CASE = suite_case()
SOURCE = "int x = 1\n"


def failed() -> PastTurn:
    build = unbuilt(BuildStatus.COMPILE_ERROR, log='kernel.cu(1): error: expected a ";"\n')
    record = make_record(case=CASE, build=build, evidence=None, verdict=judge(CASE, build, None))
    assert record.verdict.outcome is Outcome.COMPILE_ERROR
    return PastTurn(record, SOURCE)


def earlier() -> PastTurn:
    build, evidence = make_build(), make_evidence(CASE)
    verdict = judge(CASE, build, evidence).model_copy(update={"speedup": 0.75})
    return PastTurn(make_record(case=CASE, build=build, evidence=evidence, verdict=verdict), SOURCE)


def test_the_best_earlier_kernel_is_not_spoken_of():
    said = feedback(CASE, failed(), turns_left=3, toolchain=None, history=[earlier()])
    assert "Your best correct kernel" in said
    alone = feedback_alone(CASE, failed(), said, 3)
    assert "best correct" not in alone
    assert alone == feedback(CASE, failed(), turns_left=3, toolchain=None)


def test_what_was_really_said_of_the_kernel_stays():
    said = feedback(CASE, failed(), turns_left=3, toolchain=None).replace("Facts:", "Facts, with a source line:")
    alone = feedback_alone(CASE, failed(), said + "\nNotes from earlier repairs.", 3)
    assert "Facts, with a source line:" in alone
    assert "Notes from earlier repairs" not in alone
    assert "3 turns are left" in alone


def test_no_note_on_another_kernel_stays_whatever_is_in_it():
    said = feedback(CASE, failed(), turns_left=3, toolchain=None)
    told = f"{said}\n{filled('retrieval')}\nNote 1:\nThe other kernel lacks a wait.\n\nNext:\nI add one.\n"
    assert feedback_alone(CASE, failed(), told, 3) == said


def test_after_the_last_turn_one_is_left_for_the_repair():
    alone = feedback_alone(CASE, failed(), None, 0)
    assert "1 turn is left" in alone
    assert "No turn is left" not in alone


def test_words_of_another_form_are_written_anew():
    assert feedback_alone(CASE, failed(), "It failed.", 2) == feedback(CASE, failed(), turns_left=2, toolchain=None)
