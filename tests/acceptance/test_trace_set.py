"""Somebody else's collection through real pytest, on a machine without a GPU: compiled, screened, and unknown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ptxbench.trace import load_solution, load_traces, load_workloads
from tests.support.trace_sets import (
    OURS,
    RMSNORM,
    RMSNORM_DEFINITION,
    RMSNORM_WORKLOADS,
    SMALL,
    add_reference_solutions,
    blob,
    copy_small,
    edit_json,
    edit_line,
)

QUIET = ("-p", "no:cacheprovider", "--profiler", "replay")
CAPTURED, DRAWN = f"{RMSNORM}.d9a08d1f", f"{RMSNORM}.f5b14411"


def run(checkout: pytest.Pytester, collection: Path, *arguments: str) -> pytest.RunResult:
    return checkout.runpytest_subprocess("-m", "h100", f"--trace-set={collection}", *QUIET, *arguments)


def ptxbench(checkout: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return checkout.run("python", "-m", "ptxbench", *arguments)


def test_a_collection_is_compiled_screened_and_unknown(checkout, tmp_path):
    collection = copy_small(tmp_path)
    add_reference_solutions(collection)
    result = run(checkout, collection, "--model", "solutions", "--run=monday", "--ptx-json=report.json", "-rs")
    result.assert_outcomes(skipped=15, deselected=15)
    report = json.loads((checkout.path / "report.json").read_text())
    assert [cell["case"] for cell in report["cells"]] == sorted([*OURS, CAPTURED, DRAWN])
    for turn in report["turns"]:
        assert (turn["verdict"]["outcome"], turn["verdict"]["rule"]) == ("unknown", "evidence.none")
        assert turn["verdict"]["target_present"] is (turn["definition"] in OURS)
        assert turn["origin"].startswith("solution ")
    records = list((checkout.path / "generated" / "monday" / "turns").glob("*/turn0.json"))
    assert {json.loads(path.read_text())["build"]["status"] for path in records} == {"ok"}


def test_the_same_through_xdist(checkout):
    result = run(checkout, SMALL, "--model", "solutions", "--case", "rmsnorm*", "-n", "2")
    result.assert_outcomes(skipped=6)


def test_a_solution_that_uses_a_library_is_screened(checkout, tmp_path):
    collection = copy_small(tmp_path)

    def include_a_library(solution: dict[str, Any]) -> None:
        source = solution["sources"][0]
        source["content"] = "#include <cublas_v2.h>\n" + source["content"]

    edit_json(next(collection.rglob("rmsnorm_h2048_row_per_block.json")), include_a_library)
    result = run(checkout, collection, "--model", "solutions", "--case", CAPTURED)
    result.assert_outcomes(failed=3, deselected=3)
    result.stdout.fnmatch_lines(["*screen.library_header*"])


def test_what_cannot_be_run_is_said_and_the_rest_runs(checkout, tmp_path):
    collection = copy_small(tmp_path)
    add_reference_solutions(collection)
    edit_json(collection / RMSNORM_DEFINITION, lambda d: d["outputs"].update(scale={"shape": None, "dtype": "float32"}))
    result = run(checkout, collection, "--model", "solutions", "--dry-run")
    said = f"{RMSNORM} is left out: its output scale is a scalar, which no kernel can write"
    assert said in result.outlines
    assert "solutions on h100: 3 cases, 3 prompts (case x variant), 3 trajectories, at most 3 turns" in result.outlines
    result = run(checkout, collection, "--model", "solutions", "-k", "correct")
    result.assert_outcomes(skipped=3, deselected=15)
    assert said in result.outlines


def test_marks_and_globs_select_among_its_cases(checkout):
    def collected(*arguments: str) -> int:
        result = checkout.runpytest_subprocess("--collect-only", "-q", f"--trace-set={SMALL}", *QUIET, *arguments)
        assert result.ret == 0, result.stdout.str()
        return len([line for line in result.outlines if "::" in line])

    assert collected("-m", "h100") == 15
    assert collected("-m", "b200 and other") == 6
    assert collected("-m", "h100 and trace_set_small and attention") == 6
    assert collected("-m", "h100 or b200", "--case", CAPTURED) == 6


def test_an_architecture_must_be_named(checkout):
    for given in ((), ("-m", "attention")):
        result = checkout.runpytest_subprocess(f"--trace-set={SMALL}", *QUIET, *given)
        assert result.ret == pytest.ExitCode.INTERRUPTED
        errors = [line for line in result.outlines if "--trace-set: expected -m to name an architecture" in line]
        assert len(errors) == 1
        assert "(b200, h100)" in errors[0]


def test_a_suite_and_a_collection_exclude_each_other(checkout):
    result = run(checkout, SMALL, "--suite", "primary")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*expected --suite or --trace-set, found both*"])


def test_solutions_need_a_collection(checkout):
    result = checkout.runpytest_subprocess("-m", "h100", *QUIET, "--model", "solutions")
    result.stdout.fnmatch_lines(["*--model solutions: expected a collection*"])
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_a_run_goes_on_with_other_cases_and_refuses_another_content(checkout, tmp_path):
    collection = copy_small(tmp_path)
    add_reference_solutions(collection)
    common = ("--model", "solutions", "--run=resumed", "-k", "correct")
    assert run(checkout, collection, *common, "--case", CAPTURED).ret == 0
    assert run(checkout, collection, *common, "--case", OURS[0]).ret == 0
    # A collection that was moved is the same.
    (tmp_path / "moved").mkdir()
    moved = collection.rename(tmp_path / "moved" / collection.name)
    assert run(checkout, moved, *common, "--case", CAPTURED).ret == 0
    edit_line(moved / RMSNORM_WORKLOADS, lambda line: line["workload"]["axes"].update(batch_size=256))
    result = run(checkout, moved, *common, "--case", CAPTURED)
    result.stderr.fnmatch_lines(["*expected the suite 'trace-set-small/rmsnorm_h2048' as it was*"])


def test_a_run_is_judged_exported_and_imported(checkout, tmp_path):
    collection = copy_small(tmp_path)
    broken = {"path": "kernel.cu", "content": "this is not CUDA\n"}
    edit_json(next(collection.rglob("rmsnorm_h2048_row_per_block.json")), lambda s: s.update(sources=[broken]))
    run(checkout, collection, "--model", "solutions", "--run=mine", "--case", "rmsnorm*")
    needs = ptxbench(checkout, "judge", "mine")
    assert needs.ret == 2
    needs.stderr.fnmatch_lines(["*expected its folder, found none given; add --trace-set PATH*"])
    assert ptxbench(checkout, "judge", "mine", "--trace-set", str(collection)).ret == 0

    into = tmp_path / "exported"
    done = ptxbench(checkout, "export", "mine", "--into", str(into), "--trace-set", str(collection))
    done.stdout.fnmatch_lines(["*1 definitions, 2 workloads, 2 solutions, 2 traces"])
    (traces,) = (into / "traces").rglob("*.jsonl")
    assert [trace.evaluation.status for trace in load_traces(traces) if trace.evaluation] == ["COMPILE_ERROR"] * 2
    assert blob(into).read_bytes() == blob(collection).read_bytes()
    (lines,) = (into / "workloads").rglob("*.jsonl")
    assert load_workloads(lines) == load_workloads(collection / RMSNORM_WORKLOADS)
    assert {load_solution(path).author for path in (into / "solutions").rglob("*.json")} == {"solutions"}

    # It comes back as it was, and is a collection itself.
    assert ptxbench(checkout, "import", str(into), "--run", "back").ret == 0
    generated = checkout.path / "generated"
    again = ptxbench(checkout, "judge", "back", "--trace-set", str(collection))
    assert again.ret == 0
    files = [path for path in (generated / "mine" / "turns").rglob("*") if path.is_file()]
    assert len(files) == 4
    for path in files:
        assert (generated / "back" / path.relative_to(generated / "mine")).read_bytes() == path.read_bytes()
    result = run(checkout, into, "--model", "solutions", "-k", "correct")
    result.assert_outcomes(failed=4, deselected=20)


@pytest.mark.parametrize(
    ("break_it", "file", "field", "found"),
    [
        (lambda c: blob(c).unlink(), RMSNORM_WORKLOADS, "workload.inputs.weight.path", "no such file"),
        (
            lambda c: edit_line(
                c / RMSNORM_WORKLOADS, lambda line: line["workload"]["inputs"]["weight"].update(tensor_key="wieght")
            ),
            RMSNORM_WORKLOADS,
            "workload.inputs.weight.tensor_key",
            "'wieght'. Did you mean 'weight'",
        ),
        (
            lambda c: edit_json(c / RMSNORM_DEFINITION, lambda d: d["inputs"]["weight"].update(dtype="float16")),
            RMSNORM_WORKLOADS,
            "workload.inputs.weight.tensor_key",
            "BF16",
        ),
        (
            lambda c: edit_json(c / RMSNORM_DEFINITION, lambda d: d["axes"]["hidden_size"].update(value=4096)),
            RMSNORM_WORKLOADS,
            "workload.inputs.weight.tensor_key",
            "[2048]",
        ),
        (
            lambda c: edit_line(c / RMSNORM_WORKLOADS, lambda line: line["workload"]["axes"].update(batch_size=0)),
            RMSNORM_WORKLOADS,
            "workload.axes.batch_size",
            "0",
        ),
        (
            lambda c: edit_line(c / RMSNORM_WORKLOADS, lambda line: line["workload"]["axes"].update(batch_size=-4)),
            RMSNORM_WORKLOADS,
            "workload.axes.batch_size",
            "-4",
        ),
        (
            lambda c: edit_line(c / RMSNORM_WORKLOADS, lambda line: line["workload"]["axes"].clear()),
            RMSNORM_WORKLOADS,
            "workload.axes.batch_size",
            "none of that name",
        ),
        (
            lambda c: edit_json(c / RMSNORM_DEFINITION, lambda d: d["inputs"]["weight"].update(dtype="bf16")),
            RMSNORM_DEFINITION,
            "inputs.weight.dtype",
            "'bf16'",
        ),
        (
            lambda c: edit_line(
                c / RMSNORM_WORKLOADS,
                lambda line: line["workload"].update(uuid="d9a08d1f-69e1-57ab-8fb8-1c53fb864161"),
                line=2,
            ),
            RMSNORM_WORKLOADS,
            "workload.uuid",
            "again after line 1",
        ),
    ],
    ids=["blob", "key", "dtype", "shape", "zero", "negative", "missing", "unknown-dtype", "uuid"],
)
def test_bad_input_is_one_error_with_file_and_field(
    checkout: pytest.Pytester, tmp_path: Path, break_it: Callable[[Path], None], file: Path, field: str, found: str
) -> None:
    collection = copy_small(tmp_path)
    break_it(collection)
    result = run(checkout, collection, "--model", "solutions", "--collect-only", "-q")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    errors = [line for line in result.outlines if str(collection) in line]
    assert len(errors) == 1, result.stdout.str()
    assert errors[0].startswith(f"{collection / file}:")
    assert f"`{field}`: expected " in errors[0]
    assert found in errors[0].split("; found ")[1]
    assert "Traceback" not in result.stdout.str()


def test_a_definition_in_two_collections_is_one_error(checkout, tmp_path):
    other = copy_small(tmp_path)
    result = run(checkout, SMALL, f"--trace-set={other}", "--collect-only", "-q")
    errors = [line for line in result.outlines if "each definition once in all collections" in line]
    assert len(errors) == 1
    assert str(other) in errors[0]
    assert "`name`" in errors[0]
    assert str(SMALL) in errors[0]
    assert result.ret == pytest.ExitCode.INTERRUPTED
