"""What ``--profiler ray...`` may say."""

import argparse

import pytest

from ptxbench.arguments import profiler
from ptxbench.errors import InputError
from ptxbench.profiler import open_profiler
from ptxbench.profiler.ray.address import Address, parse


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("ray", Address()),
        ("ray://head:10001", Address("ray://head:10001")),
        ("ray?profiler=replay", Address(None, "replay")),
        ("ray://head:10001?profiler=replay&pace=0.5", Address("ray://head:10001", "replay", 0.5)),
    ],
)
def test_forms(text, address):
    assert profiler(text) == text
    assert parse(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "ray://",
        "ray://head",
        "ray://:10001",
        "ray://head:port",
        "ray://head:99999",
        "ray://head:10001/x",
        "ray?profiler=http",
        "ray?devices=2",
        "ray?pace=1",
        "ray?profiler=replay&pace=-1",
        "ray?profiler=replay&pace=nan",
        "ray?profiler=replay&pace=x",
    ],
)
def test_what_it_may_not_say_is_refused_before_anything_is_connected(text, tmp_path):
    with pytest.raises(InputError, match=r"--profiler.*expected"):
        open_profiler(text, root=tmp_path, evidence_roots=())


@pytest.mark.parametrize("text", ["rays", "ray:/x", "rayon://x"])
def test_other_names_are_none(text, tmp_path):
    with pytest.raises(argparse.ArgumentTypeError):
        profiler(text)
    with pytest.raises(InputError):
        open_profiler(text, root=tmp_path, evidence_roots=())
