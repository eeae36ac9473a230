"""From ``--model`` to a model."""

from pathlib import Path
from typing import Any, cast, get_args

import pytest

from ptxbench.errors import InputError
from ptxbench.models import open_model, open_models
from ptxbench.models.base import NAME_PATTERN, Model, slug
from ptxbench.models.entry import ModelEntry, Provider
from ptxbench.models.file import FileModel
from ptxbench.models.reference import ReferenceModel
from ptxbench.models.registry import open_client


def no_run(text: str):
    raise InputError(f"no run {text}")


def test_opens_the_known_forms(tmp_path):
    (tmp_path / "k.cu").write_text("")
    assert isinstance(open_model("reference", root=tmp_path, open_run=no_run), ReferenceModel)
    assert isinstance(open_model(f"file:{tmp_path / 'k.cu'}", root=tmp_path, open_run=no_run), FileModel)
    with pytest.raises(InputError, match=r"^no run monday$"):
        open_model("replay:monday::claude", root=tmp_path, open_run=no_run)


@pytest.mark.parametrize(
    "spec", ["gpt-99", "", "file:", "replay:", "reference:x", "File:a.cu", "command:", "exchange: "]
)
def test_an_unknown_model_lists_the_known_forms(spec):
    with pytest.raises(InputError, match=r"unknown model; expected one of: reference .*; file:PATH .*; replay:RUN "):
        open_model(spec, root=Path(), open_run=no_run)


def test_two_models_never_share_a_name(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "k.cu").write_text("")
    specs = [f"file:{tmp_path}/a/k.cu", f"file:{tmp_path}/b/k.cu"]
    with pytest.raises(InputError, match=r"two models of this run would both be called 'file\.k'"):
        open_models(specs, root=tmp_path, open_run=no_run)
    opened = open_models([specs[0], "reference"], root=tmp_path, open_run=no_run)
    assert [model.name for model in opened] == ["file.k", "reference"]


@pytest.mark.parametrize("text", ["plain", "Ünïcode name", "../../etc", "a[b]::c", "", "-v0-t0", "x" * 200])
def test_a_slug_is_always_a_name(text):
    assert NAME_PATTERN.fullmatch(slug(text))


class Conversing:
    """Stands in for the agent's model, which lives above this room."""

    def __init__(self, entry: ModelEntry) -> None:
        self.name = entry.name
        self.entry = entry


def conversing(entry: ModelEntry) -> Model:
    return cast(Model, Conversing(entry))


def test_language_models_are_made_by_whoever_converses(tmp_path):
    specs = ["claude", "openai:local@http://127.0.0.1:1/v1", "reference"]
    opened = open_models(specs, root=tmp_path, open_run=no_run, converse=conversing)
    assert [model.name for model in opened] == ["claude", "openai_local_http_127.0.0.1_1_v1", "reference"]
    with pytest.raises(InputError, match=r"expected reference, file:PATH or replay:RUN here; found a language model"):
        open_model("claude", root=tmp_path, open_run=no_run)
    with pytest.raises(InputError, match=r"two models of this run would both be called 'claude'"):
        open_models(["claude", "claude"], root=tmp_path, open_run=no_run, converse=conversing)


def test_each_provider_has_its_client(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "k")
    fields: dict[str, dict[str, Any]] = {
        "openai": {"model": "m", "api_base": "http://127.0.0.1:1/v1"},
        "litellm": {"model": "openai/m", "api_key_env": "SOME_KEY"},
        "command": {"command": ("sh", "-c", "true")},
        "exchange": {"folder": str(tmp_path / "box")},
    }
    for provider in get_args(Provider):
        client = open_client(ModelEntry(name="m", provider=provider, **fields[provider]), run_folder=tmp_path / "run")
        assert client.settings()["provider"] == provider
        client.close()
        client.close()
    assert list(tmp_path.iterdir()) == []
