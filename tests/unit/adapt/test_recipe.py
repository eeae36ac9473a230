"""Recipes: those of the package, the paper's seven, and what a user's file is refused for."""

from __future__ import annotations

import pytest

from ptxbench.adapt.recipe import find_recipe, recipe_names, series
from ptxbench.cases import load_suite
from ptxbench.errors import InputError
from ptxbench.records import Outcome
from tests.conftest import ROOT

OWN = """schema_version: 1
name: mine
kind: fixit
title: Mine
definitions: [gemm_n7168_k5120]
archs: [h100]
turns: 3
balance: none
"""
PUBLISHED = {
    "s0": ("8ops-extended-kernelgen", "other", 494),
    "s1": ("4ops", "other", 158),
    "s2": ("4ops-extended", "other", 259),
    "s3": ("8ops-extended", "other", 406),
    "s4": ("8ops-post-balanced", "other", 170),
    "s5": ("8ops-pre-balanced", "other", 258),
    "s6": ("8ops-pre-balanced", "self", 258),
}
"""Table 10 of the paper."""


def test_the_seven_are_those_of_the_paper():
    found = {name: (one.recipe, one.reasoning, one.published_records) for name, one in series().items()}
    assert found == PUBLISHED


def test_every_recipe_is_named_as_its_file_and_its_operators_exist():
    known = {case.definition.name for suite in ("primary", "generalization") for case in load_suite(ROOT, suite).table}
    for name in recipe_names():
        recipe = find_recipe(name).recipe
        assert recipe.name == name
        assert set(recipe.definitions) <= known
        assert len(recipe.definitions) == int(name[0])


def test_recipes_differ_in_coverage_extension_and_balance_alone():
    def facts(name):
        recipe = find_recipe(name).recipe
        return len(recipe.definitions), recipe.turns, recipe.balance, recipe.cap

    assert facts("4ops") == (4, 5, "none", None)
    assert facts("4ops-extended") == (4, 8, "none", None)
    assert facts("8ops-extended") == facts("8ops-extended-kernelgen") == (8, 8, "none", None)
    assert facts("8ops-pre-balanced") == (8, 5, "before_repair", 33)
    assert facts("8ops-post-balanced") == (8, 8, "after_repair", 33)
    assert len({find_recipe(name).recipe.outcomes for name in recipe_names()}) == 1


def test_a_recipe_by_the_name_of_an_adapter_says_who_reasons():
    assert find_recipe("s6").recipe == find_recipe("s5").recipe
    assert (find_recipe("s6").reasoning, find_recipe("s5").reasoning) == ("self", "other")
    assert find_recipe("8ops-pre-balanced").reasoning == "any"


def test_a_users_file(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(OWN)
    found = find_recipe(str(path))
    assert (found.asked, found.recipe.name, found.recipe.turns) == ("mine", "mine", 3), "whatever the file is called"
    assert Outcome.SCREENED not in found.recipe.outcomes


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cap: 3", "expected a cap where there is a balance"),
        ("outcomes: [screened]", "expected outcomes of compile_error"),
        ("surprise: 1", "surprise"),
    ],
)
def test_a_file_that_is_no_recipe(tmp_path, line, message):
    path = tmp_path / "own.yaml"
    path.write_text(f"{OWN}{line}\n")
    with pytest.raises(InputError, match=message):
        find_recipe(str(path))


def test_a_name_that_is_none():
    with pytest.raises(InputError, match=r"expected one of 4ops.*s6, or a file"):
        find_recipe("5ops")
