"""From ``--model`` to a model."""

from pathlib import Path

import pytest

from ptxbench.errors import InputError
from ptxbench.models import open_model, open_models
from ptxbench.models.base import NAME_PATTERN, slug
from ptxbench.models.file import FileModel
from ptxbench.models.reference import ReferenceModel


def no_run(text: str):
    raise InputError(f"no run {text}")


def test_opens_the_known_forms(tmp_path):
    (tmp_path / "k.cu").write_text("")
    assert isinstance(open_model("reference", root=tmp_path, open_run=no_run), ReferenceModel)
    assert isinstance(open_model(f"file:{tmp_path / 'k.cu'}", root=tmp_path, open_run=no_run), FileModel)
    with pytest.raises(InputError, match=r"^no run monday$"):
        open_model("replay:monday::claude", root=tmp_path, open_run=no_run)


@pytest.mark.parametrize("spec", ["gpt-9", "", "file:", "replay:", "reference:x", "File:a.cu"])
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
