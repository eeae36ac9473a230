from __future__ import annotations

import json
from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.cases.yaml_file import read_yaml
from ptxbench.errors import InputError
from ptxbench.trace.faults import FileError


def read(tmp_path, text: str) -> object:
    path = tmp_path / "f.yaml"
    path.write_text(text, encoding="utf-8")
    return read_yaml(path).data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("a: [1, 2.5, 1.0e-2, -3, true, false, null, ~, ]", {"a": [1, 2.5, 0.01, -3, True, False, None, None]}),
        ("a:", {"a": None}),
        ("a: {b: x}", {"a": {"b": "x"}}),
        ("a: '1'\nb: \"true\"", {"a": "1", "b": "true"}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("a: no\nb: on\nyes: 1", {"a": "no", "b": "on", "yes": 1}),
        (
            "a: 2026-01-01\nb: 1:30\nc: 0x10\nd: 010\ne: 1_000",
            {"a": "2026-01-01", "b": "1:30", "c": "0x10", "d": "010", "e": "1_000"},
        ),
        ("1: a\nnull: b", {"1": "a", "null": "b"}),
        ("a: 2*M*N # comment", {"a": "2*M*N"}),
        ("", None),
    ],
)
def test_reads(tmp_path, text, value):
    assert read(tmp_path, text) == value


@pytest.mark.parametrize(
    ("text", "line", "field", "found"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", 4, "b.c", "'c' again after line 3"),
        ("x:\n- a: 1\n  a: 2\n", 3, "x[0].a", "'a' again after line 2"),
        ("a: &x 1\n", 1, "a", "an anchor or alias"),
        ("a: 1\nb: *x\n", 2, "b", "an anchor or alias"),
        ("&k a: 1\n", 1, "", "an anchor or alias"),
        ("a: !!str 1\n", 1, "a", "the tag tag:yaml.org,2002:str"),
        ("a: !!python/object:os.system x\n", 1, "a", "the tag"),
        ("a: 1\n---\nb: 2\n", 2, "", "a second document"),
        ("? [x]\n: 1\n", 1, "", "a mapping or list"),
        ("a: [1\nb: 2\n", 2, "", "did not find expected"),
        ("a:\n\tb: 1\n", 2, "", "cannot start any token"),
    ],
)
def test_refuses(tmp_path, text, line, field, found):
    with pytest.raises(FileError) as caught:
        read(tmp_path, text)
    assert (caught.value.line, caught.value.field) == (line, field)
    assert found in caught.value.found


def test_a_control_character_is_refused(tmp_path):
    with pytest.raises(FileError, match="a YAML document"):
        read(tmp_path, "a: \x07")


@pytest.mark.parametrize("depth", [52, 900, 5000])
def test_deep_nesting_is_refused_and_not_a_crash(tmp_path, depth):
    with pytest.raises(FileError, match="nesting"):
        read(tmp_path, "[" * depth + "]" * depth)


def test_shallow_nesting_is_read(tmp_path):
    assert read(tmp_path, "[" * 50 + "]" * 50)


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="expected a readable file"):
        read_yaml(tmp_path / "none.yaml")


TEXT = st.text(st.characters(max_codepoint=0xD7FF), max_size=6)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(PLAIN)
def test_agrees_with_json(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "json.yaml"
    path.write_text(json.dumps(value), encoding="utf-8")
    assert read_yaml(path).data == value


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.text("xyz 0.:-#'", max_size=5), max_size=3)))
def test_reads_back_what_yaml_writes(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(yaml.safe_dump(value, default_style='"'), encoding="utf-8")
    text = path.read_text(encoding="utf-8").replace("!!null ", "").replace("!!int ", "")
    path.write_text(text, encoding="utf-8")
    assert read_yaml(path).data == value


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(text.encode("utf-8", "replace"))
    with suppress(FileError):
        read_yaml(path)
