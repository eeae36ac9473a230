"""Which items there are."""

from pathlib import Path

import pytest

from ptxbench.cases import load_suite, select_cases
from ptxbench.errors import InputError
from ptxbench.plugin.items import expect_arch, mark_name, marks, plan_trajectories
from ptxbench.plugin.options import Options
from tests.unit.agent.parts import ScriptedModel
from tests.unit.factories import ROOT

CASES = select_cases(load_suite(ROOT, "primary"), archs=["h100"])


def options(**changes) -> Options:
    values = {
        "models": ("reference",),
        "suite": "primary",
        "case": None,
        "turns": None,
        "trajectories": 1,
        "variants": "1",
        "profiler": "auto",
        "run": None,
        "ptx_json": None,
        "min_speedup": None,
        "concurrency": 4,
    }
    return Options(**{**values, **changes})


def model(turns: int | None = 1) -> ScriptedModel:
    made = ScriptedModel(["x"])
    made.turns = turns
    return made


@pytest.mark.parametrize(
    ("natural", "asked", "expected"), [(1, None, 1), (3, None, 3), (None, None, 8), (20, None, 8), (1, 8, 8), (8, 2, 2)]
)
def test_a_model_gets_its_natural_turns_unless_asked_otherwise(natural, asked, expected):
    plans = plan_trajectories(options(turns=asked), CASES, [model(natural)])
    assert {plan.turns for plan in plans} == {expected}
    assert len(plans) == len(CASES)


def test_the_full_protocol_of_a_cell_is_96_turns():
    plans = plan_trajectories(options(turns=8, trajectories=4, variants="all"), CASES[:1], [model(None)])
    assert sum(plan.turns for plan in plans) == 96
    assert len({plan.id for plan in plans}) == 12
    assert [plan.variant_name for plan in plans[::4]] == list(CASES[0].variants)


def test_variants_by_number_and_name():
    assert {plan.variant for plan in plan_trajectories(options(variants="2"), CASES, [model()])} == {0, 1}
    named = plan_trajectories(options(variants="none, warp-specialization"), CASES, [model()])
    assert {(plan.case.op, plan.variant) for plan in named} == {("gemm", 0), ("gemm", 2), ("attention", 0)}


@pytest.mark.parametrize("text", ["0", "4", "99"])
def test_a_number_of_variants_that_no_case_has(text):
    with pytest.raises(InputError, match=rf"--variants {text}: expected 1 to 3, .*found {text}"):
        plan_trajectories(options(variants=text), CASES, [model()])


@pytest.mark.parametrize("text", ["none,warp", "-1", "", "ALL", "1.5"])
def test_an_unknown_variant_lists_the_known_ones(text):
    with pytest.raises(InputError, match=r"expected a number, all, or names of none, cluster-multicast, .*; found '"):
        plan_trajectories(options(variants=text), CASES, [model()])


def test_marks_come_from_the_data_files():
    assert {name for name, _ in marks(ROOT)} >= {"h100", "b200", "gemm", "attention", "primary"}
    assert mark_name("gqa-decode") == "gqa_decode"


def test_marks_of_another_checkout(tmp_path: Path):
    (tmp_path / "knowledge_packs" / "r100").mkdir(parents=True)
    (tmp_path / "knowledge_packs" / "r100" / "arch.yaml").write_text("")
    (tmp_path / "cases" / "suites").mkdir(parents=True)
    (tmp_path / "cases" / "suites" / "my-own.yaml").write_text("")
    assert {name for name, _ in marks(tmp_path)} == {"r100", "gemm", "attention", "other", "my_own"}


@pytest.mark.parametrize("expression", ["h100", "h100 and gemm", "not b200", "(b200 or h100) and not attention"])
def test_an_architecture_that_is_named(expression: str) -> None:
    expect_arch(expression, ("b200", "h100"))


@pytest.mark.parametrize("expression", ["", "gemm", "h1000", "xh100"])
def test_an_architecture_that_is_not(expression: str) -> None:
    with pytest.raises(InputError, match=r"expected -m to name an architecture \(b200, h100\)"):
        expect_arch(expression, ("b200", "h100"))


def test_collections_have_a_mark(tmp_path: Path) -> None:
    (tmp_path / "cases" / "suites").mkdir(parents=True)
    found = dict(marks(tmp_path, [tmp_path / "my.Set"]))
    assert "trace_set_my_set" in found
    assert not any(name.startswith("trace_set") for name, _ in marks(tmp_path))
