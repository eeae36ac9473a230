"""Collecting: which turns of which runs become failures or correct kernels, and with which texts."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ptxbench.adapt.collect import Sources, collect
from ptxbench.adapt.model import Correct, Failure
from ptxbench.adapt.recipe import FAILED, find_recipe
from ptxbench.errors import InputError
from ptxbench.records import Candidate, Outcome, prompt_sha256
from tests.support.fixit_set import EXAMPLE, OTHER, STUDENT
from tests.unit.factories import ROOT

EXAMPLE_TURN = "turns/claude-exchange-mha_with_lse_d128_causal-h100-v0-t0"


def taken(runs, recipe="4ops-extended", model=None):
    found = collect(Sources(ROOT, tuple(map(str, runs))), find_recipe(recipe).recipe, model)
    return found, {step.step: step for step in found.funnel.steps}


@pytest.fixture
def example(tmp_path) -> Path:
    """A copy of the real run, to be changed."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "run"))


def edit(path: Path, change) -> None:
    record = json.loads(path.read_bytes())
    change(record)
    path.write_text(json.dumps(record))


def test_the_failure_of_a_real_run_in_full():
    found, _ = taken([EXAMPLE])
    (failure,) = found.records
    assert isinstance(failure, Failure)
    turn = json.loads((EXAMPLE / EXAMPLE_TURN / "turn2.json").read_bytes())
    first = json.loads((EXAMPLE / EXAMPLE_TURN / "turn0.json").read_bytes())["exchange"]
    following = json.loads((EXAMPLE / EXAMPLE_TURN / "turn3.json").read_bytes())["exchange"]
    assert (failure.outcome, failure.origin.key.turn) == (Outcome.NUMERICAL_ERROR, 2)
    assert failure.source == (EXAMPLE / EXAMPLE_TURN / "turn2.cu").read_text()
    assert failure.source_sha256 == turn["source_sha256"]
    assert prompt_sha256(failure.prompt) == first["prompt_sha256"]
    said = following["added"][0]["content"]
    assert failure.feedback.split("\n\nNext:\n")[0] == said.split("\n\nNext:\n")[0]
    assert "5 turns are left" in failure.feedback


def test_the_same_runs_give_the_same_failures_in_any_order(fixit_set):
    one, _ = taken(fixit_set.runs, model=STUDENT)
    two, _ = taken(reversed(fixit_set.runs), model=STUDENT)
    assert one.records == two.records
    assert one.inputs == two.inputs
    assert one.funnel.steps == two.funnel.steps
    assert [record.id for record in one.records] == sorted({record.id for record in one.records})


def test_ids_do_not_depend_on_what_the_folder_is_called(example):
    one, _ = taken([EXAMPLE])
    two, _ = taken([example])
    assert [record.id for record in one.records] == [record.id for record in two.records]


def test_counts_are_those_of_the_files(fixit_set):
    """Counted once more, by another way, from the files alone."""
    found, steps = taken(fixit_set.runs, "8ops-extended", STUDENT)
    rows = [json.loads(path.read_bytes()) for run in fixit_set.runs for path in Path(run).glob("turns/*/turn*.json")]
    faults = [json.loads(path.read_bytes()) for run in fixit_set.runs for path in Path(run).glob("faults/*.json")]
    assert steps["turns of the runs"].left == len(rows) + len(faults)
    mine = [row for row in rows if row["key"]["model"] == STUDENT]
    outcomes = Counter(row["verdict"]["outcome"] for row in mine)
    unjudged = steps["judged"].reasons
    assert unjudged["never measured"] == outcomes["unknown"] > 0
    my_faults = sum(1 for row in faults if row["key"]["model"] == STUDENT)
    assert unjudged["infrastructure fault or damaged record"] == my_faults > 0
    assert steps["holds a kernel that may be judged"].reasons == {
        "no kernel in the answer": outcomes["extraction_error"],
        "screened (screen.library_header)": outcomes["screened"],
    }
    assert steps["failed"].dropped == outcomes["correct"]
    assert steps["failed"].left == sum(outcomes[outcome] for outcome in FAILED)
    operators = find_recipe("8ops-extended").recipe.definitions
    failed = [row for row in mine if row["verdict"]["outcome"] in FAILED and row["definition"] in operators]
    kernels = {(row["definition"], row["source_sha256"]) for row in failed}
    assert steps["each kernel once"].dropped == len(failed) - len(kernels) > 0
    assert {(one.definition, one.source_sha256) for one in found.records} == kernels
    assert {one.outcome for one in found.records} <= set(FAILED)
    assert {one.origin.key.model for one in found.records} == {STUDENT}


def test_every_step_adds_up(fixit_set):
    for recipe in ("8ops-pre-balanced", "8ops-extended-kernelgen"):
        found, _ = taken(fixit_set.runs, recipe, STUDENT)
        steps = found.funnel.steps
        for before, step in pairwise(steps):
            assert before.left - step.dropped == step.left
            assert sum(step.reasons.values()) == step.dropped
        assert steps[-1].left == len(found.records)


def test_of_equal_kernels_the_one_of_the_older_run_stays(fixit_set):
    found, steps = taken(fixit_set.runs, "8ops-extended", STUDENT)
    assert steps["each kernel once"].reasons["the same kernel again"] > 0
    assert {record.origin.run for record in found.records} == {"base"}


def test_balanced_before_repair_keeps_the_cap_and_the_shares(fixit_set):
    wide, _ = taken(fixit_set.runs, "8ops-pre-balanced", STUDENT)
    recipe = find_recipe("8ops-pre-balanced").recipe
    by_operator = Counter(record.definition for record in wide.records)
    assert by_operator["mha_with_lse_d128"] == recipe.cap
    assert max(one.origin.key.turn for one in wide.records) == 4
    everything, _ = taken(fixit_set.runs, "4ops", STUDENT)
    mine = Counter(one.outcome for one in wide.records if one.definition == "mha_with_lse_d128")
    theirs = Counter(one.outcome for one in everything.records if one.definition == "mha_with_lse_d128")
    share = recipe.cap / theirs.total()
    strata = 5
    assert all(abs(mine[outcome] - theirs[outcome] * share) < strata for outcome in theirs)


def test_kernelgen_takes_the_correct_kernels(fixit_set):
    found, steps = taken(fixit_set.runs, "8ops-extended-kernelgen", STUDENT)
    assert all(isinstance(one, Correct) and one.verdict.correct for one in found.records)
    assert [message.role for message in found.records[0].prompt] == ["system", "user"]
    assert set(steps["correct"].reasons) == {outcome for outcome in FAILED if outcome in steps["correct"].reasons}


def put(example: Path, turn: int, source: str) -> None:
    """Another kernel for a turn."""
    sha256 = Candidate(source=source).sha256

    def change(record: dict[str, Any]) -> None:
        record["source_sha256"] = sha256
        for made in (record["build"], record["evidence"]):
            if made is not None:
                made["candidate_sha256"] = sha256

    edit(example / EXAMPLE_TURN / f"turn{turn}.json", change)
    (example / EXAMPLE_TURN / f"turn{turn}.cu").write_bytes(source.encode())


@pytest.mark.parametrize("comment", ["", "// once more\n\n"])
def test_a_failed_kernel_that_was_found_correct_elsewhere_is_no_failure(example, comment):
    put(example, 3, comment + (example / EXAMPLE_TURN / "turn2.cu").read_text())
    found, steps = taken([example])
    assert steps["never found correct"].reasons == {"the same kernel was correct elsewhere": 1}
    assert found.records == []


def test_comments_and_layout_do_not_make_another_kernel(example):
    source = (example / EXAMPLE_TURN / "turn2.cu").read_text()
    put(example, 3, "// once more\n" + source.replace(";\n", ";\n\n"))
    edit(example / EXAMPLE_TURN / "turn3.json", lambda record: record["verdict"].update(outcome="numerical_error"))
    found, steps = taken([example])
    assert steps["each kernel once"].reasons == {"the same kernel again": 1}
    assert [one.origin.key.turn for one in found.records] == [2]


def test_a_damaged_record_is_counted_with_the_faults(example):
    (example / EXAMPLE_TURN / "turn5.json").write_text("{")
    _, steps = taken([example])
    assert steps["turns of the runs"].left == 16
    assert steps["judged"].reasons == {"infrastructure fault or damaged record": 1}


def test_a_conversation_whose_beginning_is_lost(example):
    (example / EXAMPLE_TURN / "turn0.json").unlink()
    _, steps = taken([example])
    reasons = steps["asked for, from the first message on"].reasons
    assert reasons == {"beginning of the conversation not stored": 7}


def test_a_source_that_no_model_was_asked_for(example):
    def handed_in(record):
        record["exchange"], record["origin"], record["follows"] = None, "file", None

    edit(example / EXAMPLE_TURN / "turn2.json", handed_in)
    _, steps = taken([example])
    assert steps["asked for, from the first message on"].reasons["not of a language model"] == 1


def test_the_last_turn_has_feedback_too(example):
    """Nobody was told of it, so it is written from the record."""
    for turn in range(3, 8):
        (example / EXAMPLE_TURN / f"turn{turn}.json").unlink()
    found, _ = taken([example])
    assert found.records[0].feedback.startswith("Your kernel runs, and its result is wrong.")
    assert "5 turns are left" in found.records[0].feedback


def test_whose_turns_must_be_said_where_there_are_several(fixit_set):
    with pytest.raises(InputError, match=f"turns of one model in the runs, found those of {OTHER}, {STUDENT}"):
        taken(fixit_set.runs)
    with pytest.raises(InputError, match="turns of nobody in the runs"):
        taken(fixit_set.runs, model="nobody")


def test_a_run_is_named_once(tmp_path):
    (tmp_path / "link").symlink_to(EXAMPLE)
    with pytest.raises(InputError, match="each run once"):
        taken([EXAMPLE, tmp_path / "link"])


def test_a_copy_of_a_run_is_the_same_run(example):
    with pytest.raises(InputError, match=r"each run once, found .* with the very same files"):
        taken([EXAMPLE, example])


def test_runs_of_one_name_are_told_in_one_order(example):
    later = example.parent / "later" / "base"
    shutil.copytree(example, later)
    shutil.move(example, example.parent / "base")
    edit(later / "run.json", lambda run: run.update(created_at="2026-12-01T00:00:00+00:00"))
    runs = [example.parent / "base", later]
    one, two = taken(runs)[0], taken(reversed(runs))[0]
    assert one.inputs == two.inputs
    assert one.records == two.records


def test_a_run_without_turns(tmp_path):
    shutil.copy(EXAMPLE / "run.json", tmp_path)
    with pytest.raises(InputError, match="expected a run with turns"):
        taken([tmp_path])


def test_the_hash_of_a_run_is_of_its_turns_alone(example):
    before = taken([example])[0].inputs
    (example / "locks").mkdir()
    (example / "locks" / "some.lock").touch()
    assert taken([example])[0].inputs == before
    source = example / EXAMPLE_TURN / "turn2.json"
    source.write_bytes(source.read_bytes() + b"\n")
    after = taken([example])[0].inputs
    assert after[0].sha256 != before[0].sha256
