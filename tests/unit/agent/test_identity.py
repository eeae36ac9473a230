"""What a session may bring to a run, and what would mix two experiments in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ptxbench.agent import RunStore
from ptxbench.agent.identity import ModelTerms, Session, differences
from ptxbench.agent.run_file import check
from ptxbench.errors import InputError

SUITES = {"primary": "a" * 64}


def terms(knowledge: Any = "full", **changes: Any) -> ModelTerms:
    sent = {"provider": "openai", "model": "m-1", "reasoning": {"effort": "high"}} | changes
    return ModelTerms(sent={name: value for name, value in sent.items() if value is not None}, knowledge=knowledge)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    RunStore.open(tmp_path / "run", SUITES, {"mine": 8}, {"mine": terms()})
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            terms(model="m-2"),
            ["the model mine", 'with model "m-1", found model "m-2"', "another --run", "another name"],
        ),
        (terms(api_base="http://other/v1"), ["with api_base (not sent)", 'found api_base "http://other/v1"']),
        (terms(reasoning={"effort": "low"}), ['reasoning.effort "high"', 'reasoning.effort "low"']),
        (terms(reasoning=None), ['reasoning {"effort": "high"}', "found reasoning (not sent)"]),
        (terms("params"), ["expected --knowledge full", "found params", "resume with --knowledge full"]),
        (
            terms().model_copy(update={"conditions": {"retrieval": {"mode": "notes"}}}),
            ["the prompts of mine", 'retrieval (not sent), found retrieval {"mode": "notes"}', "another --run"],
        ),
    ],
)
def test_a_model_that_would_be_asked_otherwise_is_refused(folder: Path, changed: ModelTerms, words: list[str]) -> None:
    before = (folder / "run.json").read_bytes()
    for attempt in (
        lambda: RunStore.open(folder, SUITES, {"mine": 8}, {"mine": changed}),
        lambda: check(folder, Session(SUITES, {"mine": 8}, {"mine": changed})),
    ):
        with pytest.raises(InputError) as error:
            attempt()
        assert [word for word in words if word not in str(error.value)] == []
    assert (folder / "run.json").read_bytes() == before


def test_the_same_model_and_others_may_join(folder: Path) -> None:
    store = RunStore.open(folder, SUITES, {"mine": 4}, {"mine": terms(), "other": terms("params", model="m-2")})
    assert store.identity.models == {"mine": terms(), "other": terms("params", model="m-2")}
    assert RunStore.open(folder, SUITES).identity == store.identity
    check(folder, Session(SUITES, models={"mine": terms()}))


def test_long_settings_are_shortened_and_equal_ones_are_none() -> None:
    ((name, (before, now)),) = differences({"a": "x" * 500, "b": 1}, {"a": 0.5, "b": 1.0})
    assert (name, now) == ("a", "0.5")
    assert len(before) < 100


def test_checking_writes_nothing(tmp_path: Path) -> None:
    check(tmp_path / "run", Session(SUITES))
    assert not (tmp_path / "run").exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="expected a folder, found a file"):
        check(tmp_path / "file", Session(SUITES))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.txt").write_text("x")
    with pytest.raises(InputError, match=r"found 'notes\.txt'"):
        check(tmp_path / "foreign", Session(SUITES))
