from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.trace import load_definition
from ptxbench.trace.document import json_lines, parse_json, read_json
from ptxbench.trace.faults import FileError

FILE = Path("f.json")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=15,
)


def locations(value: object, loc: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    children: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    return {loc}.union(*(locations(child, (*loc, step)) for step, child in children))


@given(JSON, st.sampled_from([None, 0, 2]), st.booleans())
def test_every_location_has_its_line(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    lines = json_lines(FILE, text)
    assert set(lines) == locations(value)
    shown = text.split("\n")
    for loc, line in lines.items():
        if loc and isinstance(loc[-1], str):
            assert json.dumps(loc[-1], ensure_ascii=ascii_only) in shown[line - 1]


@given(JSON)
def test_parses_what_json_parses(value):
    assert parse_json(FILE, json.dumps(value)) == value


@given(st.text(max_size=30))
def test_any_text_is_parsed_or_refused_with_a_line(text):
    line: int | None = 1
    try:
        parse_json(FILE, text)
    except FileError as error:
        line = error.line
    assert line is not None
    assert 1 <= line <= text.count("\n") + 1


@pytest.mark.parametrize(
    ("text", "line", "field", "found"),
    [
        ('{"a": 1,\n "b": {"c": 1,\n  "c": 2}}', 3, "b.c", "'c' again after line 2"),
        ('{"a": [1,\n NaN]}', 2, "a[1]", "bare NaN"),
        ('{"a":\n -Infinity}', 2, "a", "bare -Infinity"),
        ("{\n", 2, "", "Expecting property name"),
        ("", 1, "", "Expecting value"),
        ("{} x", 1, "", "Extra data"),
    ],
)
def test_refuses(text, line, field, found):
    with pytest.raises(FileError) as caught:
        parse_json(FILE, text)
    assert (caught.value.line, caught.value.field) == (line, field)
    assert found in caught.value.found


@pytest.mark.parametrize("depth", [150, 400, 900, 100_000])
def test_deep_nesting_is_refused_and_not_a_crash(tmp_path, depth):
    path = tmp_path / "deep.json"
    path.write_text("[" * depth + "]" * depth)
    with pytest.raises(FileError):
        load_definition(path)


def test_an_integer_of_too_many_digits_is_refused_with_its_line():
    with pytest.raises(FileError, match=r"f.json:2: expected a JSON document; found an integer of too many digits"):
        parse_json(FILE, '{"a": 1,\n "b": ' + "9" * 5000 + "}")


def test_a_lone_surrogate_is_refused(tmp_path):
    path = tmp_path / "d.json"
    path.write_text('{"name": "\\ud800"}')
    with pytest.raises(FileError, match="text that JSON can carry"):
        load_definition(path)


def test_an_error_takes_the_line_of_the_nearest_key(tmp_path):
    path = tmp_path / "d.json"
    path.write_text('{\n "a": {\n  "b": 1}}')
    document = read_json(path)
    assert document.error(("a", "b"), "x", "y").line == 3
    assert document.error(("a", "c"), "x", "y").line == 2
    assert document.error(("c",), "x", "y").line == 1
