import argparse
from pathlib import Path

import pytest

from ptxbench.adapt.teacher import engaged, find_teacher, held, total
from ptxbench.adapt.teacher_options import add_teacher_options, limits_of
from ptxbench.agent.budget import Limits, Spent
from ptxbench.errors import InputError


def test_a_teacher_is_a_language_model(tmp_path: Path):
    assert find_teacher("claude", None, Limits()).name == "claude"
    for spec in ("reference", "file:x.cu", "replay:run"):
        with pytest.raises(InputError, match="expected a language model, found sources that exist already"):
            find_teacher(spec, None, Limits())
    with pytest.raises(InputError, match="expected prices of the teacher, found none of exchange_"):
        find_teacher(f"exchange:{tmp_path}", None, Limits(usd=1.0))


def test_the_budget_is_what_earlier_sessions_left(tmp_path: Path):
    entry = find_teacher(f"exchange:{tmp_path / 'box'}", None, Limits())
    with engaged(entry, tmp_path, Limits(tokens=100), Spent(0.0, 60)) as teacher:
        assert teacher.budget.exhausted() == ""
        teacher.budget.add(Spent(0.0, 40))
        assert teacher.budget.exhausted().startswith("--budget-tokens is reached")


def test_two_sessions_do_not_share_a_folder(tmp_path: Path):
    with held(tmp_path), pytest.raises(InputError, match="wait for its end"), held(tmp_path):
        pass
    with held(tmp_path):
        pass


def test_sums():
    assert total([Spent(1.0, 2), Spent(0.5, 3)]) == Spent(1.5, 5)


def test_options():
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_teacher_options(parser)
    found = parser.parse_args(["--teacher=x", "--budget-usd=1.5", "--budget-tokens=7"])
    assert limits_of(found) == Limits(1.5, 7)
    for wrong in ("--budget-usd=0", "--budget-usd=nan", "--budget-tokens=0", "--concurrency=1.5"):
        with pytest.raises(argparse.ArgumentError):
            parser.parse_args(["--teacher=x", wrong])
