from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.errors import InputError
from ptxbench.trace import Definition, Solution, Trace
from ptxbench.trace.faults import FileError, describe, did_you_mean, field_name, known_keys


def test_a_message_says_everything():
    error = FileError(Path("a.yaml"), 3, "x.y", "a number", "'z'", "mend it.")
    assert str(error) == "a.yaml:3: `x.y`: expected a number; found 'z'. To do: mend it."
    assert isinstance(error, InputError)


def test_without_line_and_field():
    assert (
        str(FileError(Path("a"), None, "", "text", "none", "mend it."))
        == "a: expected text; found none. To do: mend it."
    )


@pytest.mark.parametrize(
    ("loc", "name"), [((), ""), (("a",), "a"), (("a", 2, "b"), "a[2].b"), ((0, "a"), "[0].a"), (("", "a"), ".a")]
)
def test_field_name(loc, name):
    assert field_name(loc) == name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1, "1"),
        ("x", "'x'"),
        ([1, 2], "a list of 2"),
        ({"k": 1}, "an object with the keys k"),
    ],
)
def test_describe(value, text):
    assert describe(value) == text


def test_describe_is_short():
    assert len(describe("x" * 1000)) == 80
    assert len(describe({str(n): n for n in range(1000)})) <= 120


def test_did_you_mean():
    assert did_you_mean("gem", ("gemm", "attention")) == " Did you mean 'gemm'?"
    assert did_you_mean("zzz", ("gemm",)) == ""


@pytest.mark.parametrize(
    ("model", "loc", "first"),
    [
        (Definition, (), "name"),
        (Definition, ("axes", "M", "var"), "type"),
        (Definition, ("axes", "M", "const"), "type"),
        (Definition, ("inputs", "X"), "shape"),
        (Solution, ("sources", 0), "path"),
        (Trace, ("evaluation", "performance", "profile", 0), "name"),
        (Trace, ("workload", "inputs", "X", "safetensors"), "type"),
    ],
)
def test_known_keys_finds_the_model(model, loc, first):
    assert known_keys(model, loc)[0] == first


def test_known_keys_tells_union_members_apart():
    assert "value" in known_keys(Definition, ("axes", "M", "const"))
    assert "value" not in known_keys(Definition, ("axes", "M", "var"))
