"""What a run that is started again shows: this session's facts by today's rules, nothing else."""

import json

import pytest

from tests.acceptance.conftest import MONDAY

GEMM = "reference-gemm_n7168_k5120-h100-v0-t0"


def turn_file(checkout: pytest.Pytester, suffix: str = "json"):
    return checkout.path / "generated" / "monday" / "turns" / GEMM / f"turn0.{suffix}"


@pytest.mark.parametrize("field", ["candidate_sha256", "cubin_sha256"])
def test_stored_evidence_of_another_kernel_does_not_pass(monday, field):
    data = json.loads(turn_file(monday).read_text())
    data["evidence"][field] = "0" * 64
    turn_file(monday).write_text(json.dumps(data))
    # The evidence beside the kernel is whole, so the turn is judged anew; without it, it is unknown.
    monday.runpytest_subprocess(*MONDAY).assert_outcomes(passed=15, deselected=15)
    turn_file(monday).write_text(json.dumps(data))
    for path in (monday.path / "generated" / "reference").rglob("*.evidence.json"):
        path.unlink()
    result = monday.runpytest_subprocess(*MONDAY, "--case", "gemm*")
    result.assert_outcomes(skipped=3, deselected=3)
    result.stdout.fnmatch_lines(["*unknown*evidence.*"])


def test_a_stored_verdict_is_judged_again(monday):
    data = json.loads(turn_file(monday).read_text())
    wanted = data["verdict"]
    turn_file(monday).write_text(json.dumps(data | {"verdict": wanted | {"outcome": "timeout", "speedup": None}}))
    monday.runpytest_subprocess(*MONDAY).assert_outcomes(passed=15, deselected=15)
    assert json.loads(turn_file(monday).read_text())["verdict"] == wanted


def test_an_error_of_this_session_does_not_show_an_earlier_record(monday, monkeypatch):
    kernel = monday.path / "generated" / "reference" / "h100" / "gemm_n7168_k5120" / "kernel.cu"
    kernel.write_text(kernel.read_text() + "// edited\n")
    (monday.path / "no-folder").write_text("")
    monkeypatch.setenv("PTXBENCH_CACHE", str(monday.path / "no-folder"))
    result = monday.runpytest_subprocess(*MONDAY, "--case", "gemm*", "--ptx-json=report.json")
    result.assert_outcomes(errors=3, deselected=3)
    turns = json.loads((monday.path / "report.json").read_text())["turns"]
    assert not any(turn["verdict"]["outcome"] == "correct" for turn in turns)


def test_a_run_outside_the_checkout_is_resumed_as_the_summary_says(judged, tmp_path_factory):
    folder = tmp_path_factory.mktemp("elsewhere") / "run"
    command = (*MONDAY[:-1], "--case", "gemm*", f"--run={folder}")
    first = judged.runpytest_subprocess(*command)
    first.assert_outcomes(passed=3, deselected=3)
    first.stdout.fnmatch_lines([f"Run: {folder} (--run={folder} resumes it)"])
    judged.runpytest_subprocess(*command).assert_outcomes(passed=3, deselected=3)


def test_a_floor_of_an_unknown_definition_is_a_mistake(judged):
    floors = judged.path / "generated" / "reference" / "h100" / "reference.yaml"
    floors.write_text(floors.read_text().replace("gemm_n7168_k5120", "gemm_typo"))
    result = judged.runpytest_subprocess(*MONDAY, "--case", "gemm*")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*reference.yaml*gemm_typo*"])
