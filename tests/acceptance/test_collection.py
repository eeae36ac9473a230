"""Which items real pytest collects, how fast, and that other projects notice nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

FULL = ("--turns", "8", "--variants", "all", "--trajectories", "4")


def collect(checkout: pytest.Pytester, *arguments: str) -> list[str]:
    """Ids of the collected items."""
    result = checkout.runpytest_subprocess("--collect-only", "-q", "-p", "no:cacheprovider", *arguments)
    assert result.ret == 0, result.stderr.str()
    return [line for line in result.outlines if "::" in line]


def test_the_reference_on_hopper_is_five_turns_in_three_checks(checkout):
    ids = collect(checkout, "-m", "h100")
    assert len(ids) == 15
    assert ids[0] == "ptx_tests/test_turns.py::test_correct[reference-gemm_n7168_k5120-h100-v0-t0-turn0]"
    assert {line.split("[")[0].split("::")[1] for line in ids} == {
        "test_correct",
        "test_target_instruction",
        "test_speedup",
    }
    assert list((checkout.path / "generated").iterdir()) == []


def test_marks_select(checkout):
    assert len(collect(checkout)) == 30
    assert len(collect(checkout, "-m", "b200 and attention")) == 12
    assert len(collect(checkout, "-m", "gemm and primary and not b200")) == 3
    assert len(collect(checkout, "--case", "mha_bwd*", "-m", "h100")) == 6


def test_every_suite_at_once(checkout):
    ids = collect(checkout, "--suite", "all", "-m", "h100", "-k", "test_correct")
    assert len(ids) == 16
    assert ids[0].endswith("[reference-gemm_n7168_k5120-h100-v0-t0-turn0]")
    assert ids[-1].endswith("[reference-gqa_paged_decode_h24_kv8_d128_ps1-h100-v0-t0-turn0]")
    assert len(collect(checkout, "--suite", "all", "-m", "h100 and generalization", "-k", "test_correct")) == 11
    assert len(collect(checkout, "--suite", "generalization", "-m", "gemm or b200")) == 33


def test_several_models_and_an_explicit_number_of_turns(checkout):
    checkout.makefile(".cu", mine="")
    ids = collect(
        checkout,
        "-m",
        "h100 and gemm",
        "--model",
        "reference",
        "--model",
        "file:mine.cu",
        "--turns",
        "2",
        "-k",
        "correct",
    )
    assert [line.split("[")[1] for line in ids] == [
        f"{model}-gemm_n7168_k5120-h100-v0-t0-turn{turn}]" for model in ("reference", "file.mine") for turn in (0, 1)
    ]


SPY = """
import json, sys
import pytest

class Spy:
    def pytest_collection_finish(self, session):
        loaded = [name for name in ("torch", "litellm", "openai", "httpx", "cuda", "cupti") if name in sys.modules]
        with open("spy.json", "w") as file:
            json.dump({"items": len(session.items), "loaded": loaded}, file)

sys.exit(pytest.main(sys.argv[1:], plugins=[Spy()]))
"""


def run_python(folder: Path, program: str, *arguments: str) -> str:
    """Standard output of a program in a fresh, clean process."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "plugins")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_1440_items_import_nothing_heavy(checkout):
    arguments = ("--collect-only", "-qq", "-p", "no:cacheprovider", "-m", "h100", *FULL)
    run_python(checkout.path, SPY, *arguments)
    spied = json.loads((checkout.path / "spy.json").read_text())
    assert spied["items"] == 1440
    assert spied["loaded"] == []


def test_marks_are_registered(checkout):
    lines = checkout.runpytest_subprocess("--markers", "-p", "no:cacheprovider").stdout.str()
    for name in ("h100", "b200", "gemm", "attention", "primary"):
        assert f"@pytest.mark.{name}: turns o" in lines


def test_another_project_notices_nothing(pytester, monkeypatch):
    """With the plugin installed: same option names, fixture names and distribution as if it were not there."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "plugins"))
    pytester.makeconftest(
        """
        import pytest

        def pytest_addoption(parser):
            parser.addoption("--model", default="theirs")
            parser.addoption("--run", action="store_true")

        @pytest.fixture
        def turn(request):
            return request.config.getoption("--model")
        """
    )
    pytester.makepyfile(
        """
        import sys

        def test_theirs(turn, request):
            assert turn == "theirs"
            assert "h100" not in str(request.config.getini("markers"))
            assert "ptxbench.agent" not in sys.modules
            assert "pydantic" not in sys.modules
        """
    )
    plugin = ("-p", "ptxbench.plugin.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:benchmark")
    alone = pytester.runpytest_subprocess(*plugin, "--strict-markers")
    alone.assert_outcomes(passed=1)
    assert "PTXBench" not in alone.stdout.str()
    spread = pytester.runpytest_subprocess(*plugin, "-n", "1", "-v")
    spread.assert_outcomes(passed=1)
    assert "scheduling tests via LoadScheduling" in spread.stdout.str()
    unknown = pytester.runpytest_subprocess(*plugin, "--variants", "all")
    assert unknown.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--turns", "0"), "*--turns: expected a whole number from 1 to 1000, found '0'"),
        (("--trajectories", "many"), "*--trajectories: expected a whole number from 1 to 1000, found 'many'"),
        (("--min-speedup", "-1"), "*--min-speedup: expected a number above 0, found '-1'"),
        (("--profiler", "cloud"), "*--profiler: invalid choice: 'cloud'*"),
    ],
)
def test_an_option_out_of_range_is_a_usage_error(checkout, arguments, message):
    result = checkout.runpytest_subprocess(*arguments, "-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "gpt-9"), "--model gpt-9: unknown model; expected one of: reference *; file:PATH *; replay:RUN *"),
        (("--model", "file:absent.cu"), "--model file:absent.cu: no such file*"),
        (("--model", "replay:never"), "*never: expected a run folder, found no run.json in it*"),
        (("--suite", "secondary"), "unknown suite: expected one of generalization, primary, all; found 'secondary'*"),
        (("--case", "conv*"), "unknown case: expected a name or glob that matches one of gemm_n7168_k5120, *'conv?'*"),
        (("--variants", "warp"), "--variants warp: expected a number, all, or names of none, *; found 'warp'"),
    ],
)
def test_an_unknown_name_is_one_clear_error(checkout, arguments, message):
    result = checkout.runpytest_subprocess(*arguments, "-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*plugins/ptxbench/*.py:*")


def test_a_broken_suite_names_file_line_field_expected_and_found(checkout):
    (checkout.path / "cases").unlink()
    suites = checkout.path / "cases" / "suites"
    suites.mkdir(parents=True)
    for name in ("definitions", "workloads"):
        (checkout.path / "cases" / name).symlink_to(ROOT / "cases" / name)
    text = (ROOT / "cases" / "suites" / "primary.yaml").read_text()
    (suites / "primary.yaml").write_text(text.replace("tolerance: {atol: 0.01", "tolerance: {atol: loose", 1))
    line = 1 + text[: text.index("tolerance:")].count("\n")
    result = checkout.runpytest_subprocess("-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([f"*primary.yaml:{line}: `cases?0?.tolerance.atol`: expected *number*found 'loose'*"])


def test_a_suite_with_an_unknown_arch(checkout):
    (checkout.path / "knowledge_packs").unlink()
    (checkout.path / "knowledge_packs").mkdir()
    (checkout.path / "knowledge_packs" / "h100").symlink_to(ROOT / "knowledge_packs" / "h100")
    result = checkout.runpytest_subprocess("-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["*primary.yaml:*archs*: expected an arch under knowledge_packs: h100; found 'b200'*"])


def test_a_run_folder_that_cannot_be_written_is_one_usage_error(checkout):
    Path(checkout.path, "file").write_text("")
    result = checkout.runpytest_subprocess("-p", "no:cacheprovider", "-m", "h100", "--run", "./file/run")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --run *file/run: expected a folder that can be written, found: *"])
    spread = checkout.runpytest_subprocess("-p", "no:cacheprovider", "-m", "h100", "--run", "./file/run", "-n", "2")
    assert spread.ret == pytest.ExitCode.USAGE_ERROR
    spread.stderr.fnmatch_lines(["ERROR: --run *file/run: expected a folder that can be written*"])


def test_a_reserved_run_name_is_refused(checkout):
    result = checkout.runpytest_subprocess("-p", "no:cacheprovider", "-m", "h100", "--run", "reference")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --run 'reference': expected a name of a run or a path*"])
