"""``ptxbench train`` without training: what it counts, prints, exports and refuses."""

from __future__ import annotations

import argparse
import json
import shlex

import pytest

from ptxbench.adapt.train.conversations import RECORDS
from ptxbench.adapt.train.lines import launch_line, serve_lines
from ptxbench.adapt.train.options import SETTINGS, add_options
from ptxbench.adapt.train.settings import TrainSettings
from ptxbench.adapt.train.tinker import CONFIG, CONVERSATIONS, tinker_arguments
from ptxbench.adapt.train.trainer import accumulation
from ptxbench.cli import main
from ptxbench.errors import InputError
from ptxbench.models.catalog import load_catalog
from ptxbench.models.entry import ModelEntry
from ptxbench.models.spec import parse_spec
from tests.support.small_model import repair, small_tokenizer

PUBLISHED = {
    "rank": 32,
    "epochs": 5,
    "batch": 2,
    "learning_rate": 4.65e-4,
    "beta1": 0.9,
    "beta2": 0.95,
    "epsilon": 1e-8,
    "seed": 0,
    "max_tokens": 65_536,
    "checkpoint_steps": 50,
}
"""PROTOCOL 7."""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    small_tokenizer(folder).save_pretrained(folder)
    return folder


@pytest.fixture
def dataset(tmp_path):
    """Five records, the third of which is long."""
    lines = [json.dumps(repair(number, words=" word" * 400 if number == 2 else "")) for number in range(5)]
    (tmp_path / RECORDS).write_text("\n".join(lines) + "\n")
    return tmp_path


def command(base, dataset, *more: str) -> list[str]:
    return ["train", "--dataset", str(dataset), "--base", str(base), "--out", str(dataset / "out"), *more]


def test_the_defaults_are_the_published_ones() -> None:
    settings = TrainSettings()
    assert {name: getattr(settings, name) for name in PUBLISHED} == PUBLISHED


def test_the_help_names_the_defaults() -> None:
    settings = TrainSettings()
    assert {name: one.default for name, one in SETTINGS.items()} == {name: getattr(settings, name) for name in SETTINGS}
    parser = argparse.ArgumentParser()
    add_options(parser)
    assert "(default: 0.000465)" in " ".join(parser.format_help().split())


def test_a_dry_run_counts_and_writes_nothing(base, dataset, capsys) -> None:
    assert main(command(base, dataset, "--dry-run", "--max-tokens", "400")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("4 records, ")
    assert "1 records dropped, of more than 400 tokens: repair-2 (933)" in lines[1]
    assert lines[2] == "10 steps: 5 epochs, 2 records each, a checkpoint every 50"
    assert not (dataset / "out").exists()


def test_the_line_for_several_gpus_repeats_the_command(base, dataset, capsys, monkeypatch) -> None:
    given = command(base, dataset, "--epochs", "3", "--gpus", "2")
    monkeypatch.setattr("sys.argv", ["ptxbench", *given])
    assert main(given) == 0
    words = shlex.split(capsys.readouterr().out)
    assert words[:2] == ["accelerate", "launch"]
    assert words[words.index("--num_processes") + 1] == "2"
    assert words[words.index("-m") + 1 :] == ["ptxbench", *given[:-2]]
    assert "--multi_gpu" not in launch_line([], 1, "bfloat16")


@pytest.mark.parametrize("more", [["--gpu", "2"], ["--gpus", "0"], ["--gpus=-1"]])
def test_gpus_are_said_in_one_way(dataset, capsys, more) -> None:
    """An abbreviation would stay in the printed command, which would then print itself for ever."""
    with pytest.raises(SystemExit):
        main(command("base", dataset, *more))
    assert more[0].partition("=")[0] in capsys.readouterr().err


def test_a_setting_that_cannot_be_is_told_once(dataset, capsys) -> None:
    assert main(command("base", dataset, "--epochs", "0")) == 2
    assert capsys.readouterr().err.startswith("ptxbench train: expected settings that can be, found ")


def test_what_is_printed_to_serve_an_adapter_can_be_asked(tmp_path) -> None:
    lines = serve_lines("Qwen/Qwen3.6-27B", tmp_path / "my adapter", "fixit", 32)
    words = shlex.split(lines[0].partition(":")[2])
    assert words[words.index("--lora-modules") + 1] == f"fixit={tmp_path}/my adapter"
    assert words[words.index("--max-lora-rank") + 1] == "32"
    for line, model in ((lines[1], "fixit"), (lines[3], "Qwen/Qwen3.6-27B:fixit")):
        spec = shlex.split(line.partition(":")[2])[-1].removeprefix("--model=")
        entry = parse_spec(spec, load_catalog(None))
        assert isinstance(entry, ModelEntry)
        assert (entry.provider, entry.model, entry.api_base) == ("openai", model, "http://127.0.0.1:8000/v1")


def test_the_export_has_the_records_within_the_limit(base, dataset, capsys) -> None:
    assert main(command(base, dataset, "--export", "tinker", "--renderer", "qwen3_5", "--max-tokens", "400")) == 0
    out = dataset / "out"
    lines = (out / CONVERSATIONS).read_text().splitlines()
    assert [json.loads(line)["messages"][1]["content"][:7] for line in lines] == [
        "Case 0.",
        "Case 1.",
        "Case 3.",
        "Case 4.",
    ]
    config = json.loads((out / CONFIG).read_text())
    assert config["learning_rate"] == 4.65e-4
    assert config["dataset_builder.common_config.train_on_what"] == "last_assistant_message"
    words = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert words[:3] == ["python", "-m", "tinker_cookbook.supervised.train"]
    assert dict(word.split("=", 1) for word in words[3:]) == {name: str(value) for name, value in config.items()}


def test_the_cookbook_reads_the_export(base, dataset) -> None:
    """By its own parser, where it is installed."""
    chz = pytest.importorskip("chz")
    cookbook = pytest.importorskip("tinker_cookbook.supervised.train", exc_type=ImportError)
    arguments = tinker_arguments("Qwen/Qwen3.6-27B", TrainSettings(), "qwen3_5", dataset)
    read = []

    def keep(config):
        read.append(config)

    keep.__annotations__["config"] = cookbook.Config
    chz.nested_entrypoint(keep, argv=[f"{name}={value}" for name, value in arguments.items()])
    (config,) = read
    assert (config.lora_rank, config.num_epochs, config.learning_rate, config.save_every) == (32, 5, 4.65e-4, 50)
    assert (config.adam_beta1, config.adam_beta2, config.adam_eps, config.lr_schedule) == (0.9, 0.95, 1e-8, "linear")
    common = config.dataset_builder.common_config
    assert (common.batch_size, common.max_length, common.train_on_what.value) == (2, 65_536, "last_assistant_message")
    assert config.dataset_builder.shuffle_seed == 0


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--rank", "0"], "greater than or equal to 1 at rank"),
        (["--dtype", "int4"], "at dtype"),
        (["--export", "tinker"], "--renderer"),
        (["--export", "tinker", "--renderer", "qwen3", "--alpha", "16"], "others of alpha"),
        (["--resume"], "expected a training that was begun"),
        (["--max-tokens", "10"], "the shortest has"),
    ],
)
def test_what_cannot_be_is_refused(base, dataset, more, told, capsys) -> None:
    assert main(command(base, dataset, *more)) == 2
    assert told in capsys.readouterr().err
    assert not (dataset / "out").exists()


@pytest.mark.parametrize("more", [[], ["--export", "tinker", "--renderer", "qwen3"]])
def test_a_folder_in_use_is_refused(base, dataset, more, capsys) -> None:
    (dataset / "out").mkdir()
    (dataset / "out" / "something").touch()
    assert main(command(base, dataset, *more)) == 2
    assert "new or empty folder" in capsys.readouterr().err


@pytest.mark.parametrize(("more", "missing"), [([], "trl"), (["--dry-run"], "transformers")])
def test_a_missing_package_is_named_before_anything_is_written(
    base, dataset, more, missing, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("ptxbench.adapt.train.command.find_spec", lambda name: None if name == missing else name)
    assert main(command(base, dataset, *more)) == 2
    assert f"found no {missing}; install them with: pip install 'ptxbench[train]'" in capsys.readouterr().err
    assert not (dataset / "out").exists()


def test_of_several_processes_the_first_one_speaks(base, dataset, capsys, monkeypatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert main(command(base, dataset, "--dry-run")) == 0
    assert capsys.readouterr().out == ""


def test_processes_share_a_batch_or_are_refused(monkeypatch) -> None:
    for count, records in ((None, 2), ("1", 2), ("2", 1)):
        if count is not None:
            monkeypatch.setenv("WORLD_SIZE", count)
        assert accumulation(TrainSettings()) == records
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(InputError, match="divides the batch of 2 records, found 3"):
        accumulation(TrainSettings())


def test_settings_of_the_service_are_not_ours_to_set(tmp_path) -> None:
    with pytest.raises(InputError, match="weight_decay"):
        tinker_arguments("base", TrainSettings(weight_decay=0.1), "qwen3", tmp_path)
