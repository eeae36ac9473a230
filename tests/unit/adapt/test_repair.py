from pathlib import Path

import pytest

from ptxbench.adapt.repair import LEDGER, Ledger, Task
from ptxbench.agent.goal import PROTOCOL_GOAL, Goal
from ptxbench.errors import InputError
from ptxbench.records import Outcome, Safe, Target, TurnKey
from ptxbench.verdict import judge
from tests.support.fixit_parts import make_failure
from tests.unit.factories import make_build, make_evidence, suite_case

VERDICT = judge(suite_case(), make_build(), make_evidence(suite_case()))


def test_failures_keep_their_numbers(tmp_path: Path):
    one, two, three = (make_failure(f"// {number}\n", number) for number in range(3))
    assert [entry.trajectory for entry in Ledger(tmp_path).take([two, one, two])] == [0, 1]
    again = Ledger(tmp_path)
    assert [(entry.trajectory, entry.failure) for entry in again.take([three, one])] == [(2, three), (1, one)]
    assert [entry.trajectory for entry in Ledger(tmp_path)] == [0, 1, 2]
    assert again.find(suite_case(), 0, 2) == three


def test_each_variant_is_counted_by_itself(tmp_path: Path):
    one = make_failure("// 0\n")
    key = one.origin.key.model_copy(update={"variant": 1})
    two = make_failure("// 1\n", origin=one.origin.model_copy(update={"key": key}))
    assert [entry.trajectory for entry in Ledger(tmp_path).take([one, two])] == [0, 0]
    assert Ledger(tmp_path).find(suite_case(), 1, 0) == two


def test_a_trajectory_is_called_after_the_teacher(tmp_path: Path):
    (entry,) = Ledger(tmp_path).take([make_failure("// 0\n", turn=5)])
    wanted = TurnKey(model="teacher", case=suite_case().name, arch="h100", variant=0, trajectory=0, turn=3)
    assert entry.key("teacher", 3) == wanted


def test_a_broken_ledger_is_not_begun_anew(tmp_path: Path):
    Ledger(tmp_path).take([make_failure("// 0\n")])
    (tmp_path / LEDGER).write_text((tmp_path / LEDGER).read_text()[:100])
    with pytest.raises(InputError, match=rf"{LEDGER}:1: expected the failure of a trajectory, .*restore the file"):
        Ledger(tmp_path)


def test_five_turns_and_a_correct_kernel_are_the_task():
    assert Task() == Task(Goal(None, "ignored", False), 5)
    assert Task().conditions != Task(Goal(0.5, "ignored")).conditions


def test_the_prompt_is_that_of_the_failure_and_says_so():
    feedback = "Wrong.\n\nFacts:\n- all of it\n\nNext:\n- 1 turn is left.\n- Goal: at least 1.2x.\n"
    failure = make_failure("// failed $kernel\n", feedback=feedback)
    opening = Task(Goal(0.5, "required", safe=True)).opening(suite_case(), failure)
    assert opening.messages[:2] == failure.prompt
    assert opening.messages[2].content == "```cuda\n// failed $kernel\n```"
    told = opening.messages[3].content
    assert told.startswith("Wrong.\n\nFacts:\n- all of it\n\nRepair this kernel.")
    assert "1 turn is left" not in told
    assert "1.2x" not in told
    assert "at least 0.5x as fast as cublas (torch.matmul), without findings of compute-sanitizer, executing" in told
    assert opening.prompt.template == f"{failure.prompt_identity.template} + repair 2"


@pytest.mark.parametrize(
    ("goal", "changes", "reached"),
    [
        (Goal(None, "ignored"), {}, True),
        (Goal(None, "ignored"), {"speedup": None}, True),
        (Goal(0.9, "ignored"), {"speedup": 0.9}, True),
        (Goal(0.9, "ignored"), {"speedup": 0.89}, False),
        (Goal(0.9, "ignored"), {"speedup": None}, False),
        (Goal(None, "required"), {}, True),
        (Goal(None, "required"), {"target": Target.NOT_EXECUTED}, False),
        (Goal(None, "required"), {"target": Target.UNKNOWN}, False),
        (Goal(None, "ignored", safe=True), {"safe": Safe.YES}, True),
        (Goal(None, "ignored", safe=True), {"safe": Safe.NOT_RUN}, False),
        (PROTOCOL_GOAL, {"speedup": 1.2, "target": Target.NOT_EXECUTED}, True),
        (PROTOCOL_GOAL, {"speedup": 1.199}, False),
    ],
)
def test_what_reaches_a_goal(goal: Goal, changes: dict[str, object], reached: bool):
    assert goal.reached(VERDICT.model_copy(update=changes)) is reached
    wrong = VERDICT.model_copy(update={**changes, "outcome": Outcome.NUMERICAL_ERROR})
    assert goal.reached(wrong) is False
