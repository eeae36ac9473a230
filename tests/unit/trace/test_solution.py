from __future__ import annotations

import pytest

from ptxbench.trace import FileError, load_solution
from tests.unit.trace import samples


def test_loads(tmp_path):
    solution = load_solution(samples.write_json(tmp_path / "s.json", samples.solution()))
    assert solution.spec.destination_passing_style is True
    assert solution.spec.binding is None
    assert (solution.spec.entry_file, solution.spec.entry_symbol) == ("src/kernel.cu", "run")
    assert solution.entry_source.content == "// empty\n"


@pytest.mark.parametrize(
    ("steps", "value", "field", "expected"),
    [
        (["spec", "entry_point"], "kernel.cu", "spec.entry_point", "FILE::SYMBOL"),
        (["spec", "entry_point"], "a::b::c", "spec.entry_point", "FILE::SYMBOL"),
        (["spec", "entry_point"], "src/kernel.cu:: ", "spec.entry_point", "FILE::SYMBOL"),
        (["spec", "entry_point"], "other.cu::run", "spec.entry_point", "src/kernel.cu"),
        (["spec", "language"], "fortran", "spec.language", "'cuda'"),
        (["spec", "target_hardware"], [], "spec.target_hardware", "at least 1 item"),
        (["spec", "binding"], "pybind", "spec.binding", "'tvm-ffi' or 'torch'"),
        (["spec", "build_commands"], [], "spec.build_commands", "one of the keys language"),
        (["sources"], [], "sources", "at least 1 item"),
        (["sources", 0, "path"], "../kernel.cu", "sources[0].path", "a relative path"),
        (["sources", 0, "path"], "/kernel.cu", "sources[0].path", "a relative path"),
        (["sources", 0, "content"], "", "sources[0].content", "a non-empty string"),
        (["author"], " ", "author", "a non-empty string"),
    ],
)
def test_refuses(tmp_path, steps, value, field, expected):
    path = samples.write_json(tmp_path / "s.json", samples.change(samples.solution(), *steps, to=value))
    with pytest.raises(FileError) as caught:
        load_solution(path)
    assert caught.value.field == field
    assert expected in caught.value.expected


def test_two_spellings_of_one_path_are_one_path(tmp_path):
    data = samples.solution()
    data["sources"].append({"path": "./src/kernel.cu", "content": "x"})
    with pytest.raises(FileError, match=r"sources\[1\].path.*each path once"):
        load_solution(samples.write_json(tmp_path / "s.json", data))


def test_python_sources_must_parse(tmp_path):
    data = samples.solution()
    data["sources"].append({"path": "main.py", "content": "def f(:"})
    with pytest.raises(FileError, match=r"sources\[1\].content.*Python source"):
        load_solution(samples.write_json(tmp_path / "s.json", data))
