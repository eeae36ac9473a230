"""Datasets: rebuilt to the byte, every record accounted for, and refused where inputs contradict each other."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from itertools import pairwise

import pytest

from ptxbench.adapt.build import EmptyDatasetError, Order, build, histogram, write
from ptxbench.adapt.collect import Sources
from ptxbench.adapt.manifest import CARD, MANIFEST, PARQUET, PROMPT_COMPLETION, TRAIN, Manifest
from ptxbench.adapt.model import RATIONALES, REPAIRS, Rationale, Repair, read_lines, write_lines
from ptxbench.adapt.recipe import find_recipe, recipe_names
from ptxbench.errors import InputError
from ptxbench.records import Outcome
from ptxbench.report.dataset import read_manifest
from tests.support.fixit_set import EXAMPLE, REASONER, REPAIRER, STUDENT, write_pool
from tests.unit.factories import ROOT

KERNELGEN = "8ops-extended-kernelgen"


def order(fixit_set, recipe, **changes) -> Order:
    made = Order(Sources(ROOT, fixit_set.runs), find_recipe(recipe), [fixit_set.pool], STUDENT, teacher=REASONER)
    if recipe != KERNELGEN:
        made = made._replace(licences={REPAIRER: "CC-BY-4.0"})
    return made._replace(**changes)


@pytest.fixture(scope="module")
def datasets(fixit_set):
    """Every recipe, built once."""
    return {name: build(order(fixit_set, name)) for name in recipe_names()}


@pytest.fixture(scope="module")
def real_pool(tmp_path_factory):
    return write_pool(tmp_path_factory.mktemp("real"), [str(EXAMPLE)], "claude-exchange")


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_rebuilt_to_the_byte(name, fixit_set, datasets, tmp_path):
    again = build(order(fixit_set, name))
    assert again.files == datasets[name].files
    write(datasets[name], tmp_path / "one")
    write(again, tmp_path / "two")
    names = {TRAIN, PARQUET, PROMPT_COMPLETION, CARD, MANIFEST}
    assert {path.name for path in (tmp_path / "one").iterdir()} == names
    assert all((tmp_path / "one" / one).read_bytes() == (tmp_path / "two" / one).read_bytes() for one in names)


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_of_the_real_run_is_rebuilt_to_the_byte(name, real_pool):
    real = Order(Sources(ROOT, [str(EXAMPLE)]), find_recipe(name), [real_pool], teacher=REASONER)
    one, two = build(real), build(real)
    assert one.files == two.files
    assert one.manifest.funnel[0].left == 16
    assert one.manifest.records >= 1


def test_the_order_of_runs_and_pools_does_not_matter(fixit_set, datasets, tmp_path):
    other = tmp_path / "pool"
    other.mkdir()
    lines = (fixit_set.pool / RATIONALES).read_text().splitlines(keepends=True)
    (other / RATIONALES).write_text("".join(reversed(lines)))
    shutil.copy(fixit_set.pool / REPAIRS, other)
    turned = order(fixit_set, "4ops", sources=Sources(ROOT, fixit_set.runs[::-1]), pools=[other])
    assert build(turned).files[TRAIN] == datasets["4ops"].files[TRAIN]


@pytest.mark.parametrize("name", recipe_names())
def test_every_count_is_explained(name, datasets):
    manifest, records = datasets[name].manifest, datasets[name].records
    for before, step in pairwise(manifest.funnel):
        assert before.left - step.dropped == step.left
        assert sum(step.reasons.values()) == step.dropped
    assert manifest.funnel[-1].left == manifest.records == len(records)
    lines = [json.loads(line) for line in datasets[name].files[TRAIN].splitlines()]
    assert manifest.by_case == dict(sorted(Counter(f"{one['case']} {one['arch']}" for one in lines).items()))
    assert manifest.by_outcome == dict(sorted(Counter(one["outcome"] for one in lines).items()))
    assert manifest.by_turn == dict(sorted(Counter(str(one["turn"]) for one in lines).items()))
    assert manifest.by_teacher == {REASONER: len(lines)}
    assert manifest.by_repair_teacher == {(STUDENT if name == KERNELGEN else REPAIRER): len(lines)}
    assert manifest.by_language == {"cuda": len(lines)}
    assert sum(manifest.tokens.values()) == len(lines)
    assert manifest.tokens_in_all == sum(one["tokens"] for one in lines)


def test_recipes_hold_what_they_promise(datasets):
    ids = {name: {one.id for one in dataset.records} for name, dataset in datasets.items()}
    assert ids["4ops"] < ids["4ops-extended"] < ids["8ops-extended"]
    assert ids["8ops-post-balanced"] < ids["8ops-extended"]
    assert ids["8ops-pre-balanced"] < ids["8ops-extended"]
    assert not ids[KERNELGEN] & ids["8ops-extended"]
    after = datasets["8ops-post-balanced"].manifest
    assert max(after.by_case.values()) == 33
    assert after.by_case["mha_with_lse_d128 h100"] == 33
    assert datasets["8ops-extended"].manifest.by_case["mha_with_lse_d128 h100"] > 33


def test_what_is_longer_than_the_limit_is_dropped_and_counted(datasets):
    for name in ("4ops", KERNELGEN):
        step = next(one for one in datasets[name].manifest.funnel if one.step == "within 65,536 tokens")
        assert step.reasons == {"longer": 1}
        assert datasets[name].manifest.tokens_most <= 65_536


def test_the_papers_sixth_differs_from_the_fifth_in_who_reasons_alone(fixit_set):
    fifth = build(order(fixit_set, "s5", teacher=None))
    sixth = build(order(fixit_set, "s6", teacher=None))
    assert fifth.manifest.by_teacher == {REASONER: fifth.manifest.records}
    assert sixth.manifest.by_teacher == {STUDENT: sixth.manifest.records}
    assert (sixth.manifest.name, sixth.manifest.recipe) == ("s6", "8ops-pre-balanced")
    repaired = [next(one for one in made.manifest.funnel if one.step == "repaired") for made in (fifth, sixth)]
    assert repaired[0] == repaired[1]
    assert any("a rationale of another teacher alone" in one.reasons for one in sixth.manifest.funnel)


def test_two_rationales_of_one_repair_need_a_choice(fixit_set):
    with pytest.raises(InputError, match="expected one rationale for each repair, found two"):
        build(order(fixit_set, "4ops", teacher=None))


def test_a_rationale_of_other_texts_is_refused(fixit_set, tmp_path):
    rationales = read_lines(Rationale, fixit_set.pool / RATIONALES)
    chosen = [one for one in rationales if one.teacher == REASONER and isinstance(one.repair, Repair)]
    changed = []
    for one in chosen:
        assert isinstance(one.repair, Repair)
        prompt = (
            one.repair.failure.prompt[0].model_copy(update={"content": "Another task."}),
            one.repair.failure.prompt[1],
        )
        failure = one.repair.failure.model_copy(update={"prompt": prompt})
        changed.append(one.model_copy(update={"repair": one.repair.model_copy(update={"failure": failure})}))
    write_lines(changed, tmp_path / RATIONALES)
    with pytest.raises(InputError, match=r"expected the prompt and kernel of .* found others"):
        build(order(fixit_set, "4ops", pools=[tmp_path]))


@pytest.mark.parametrize("field", ["outcome", "definition", "variant_name"])
def test_a_rationale_of_a_turn_that_is_told_otherwise_is_refused(fixit_set, tmp_path, field):
    """As of a run that was judged again: what the funnel counts and what the records say would differ."""
    changed = []
    for one in read_lines(Rationale, fixit_set.pool / RATIONALES):
        if one.teacher == REASONER and isinstance(one.repair, Repair):
            other = Outcome.TIMEOUT if one.repair.failure.outcome is not Outcome.TIMEOUT else Outcome.MEMORY_ERROR
            value = other if field == "outcome" else "another"
            failure = one.repair.failure.model_copy(update={field: value})
            changed.append(one.model_copy(update={"repair": one.repair.model_copy(update={"failure": failure})}))
    write_lines(changed, tmp_path / RATIONALES)
    with pytest.raises(InputError, match=f"expected {field} .* as the run"):
        build(order(fixit_set, "4ops", pools=[tmp_path]))


@pytest.mark.parametrize("where", ["feedback", "kernel", "text"])
def test_marks_of_chat_templates_leave_with_their_record(fixit_set, datasets, tmp_path, where):
    """They are no text to a tokenizer. What the funnel says of the others does not change."""
    chosen = sorted(
        (one for one in read_lines(Rationale, fixit_set.pool / RATIONALES) if one.teacher == REASONER),
        key=lambda one: one.id not in {record.id for record in datasets["4ops"].records},
    )
    repair = chosen[0].repair
    assert isinstance(repair, Repair)
    feedback = {"feedback": f"{repair.failure.feedback} <|im_end|>"} if where == "feedback" else {}
    kernel = {"source": f"{repair.source}// <|im_start|>user\n"} if where == "kernel" else {}
    repair = repair.model_copy(update={"failure": repair.failure.model_copy(update=feedback), **kernel})
    text = f"{chosen[0].text} </think>" if where == "text" else chosen[0].text
    chosen[0] = chosen[0].model_copy(update={"repair": repair, "text": text})
    write_lines(chosen, tmp_path / RATIONALES)
    made = build(order(fixit_set, "4ops", pools=[tmp_path]))
    step = next(one for one in made.manifest.funnel if one.step == "without marks of chat templates")
    assert (step.dropped, len(step.reasons)) == (1, 1)
    assert {one.id for one in datasets["4ops"].records} - {one.id for one in made.records} == {chosen[0].id}


def test_a_leak_that_was_planted_in_the_file_leaves_with_its_record(fixit_set, datasets, tmp_path):
    mine = {record.id for record in datasets["4ops"].records}
    chosen = [one for one in read_lines(Rationale, fixit_set.pool / RATIONALES) if one.teacher == REASONER]
    at = next(number for number, one in enumerate(chosen) if one.id in mine)
    chosen[at] = chosen[at].model_copy(update={"text": f"{chosen[at].text} The corrected kernel uses a wait."})
    write_lines(chosen, tmp_path / RATIONALES)
    made = build(order(fixit_set, "4ops", pools=[tmp_path]))
    step = next(one for one in made.manifest.funnel if one.step == "without leaks by today's rules")
    assert step.reasons == {"marker in the rationale": 1}
    assert mine - {one.id for one in made.records} == {chosen[at].id}


def test_a_folder_of_rationales_is_named_once(fixit_set, tmp_path):
    (tmp_path / "link").symlink_to(fixit_set.pool)
    with pytest.raises(InputError, match="expected each folder once"):
        build(order(fixit_set, "4ops", pools=[fixit_set.pool, tmp_path / "link"]))


def test_a_kernel_that_is_not_correct_is_never_taught(fixit_set, tmp_path):
    def spoiled(one: Rationale) -> Rationale:
        verdict = one.repair.verdict.model_copy(update={"outcome": Outcome.NUMERICAL_ERROR})
        return one.model_copy(update={"repair": one.repair.model_copy(update={"verdict": verdict})})

    rationales = read_lines(Rationale, fixit_set.pool / RATIONALES)
    write_lines((spoiled(one) for one in rationales if one.teacher == REASONER), tmp_path / RATIONALES)
    with pytest.raises(InputError, match="expected a kernel that was judged correct, found numerical_error"):
        build(order(fixit_set, "4ops", pools=[tmp_path]))


def test_without_the_repairs_the_rationales_tell_what_was_repaired(fixit_set, datasets, tmp_path):
    shutil.copy(fixit_set.pool / RATIONALES, tmp_path)
    made = build(order(fixit_set, "4ops", pools=[tmp_path]))
    assert made.files[TRAIN] == datasets["4ops"].files[TRAIN]
    assert next(one for one in made.manifest.funnel if one.step == "repaired").dropped > 0


def test_nothing_left_says_where_it_went(fixit_set):
    with pytest.raises(EmptyDatasetError, match="found none after the step 'explained'") as raised:
        build(order(fixit_set, "4ops", teacher="nobody"))
    assert raised.value.steps[-1].left == 0


def test_a_folder_without_rationales(fixit_set, tmp_path):
    with pytest.raises(InputError, match=r"expected a folder with rationales\.jsonl"):
        build(order(fixit_set, "4ops", pools=[tmp_path]))


def test_a_folder_that_holds_something_is_left_alone(datasets, tmp_path):
    (tmp_path / "mine").touch()
    with pytest.raises(InputError, match="expected a new or empty folder"):
        write(datasets["4ops"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_licences(fixit_set, datasets):
    stated = datasets["4ops"].manifest.licences
    assert stated[f"written by {REPAIRER}"] == "CC-BY-4.0"
    assert stated[f"written by {REASONER}"] == "not stated"
    with pytest.raises(InputError, match=r"--licence nobody=\.\.\.: expected one of"):
        build(order(fixit_set, "4ops", licences={"nobody": "MIT"}))


def test_the_manifest_is_read_back(datasets, tmp_path):
    write(datasets["4ops"], tmp_path / "made")
    assert Manifest.read(tmp_path / "made") == datasets["4ops"].manifest
    assert read_manifest(tmp_path / "made").by_case == datasets["4ops"].manifest.by_case
    (tmp_path / "made" / MANIFEST).write_text("{}")
    with pytest.raises(InputError, match="expected the manifest of a dataset"):
        Manifest.read(tmp_path / "made")
    with pytest.raises(InputError, match="build one with ptxbench fixit build"):
        Manifest.read(tmp_path)


def test_the_histogram_counts_each_record_once():
    found = histogram([1, 8_192, 8_193, 65_536, 65_537])
    assert {name: count for name, count in found.items() if count} == {"8192": 2, "16384": 1, "65536": 1, "more": 1}
