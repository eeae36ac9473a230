"""The files of a dataset, read by those who will train on it."""

from __future__ import annotations

import json

import pytest
import yaml

from ptxbench.adapt.build import Dataset, Order, build, write
from ptxbench.adapt.card import card
from ptxbench.adapt.collect import Sources
from ptxbench.adapt.manifest import CARD, PARQUET, PROMPT_COMPLETION, TRAIN
from ptxbench.adapt.recipe import find_recipe
from ptxbench.adapt.train.conversations import read_records
from tests.support.fixit_set import REASONER, STUDENT
from tests.support.small_model import small_tokenizer
from tests.unit.factories import ROOT


def built(fixit_set, recipe: str) -> Dataset:
    return build(Order(Sources(ROOT, fixit_set.runs), find_recipe(recipe), [fixit_set.pool], STUDENT, teacher=REASONER))


@pytest.fixture(scope="module")
def dataset(fixit_set) -> Dataset:
    return built(fixit_set, "4ops")


@pytest.fixture(scope="module")
def folder(dataset, tmp_path_factory):
    path = tmp_path_factory.mktemp("dataset") / "made"
    write(dataset, path)
    return path


def loaded(folder, cache, *arguments):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    return datasets.load_dataset(str(folder), *arguments, split="train", cache_dir=str(cache))


def test_parquet_holds_what_the_lines_hold(dataset, folder):
    parquet = pytest.importorskip("pyarrow.parquet")
    lines = [json.loads(line) for line in (folder / TRAIN).read_text().splitlines()]
    assert parquet.read_table(folder / PARQUET).to_pylist() == lines
    halves = parquet.read_table(folder / PROMPT_COMPLETION).to_pylist()
    for line, half in zip(lines, halves, strict=True):
        said = [{"role": one["role"], "content": one["content"]} for one in line["messages"]]
        assert [*half["prompt"], *half["completion"]] == said
        assert len(half["completion"]) == 1
        assert half["id"] == line["id"]
    assert len(lines) == dataset.manifest.records


def test_hugging_face_datasets_finds_both_forms_through_the_card(dataset, folder, tmp_path):
    whole = loaded(folder, tmp_path)
    assert whole.num_rows == dataset.manifest.records
    assert whole[0]["messages"][-1]["training"] is True
    assert whole[0]["id"] == dataset.records[0].id
    halves = loaded(folder, tmp_path, "prompt_completion")
    assert set(halves.column_names) == {"id", "prompt", "completion"}


def test_a_card_is_read_whatever_its_names_are(dataset, tmp_path):
    recipe = dataset.manifest.recipe_content.model_copy(update={"title": "two\nlines"})
    named = dataset.manifest.model_copy(update={"name": "mine: #1 [a", "recipe_content": recipe})
    named = named.model_copy(update={"licences": {"written by x": "a|b\n\n# c"}})
    text = card(named)
    assert yaml.safe_load(text.split("---\n")[1])["pretty_name"] == "PTXBench mine: #1 [a"
    assert "# mine: #1 [a: two lines\n" in text
    assert "| written by x | a\\|b # c |\n" in text


def test_hugging_face_datasets_reads_the_lines_as_they_are(dataset, folder, tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    found = datasets.load_dataset("json", data_files=str(folder / TRAIN), split="train", cache_dir=str(tmp_path))
    assert [one["id"] for one in found] == [record.id for record in dataset.records]


def test_our_own_training_reads_every_record(dataset, folder):
    records = read_records(folder)
    assert records.sha256 == dataset.manifest.train_sha256
    assert [one.name for one in records.conversations] == [record.id for record in dataset.records]


@pytest.mark.filterwarnings("ignore:::(trl|transformers|torch|accelerate|peft)(\\.|$)")
def test_trl_has_its_loss_on_the_last_answer_alone(dataset, folder, tmp_path):
    trl = pytest.importorskip("trl")
    from tests.support.small_model import write_small_model

    write_small_model(tmp_path / "model")
    tokenizer = small_tokenizer(tmp_path / "model")
    halves = loaded(folder, tmp_path, "prompt_completion").select(range(2))
    settings = trl.SFTConfig(
        output_dir=str(tmp_path / "out"), max_length=None, use_cpu=True, bf16=False, report_to=[], disable_tqdm=True
    )
    trainer = trl.SFTTrainer(str(tmp_path / "model"), args=settings, train_dataset=halves, processing_class=tokenizer)
    batch = trainer.data_collator([trainer.train_dataset[0]])
    supervised = batch["input_ids"][0][batch["labels"][0] != -100]
    text = tokenizer.decode(supervised)
    last = dataset.records[0].messages[-1].content
    assert text.rstrip().removesuffix("<|im_end|>") == last


@pytest.mark.filterwarnings("ignore")
def test_axolotl_has_its_loss_on_the_last_answer_alone(dataset, folder, tmp_path):
    load = pytest.importorskip("axolotl.prompt_strategies.chat_template").load
    settings = pytest.importorskip("axolotl.utils.dict").DictDefault
    tokenizer = small_tokenizer(tmp_path)
    keys = {"type": "chat_template", "field_messages": "messages", "message_field_training": "training"}
    strategy = load(
        tokenizer,
        settings({"sequence_len": 1_000_000, "train_on_inputs": False}),
        ds_cfg={**keys, "roles_to_train": [], "train_on_eos": "turn"},
    )
    row = strategy.tokenize_prompt(loaded(folder, tmp_path)[0])
    supervised = [token for token, label in zip(row["input_ids"], row["labels"], strict=True) if label != -100]
    assert tokenizer.decode(supervised).removesuffix("<|im_end|>") == dataset.records[0].messages[-1].content


def test_axolotl_finds_the_keys_that_the_card_names(folder):
    """Its configuration names keys; each message must have them, with exactly one to train on."""
    card = (folder / CARD).read_text()
    assert "`field_messages: messages`, `message_field_training: training`" in card
    for line in (folder / TRAIN).read_text().splitlines():
        messages = json.loads(line)["messages"]
        assert all(set(message) == {"role", "content", "training"} for message in messages)
        assert [message["training"] for message in messages].count(True) == 1


def test_a_column_without_any_value_has_its_type(fixit_set):
    """What has no speedup anywhere would otherwise be a column of nulls, which joins with no other dataset."""
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    from ptxbench.adapt.dataset_files import dataset_files

    made = built(fixit_set, "8ops-extended-kernelgen")
    records = [one.model_copy(update={"speedup": None}) for one in made.records]
    table = parquet.read_table(pyarrow.BufferReader(dataset_files(made.manifest, records)[PARQUET]))
    assert table.schema.field("speedup").type == pyarrow.float64()


def test_the_card_says_everything_that_the_manifest_does(dataset):
    card = dataset.files[CARD].decode()
    manifest = dataset.manifest
    for step in manifest.funnel:
        assert f"| {step.step} | {step.dropped or ''} | {step.left} |" in card
    for counts in (manifest.by_case, manifest.by_outcome, manifest.by_turn, manifest.by_teacher, manifest.tokens):
        assert all(f"| {name} | {count} |" in card for name, count in counts.items())
    for one in (*manifest.runs, *manifest.pools):
        assert one.sha256 in card
    assert manifest.train_sha256 in card
    assert all(f"| {part} | {terms} |" in card for part, terms in manifest.licences.items())


def test_no_file_names_a_place_of_this_machine(dataset, folder):
    for name, data in dataset.files.items():
        if not name.endswith(".parquet"):
            assert str(ROOT).encode() not in data
            assert str(folder.parent).encode() not in data
