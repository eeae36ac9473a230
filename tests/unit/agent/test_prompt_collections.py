"""What a prompt says of a collection's case: where data comes from, and what nobody stated."""

from __future__ import annotations

from ptxbench.agent.prompt import first_messages
from ptxbench.cases import Case
from ptxbench.cases.bindings import MadeInputs
from ptxbench.cases.trace_sets import load_collections
from ptxbench.packs import load_pack
from tests.support.trace_sets import RMSNORM, ROOT, SMALL

CASES = {case.name: case for case in load_collections(ROOT, [SMALL]).suite.cases("h100")}
CAPTURED, DRAWN = f"{RMSNORM}.d9a08d1f", f"{RMSNORM}.f5b14411"


def user_message(case: Case) -> str:
    return first_messages(case, "none", load_pack(ROOT, case.arch.name, "params"))[1].content


def test_captured_inputs_are_named() -> None:
    text = user_message(CASES[CAPTURED])
    assert "Data: weight: captured data, the same in every call; other floating-point tensors are standard" in text
    assert "Data: every input is standard normal." in user_message(CASES[DRAWN])


def test_made_inputs_are_named() -> None:
    made = MadeInputs(function="f", inputs=("hidden_states", "weight"), arguments={})
    text = user_message(CASES[DRAWN].model_copy(update={"made": made}))
    assert "Data: hidden_states, weight: made by a program of the workload's, other data in every call." in text


def test_work_that_nobody_stated_is_not_said_to_be_none() -> None:
    text = user_message(CASES[DRAWN])
    assert "Work: an unknown number of FLOP a call (nobody stated it), at least 135,168 bytes" in text
    assert "Baseline: `definition.reference` (torch)." in text
