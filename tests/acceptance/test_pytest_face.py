"""The benchmark through real pytest and the real compiler; evidence is made up, no GPU is needed."""

import json
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.acceptance.parts import BROKEN, SOURCE

REPLAY = ("-p", "no:cacheprovider", "--profiler", "replay")
GEMM = "h100 and gemm"


def run(checkout: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return checkout.runpytest_subprocess(*REPLAY, *arguments)


def test_the_reference_is_compiled_and_judged_by_stored_evidence(judged):
    result = run(judged, "-m", "h100", "--run", "first", "--ptx-json", "report.json", "--junitxml", "junit.xml")
    assert result.ret == 0
    result.assert_outcomes(passed=15, deselected=15)
    result.stdout.fnmatch_lines(
        [
            "reference on h100",
            "*correct %*target %*best speedup*",
            "gemm_n7168_k5120 *100.0*0.925*",
            "mha_bwd_d128_causal *100.0*0.925*",
            "Evidence: 5 turns re-judged from stored evidence (device: NVIDIA H200;*",
            "Report: report.json",
            "Run: generated/first (--run=first resumes it)",
        ]
    )
    report = json.loads((judged.path / "report.json").read_text())
    assert [row["verdict"]["outcome"] for row in report["turns"]] == ["correct"] * 5
    assert {row["min_speedup"] for row in report["turns"]} == {0.6, 0.3, 0.15}
    assert {cell["case"]: cell["limits"][0]["correct"]["turns"] for cell in report["cells"]} == dict.fromkeys(
        (row["definition"] for row in report["turns"]), 1
    )
    turn = judged.path / "generated" / "first" / "turns" / "reference-gemm_n7168_k5120-h100-v0-t0"
    assert (turn / "turn0.cu").read_text() == SOURCE
    assert json.loads((turn / "turn0.json").read_text())["evidence_origin"] == "replayed"


def test_every_junit_test_case_has_its_verdict(judged):
    told = run(judged, "-m", GEMM, "--safety", "full", "--junitxml", "junit.xml")
    told.assert_outcomes(passed=3, deselected=27)
    # Stored evidence has the checks of its day, and says which.
    told.stdout.fnmatch_lines(["Safety (turns): guards, memcheck 1 clean; initcheck, synccheck, racecheck 1 not*"])
    cases = ElementTree.parse(judged.path / "junit.xml").getroot().findall(".//testcase")
    assert len(cases) == 3
    for case in cases:
        properties = {item.get("name"): item.get("value") for item in case.findall("./properties/property")}
        assert properties["ptxbench.outcome"] == "correct"
        assert properties["ptxbench.target"] == "executed"
        assert (properties["ptxbench.safe"], properties["ptxbench.safe.racecheck"]) == ("yes", "not_run")
        assert float(properties["ptxbench.speedup"] or "nan") == pytest.approx(0.925)


def test_the_default_run_is_a_fresh_folder(judged):
    run(judged, "-m", GEMM)
    run(judged, "-m", GEMM)
    runs = [entry for entry in (judged.path / "generated").iterdir() if entry.name != "reference"]
    assert len(runs) == 2
    assert all(entry.name.startswith("run-2") and (entry / "run.json").is_file() for entry in runs)


def test_an_edited_kernel_is_unknown_never_a_pass(judged):
    kernel = judged.path / "generated" / "reference" / "h100" / "gemm_n7168_k5120" / "kernel.cu"
    kernel.write_text(SOURCE.replace("128>>>", "64>>>"))
    result = run(judged, "-m", GEMM, "-rs")
    assert result.ret == 0
    result.assert_outcomes(skipped=3, deselected=27)
    result.stdout.fnmatch_lines(["SKIPPED*unknown: *no stored evidence has its hashes*evidence.none*", "* ? *"])


def test_evidence_of_other_device_code_is_not_used(judged):
    (path,) = (judged.path / "generated" / "reference" / "h100" / "gemm_n7168_k5120").glob("*.json")
    evidence = json.loads(path.read_text())
    path.write_text(json.dumps({**evidence, "cubin_sha256": "0" * 64}))
    run(judged, "-m", GEMM).assert_outcomes(skipped=3, deselected=27)


def test_broken_evidence_is_an_error_that_names_the_file(judged):
    (path,) = (judged.path / "generated" / "reference" / "h100" / "gemm_n7168_k5120").glob("*.json")
    path.write_text(path.read_text()[:200])
    result = run(judged, "-m", GEMM)
    result.assert_outcomes(errors=3, deselected=27)
    result.stdout.fnmatch_lines(["*gemm_n7168_k5120/h200.evidence.json: *not an evidence record*"])
    for noise in ("*Traceback*", "*pydantic*", "*InputError*", "*another exception*", "*direct cause*"):
        result.stdout.no_fnmatch_line(noise)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (BROKEN % "at all", "*compile_error ?compile.error?: the compiler reported: kernel.cu(1): error: *"),
        ("#include <cublas_v2.h>\n" + SOURCE, "*screened ?screen.*?: *cublas_v2.h*"),
    ],
)
def test_a_models_fault_fails_all_checks_without_a_traceback(judged, source, message):
    (judged.path / "mine.cu").write_text(source)
    result = run(judged, "-m", GEMM, "--model", "file:mine.cu")
    assert result.ret == 1
    result.assert_outcomes(failed=3, deselected=27)
    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*plugins/ptxbench*")
    result.stdout.no_fnmatch_line("*Traceback*")


def test_the_floor_is_the_option_then_the_models_own_then_one(judged):
    (judged.path / "mine.cu").write_text(SOURCE)
    for arguments, failed in (
        ((), 0),
        (("--min-speedup", "0.95"), 1),
        (("--model", "file:mine.cu"), 1),
        (("--model", "file:mine.cu", "--min-speedup", "0.9"), 0),
    ):
        result = run(judged, "-m", GEMM, *arguments)
        result.assert_outcomes(passed=3 - failed, failed=failed, deselected=27)
        if failed:
            result.stdout.fnmatch_lines(["*speedup 0.925 is not above *"])


def test_turns_that_never_happen_are_skipped_with_the_reason(judged):
    result = run(judged, "-m", GEMM, "--turns", "3", "-rs")
    result.assert_outcomes(passed=3, skipped=6, deselected=81)
    result.stdout.fnmatch_lines(["skipped 6: the model has no further turn*", "SKIPPED*the model has no further turn*"])


def test_an_arch_without_a_reference_is_skipped_with_the_reason(judged):
    result = run(judged, "-m", "b200 and gemm", "-rs")
    result.assert_outcomes(skipped=3, deselected=27)
    result.stdout.fnmatch_lines(["SKIPPED*there is no reference solution of gemm_n7168_k5120 for b200*"])


def test_an_address_of_a_cluster_that_is_none_is_an_error_of_usage(judged):
    result = run(judged, "-m", GEMM, "--profiler", "ray://head?profiler=x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --profiler: expected ray*, found 'ray://head?profiler=x'"])


def test_local_without_a_device_is_an_error_not_a_failure(judged, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    result = run(judged, "-m", GEMM, "--profiler", "local", "--junitxml", "junit.xml")
    assert result.ret == 1
    result.assert_outcomes(errors=3, deselected=27)
    result.stdout.fnmatch_lines(["*infrastructure fault no_device: --profiler local: expected a CUDA device*"])
    suite = ElementTree.parse(judged.path / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("errors"), suite.get("failures")) == ("3", "0")


def tools(checkout: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *hidden: str) -> None:
    """Leave nothing on PATH but the host compiler, and hide the pip wheels' tools behind ones that do not work."""
    folder = checkout.mkdir("bin")
    for name in ("g++", "as", "ld", "sh"):
        found = next(path for path in map(Path, os.environ["PATH"].split(os.pathsep)) if (path / name).exists())
        (folder / name).symlink_to(found / name)
    for name in hidden:
        tool = checkout.path / "shadow" / "nvidia" / "cu13" / "bin" / name
        tool.parent.mkdir(parents=True, exist_ok=True)
        tool.write_text("#!/bin/sh\nexit 3\n")
        tool.chmod(0o755)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(checkout.path / "shadow"), os.environ["PYTHONPATH"]]))


def test_no_nvcc_is_an_error_that_says_how_to_get_one(judged, monkeypatch):
    tools(judged, monkeypatch, "nvcc")
    result = run(judged, "-m", GEMM)
    result.assert_outcomes(errors=3, deselected=27)
    result.stdout.fnmatch_lines(["*infrastructure fault compiler_missing: expected an nvcc*pip install*"])
    result.stdout.fnmatch_lines(["gemm_n7168_k5120 *", "Infrastructure: 1 turn could not be judged*"])


def test_no_disassembler_leaves_the_target_unknown(judged, monkeypatch):
    tools(judged, monkeypatch, "nvdisasm")
    result = run(judged, "-m", GEMM, "-rs")
    assert result.ret == 0
    result.assert_outcomes(passed=2, skipped=1, deselected=27)
    result.stdout.fnmatch_lines(["SKIPPED*unknown: *target.not_inspected*"])


SCRIPTED = """
import pytest
from ptxbench.agent import Profilers
from tests.acceptance.parts import ScriptedProfiler

@pytest.fixture(scope="session")
def profiler(bench):
    profilers = Profilers(bench.options.profiler, lambda name: ScriptedProfiler({script!r}))
    yield profilers
    profilers.close()
"""


def scripted(checkout: pytest.Pytester, script: str, *arguments: str) -> pytest.RunResult:
    """The benchmark with a profiler that behaves as a GPU machine in that situation does."""
    tests = checkout.path / "ptx_tests"
    source = (tests / "test_turns.py").read_text()
    tests.unlink()
    tests.mkdir()
    (tests / "test_turns.py").write_text(source)
    (tests / "conftest.py").write_text(SCRIPTED.format(script=script))
    return run(checkout, "-m", GEMM, "--profiler", "local", *arguments)


def test_the_wrong_gpu_for_the_mark_is_skipped_with_the_reason(judged):
    result = scripted(judged, "b200", "-rs")
    assert result.ret == 0
    result.assert_outcomes(skipped=3, deselected=27)
    result.stdout.fnmatch_lines(["SKIPPED*wrong GPU for h100: expected compute capability 9.0, found * with 10.0*"])


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("out_of_device_memory", "*infrastructure fault out_of_device_memory: *"),
        ("reference_failed", "*infrastructure fault reference_failed: *"),
    ],
)
def test_a_fault_of_the_machinery_is_an_error(judged, script, message):
    result = scripted(judged, script, "--run", "faulty")
    result.assert_outcomes(errors=3, deselected=27)
    result.stdout.fnmatch_lines([message])
    for noise in ("*Traceback*", "*InfrastructureError*", "*another exception*"):
        result.stdout.no_fnmatch_line(noise)
    folder = judged.path / "generated" / "faulty"
    assert not (folder / "turns").exists()
    assert json.loads(next((folder / "faults").iterdir()).read_text())["fault"]["kind"] == script


def test_no_counter_permission_leaves_the_target_unknown(judged):
    result = scripted(judged, "no_permission", "-rs")
    result.assert_outcomes(passed=2, skipped=1, deselected=27)
    result.stdout.fnmatch_lines(["SKIPPED*unknown: *ERR_NVGPUCTRPERM*"])


def test_a_report_that_cannot_be_written_is_said_and_fails_the_session(judged):
    judged.makepyfile(
        test_own="""
        def test_in_the_way(turn, bench):
            bench.options.ptx_json.mkdir()
        """
    )
    result = run(judged, "-m", GEMM, "--ptx-json", "report.json", "test_own.py")
    result.assert_outcomes(passed=1, deselected=9)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["--ptx-json report.json: expected a file that the report can be written to*"])


def test_a_defect_in_the_report_hides_nothing_that_pytest_tells(judged):
    judged.makepyfile(
        test_own="""
        import ptxbench.report

        def test_defect(turn):
            def write_report(*_):
                raise ArithmeticError("a negative amount of work")

            ptxbench.report.write_report = write_report
            assert turn is None
        """
    )
    result = run(judged, "-m", GEMM, "--ptx-json", "report.json", "test_own.py")
    result.assert_outcomes(failed=1, deselected=9)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines(
        ["*= FAILURES =*", "--ptx-json report.json: not written, by a defect of PTXBench: ArithmeticError: a negative*"]
    )


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("file/report.json", "file is not a folder"),
        ("folder", "it is a folder"),
        ("", "it is a folder"),
        ("absent/report.json", "there is no folder absent"),
        ("/proc/report.json", "no file can be made in /proc: *"),
    ],
)
def test_a_report_that_will_not_be_written_ends_the_session_at_once(judged, path, found):
    (judged.path / "file").write_text("")
    (judged.path / "folder").mkdir()
    result = run(judged, "-m", GEMM, f"--ptx-json={path}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    message = f"ERROR: --ptx-json {path or '.'}: expected a file that the report can be written to, found: {found}; *"
    result.stderr.fnmatch_lines([message])
    result.stderr.no_fnmatch_line("*Traceback*")
    assert [entry.name for entry in (judged.path / "generated").iterdir()] == ["reference"]


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
@pytest.mark.parametrize("name", ["", "reference", "generated/reference"])
def test_a_run_that_has_no_usable_name_ends_the_session_at_once(judged, name, workers):
    result = run(judged, "-m", GEMM, f"--run={name}", *workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --run '{name}': expected a name of a run or a path; this one is reserved*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert [entry.name for entry in (judged.path / "generated").iterdir()] == ["reference"]


@pytest.mark.parametrize("option", ["--turns", "--trajectories"])
@pytest.mark.parametrize("value", ["0", "1001", "9" * 5000, "two"])
def test_counts_have_bounds(judged, option, value):
    result = run(judged, "--collect-only", option, value)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*argument {option}: expected a whole number from 1 to 1000, found '{value[:20]}*"])


def test_replaying_a_run_evaluates_its_sources_anew(judged):
    run(judged, "-m", GEMM, "--run", "first")
    result = run(judged, "-m", GEMM, "--model", "replay:first", "--run", "second", "--min-speedup", "0.9")
    result.assert_outcomes(passed=3, deselected=27)
    result.stdout.fnmatch_lines(["replay.first on h100"])
    folder = judged.path / "generated" / "second" / "turns" / "replay.first-gemm_n7168_k5120-h100-v0-t0"
    assert (folder / "turn0.cu").read_text() == SOURCE


def test_a_test_of_ones_own_can_ask_for_turns(judged):
    judged.makepyfile(
        test_own="""
        def test_small(turn, run, speedup_floor):
            assert turn.build.cubins[0].size_bytes < 100_000
            assert run.turn_path(turn.key).exists()
            assert speedup_floor == 0.6
        """
    )
    run(judged, "-m", GEMM, "test_own.py").assert_outcomes(passed=1, deselected=9)


def test_nothing_heavy_is_imported_by_a_whole_replay(judged):
    judged.makepyfile(
        test_own="""
        import sys

        def test_light(turn):
            assert not {"torch", "litellm", "cuda", "cupti"} & sys.modules.keys()
        """
    )
    run(judged, "-m", "h100", "test_own.py").assert_outcomes(passed=5, deselected=5)
