from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from ptxbench.records.base import Real
from ptxbench.trace.base import FileName, RelativePath, Text, TraceModel


@pytest.mark.parametrize("path", ["a.cu", "src/kernel.cu", "./blob/x.safetensors", "a..b/c", "..."])
def test_relative_path_accepts_paths_below_the_root(path):
    assert TypeAdapter(RelativePath).validate_python(path) == path


@pytest.mark.parametrize(
    "path",
    ["", " ", ".", "/etc/passwd", "..", "../x", "a/../../x", "a\\b", "C:x", "C:/x", "//host/x", "a/", "a\nb", "a\0b"],
)
def test_relative_path_refuses_what_may_leave_the_root(path):
    with pytest.raises(ValidationError):
        TypeAdapter(RelativePath).validate_python(path)


@given(st.text(max_size=20))
def test_relative_path_never_leaves_the_root(tmp_path_factory, path):
    root = tmp_path_factory.getbasetemp().resolve()
    try:
        accepted = TypeAdapter(RelativePath).validate_python(path)
    except ValidationError:
        return
    assert (root / accepted).resolve().is_relative_to(root)


@pytest.mark.parametrize("name", ["gemm_n7168_k5120", "a.b-c+d", "with space"])
def test_file_name_accepts(name):
    assert TypeAdapter(FileName).validate_python(name) == name


@pytest.mark.parametrize("name", ["", "  ", ".", "..", "a/b", "a\\b", "C:", "a*", "a?", "a\tb"])
def test_file_name_refuses(name):
    with pytest.raises(ValidationError):
        TypeAdapter(FileName).validate_python(name)


def test_text_refuses_white_space():
    with pytest.raises(ValidationError, match="non-empty"):
        TypeAdapter(Text).validate_python(" \n")


class _Numbers(TraceModel):
    value: Real


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1.5, 0.0])
def test_real_survives_json(value):
    assert _Numbers.model_validate_json(_Numbers(value=value).model_dump_json()).value == value


def test_nan_survives_json_as_a_string():
    text = _Numbers(value=math.nan).model_dump_json()
    assert text == '{"value":"NaN"}'
    assert math.isnan(_Numbers.model_validate_json(text).value)


def test_real_takes_no_other_string():
    with pytest.raises(ValidationError):
        _Numbers.model_validate_json('{"value":"1.0"}')
