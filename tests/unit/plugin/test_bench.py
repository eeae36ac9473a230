"""What a session lets go of at its end, and what it brings to its run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ptxbench.errors import InfrastructureError, InputError
from ptxbench.plugin.bench import Bench
from tests.unit.factories import ROOT
from tests.unit.plugin.test_items import options

MODELS = """\
models:
  mine: {provider: openai, model: m-1, api_base: "http://127.0.0.1:1/v1", prices: {input: 1.0, output: 2.0}}
  other: {provider: exchange, folder: mail}
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "models.yaml").write_text(MODELS)
    chosen = options(models=("mine",), models_file=tmp_path / "models.yaml", knowledge="params", budget_usd=1.0)
    return Bench(ROOT, chosen, None, None)


def failing(error: Exception, closed: list[str]) -> Callable[[], None]:
    def close() -> None:
        closed.append(str(error))
        raise error

    return close


def test_whatever_one_model_meets_all_are_closed_and_told_as_one_fault(bench: Bench) -> None:
    closed: list[str] = []
    faults = [ValueError("half \\ud800"), InfrastructureError("disk_full", "no space"), OSError("gone")]
    bench._conversing = {str(error): SimpleNamespace(close=failing(error, closed)) for error in faults}  # type: ignore[misc]
    bench._clients = {"c": SimpleNamespace(close=failing(RuntimeError("client"), closed))}
    with pytest.raises(InfrastructureError, match="ValueError: half"):
        bench.close_models()
    assert len(closed) == 4


def test_a_session_brings_its_models_as_they_are_asked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = bench.plans
    assert bench.session().models == {}
    for plan in plans[:1]:
        bench.open_client(plan.model.entry)  # type: ignore[attr-defined]
    terms = bench.session().models["mine"]
    assert terms.knowledge == "params"
    assert (terms.sent["model"], terms.sent["api_base"]) == ("m-1", "http://127.0.0.1:1/v1")
    assert "prices" not in terms.sent
    bench.close_models()


def test_a_run_is_held_once_and_released(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "run_folder", tmp_path / "run")
    other = Bench(ROOT, bench.options, None, None)
    monkeypatch.setattr(other, "run_folder", tmp_path / "run")
    bench._hold()
    bench._hold()
    with pytest.raises(InputError, match="the only session"):
        other._hold()
    # A worker's session is its controller's.
    Bench(ROOT, bench.options, tmp_path / "run", None)._hold()
    bench.release()
    bench.release()
    other._hold()
    other.release()


def test_the_terminal_gets_its_own_file_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from ptxbench.plugin import progress

    class Line:
        def __init__(self, file: Any, text: Any) -> None:
            self.file = object()  # has no file of its own to give back

        def start(self) -> None: ...

        def close(self) -> None: ...

    monkeypatch.setattr(progress, "StatusLine", Line)
    monkeypatch.setattr(progress, "_is_terminal", lambda file: True)
    file = object()
    writer = SimpleNamespace(_file=file)
    plugins = SimpleNamespace(get_plugin=lambda name: SimpleNamespace(_tw=writer))
    option = SimpleNamespace(collectonly=False, capture="fd")
    board = progress.ProgressBoard(bench)
    board.pytest_runtestloop(SimpleNamespace(config=SimpleNamespace(pluginmanager=plugins, option=option)))  # type: ignore[arg-type]
    assert writer._file is not file
    board.pytest_sessionfinish()
    assert writer._file is file


@pytest.mark.parametrize(("level", "conditions"), [("memcheck", {}), ("full", {"safety": "full"})])
def test_what_is_looked_for_belongs_to_the_run_since_feedback_tells_it(
    level: str, conditions: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "models.yaml").write_text(MODELS)
    bench = Bench(ROOT, options(models=("mine",), models_file=tmp_path / "models.yaml", safety=level))
    for plan in bench.plans[:1]:
        bench.open_client(plan.model.entry)  # type: ignore[attr-defined]
    assert bench.session().models["mine"].conditions == conditions
    assert bench.evaluator._safety == level
    bench.close_models()
