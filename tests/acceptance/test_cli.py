"""The ``ptxbench`` command, as users start it."""

import json
import subprocess
import sys
import tempfile

import pytest

from ptxbench import __version__
from ptxbench.records import Candidate


def ptxbench(checkout: pytest.Pytester, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ptxbench", *arguments],
        cwd=checkout.path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def record_of(checkout: pytest.Pytester):
    return checkout.path / "generated" / "monday" / "turns" / "reference-gemm_n7168_k5120-h100-v0-t0" / "turn0.json"


def test_version_and_help(checkout):
    assert ptxbench(checkout, "--version").stdout == f"ptxbench {__version__}\n"
    done = ptxbench(checkout)
    assert done.returncode == 0
    assert "judge" in done.stdout
    assert "doctor" in done.stdout


def test_its_module_is_the_command_too(checkout):
    for module in ("ptxbench", "ptxbench.cli"):
        done = checkout.run(sys.executable, "-m", module, "export", "no-such-run", "--into", "out")
        assert done.ret == 2
        done.stderr.fnmatch_lines(["ptxbench export: *no-such-run*"])


@pytest.mark.parametrize("name", ["monday", "generated/monday", "./generated/monday/"])
def test_judging_a_run_again_changes_nothing(monday, name):
    before = record_of(monday).read_bytes()
    done = ptxbench(monday, "judge", name)
    assert done.returncode == 0, done.stderr
    assert "reference on h100" in done.stdout
    assert done.stdout.endswith("5 turns judged again, 0 verdicts changed\n")
    assert record_of(monday).read_bytes() == before


def test_a_verdict_that_changed_is_shown_and_is_the_exit_status(monday):
    data = json.loads(record_of(monday).read_text())
    data["verdict"] |= {"outcome": "timeout", "rule": "run.timeout", "speedup": 3.0}
    record_of(monday).write_text(json.dumps(data))
    for name in ("monday", str(record_of(monday).relative_to(monday.path))):
        done = ptxbench(monday, "judge", name)
        assert done.returncode == 1
        assert "changed: reference-gemm_n7168_k5120-h100-v0-t0-turn0\n" in done.stdout
        assert "  outcome: timeout -> correct\n" in done.stdout
        assert "  speedup: 3.0 -> 0.925\n" in done.stdout
        assert "1 verdicts changed" in done.stdout


def test_a_single_turn_is_judged_by_itself(monday):
    """Turns before it were not named: they are no turns that were not correct."""
    first = record_of(monday)
    data = json.loads(first.read_text())
    data["key"]["turn"] = 3
    (later := first.with_name("turn3.json")).write_text(json.dumps(data))
    first.with_suffix(".cu").rename(later.with_suffix(".cu"))
    first.unlink()
    done = ptxbench(monday, "judge", str(later))
    assert done.returncode == 0, done.stderr
    gemm = [line.split() for line in done.stdout.splitlines() if line.startswith("gemm_n7168_k5120 ")]
    assert gemm[0][1:5] == ["?", "100.0", "?", "100.0"], done.stdout
    assert gemm[-1][-3:] == ["1", "-", "-"], done.stdout


def measured(monday):
    """Make the run's GEMM turn one that was measured; returns the folder of its committed kernel."""
    data = json.loads(record_of(monday).read_text())
    record_of(monday).write_text(json.dumps(data | {"evidence_origin": "measured"}))
    return monday.path / "generated" / "reference" / "h100" / "gemm_n7168_k5120"


def test_evidence_is_kept_beside_the_kernel_that_was_measured(monday):
    folder = measured(monday)
    (folder / "kernel.evidence.json").unlink(missing_ok=True)
    done = ptxbench(monday, "evidence", "monday", "--into", "generated/reference")
    assert done.returncode == 0, done.stderr
    kept = json.loads((folder / "kernel.evidence.json").read_text())
    assert kept == json.loads(record_of(monday).read_text())["evidence"]
    assert done.stdout.count("nothing written: it was not measured in this run") == 4


def test_evidence_of_another_source_is_not_kept(monday):
    folder = measured(monday)
    (folder / "kernel.cu").write_text("// edited\n")
    before = sorted(path.name for path in folder.iterdir())
    done = ptxbench(monday, "evidence", "monday", "--into", "generated/reference")
    assert done.returncode == 1
    assert "is not the source that was measured" in done.stdout
    assert sorted(path.name for path in folder.iterdir()) == before
    assert ptxbench(monday, "evidence", "monday", "--into", "nowhere").returncode == 2


def test_evidence_of_a_source_with_other_newlines_is_kept(monday):
    folder = measured(monday)
    (folder / "kernel.evidence.json").unlink(missing_ok=True)
    source = (folder / "kernel.cu").read_text().replace("\n", "\r\n").encode()
    record = record_of(monday)
    data = json.loads(record.read_text())
    sha256 = Candidate(source=source.decode()).sha256
    data["source_sha256"] = data["build"]["candidate_sha256"] = data["evidence"]["candidate_sha256"] = sha256
    record.write_text(json.dumps(data))
    record.with_suffix(".cu").write_bytes(source)
    (folder / "kernel.cu").write_bytes(source)
    done = ptxbench(monday, "evidence", "monday", "--into", "generated/reference")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "kernel.evidence.json").is_file()


def test_evidence_beside_a_source_that_is_no_text_is_not_kept(monday):
    (measured(monday) / "kernel.cu").write_bytes(b"// \xff\n")
    done = ptxbench(monday, "evidence", "monday", "--into", "generated/reference")
    assert done.returncode == 1
    assert "kernel.cu cannot be read: expected UTF-8 text, found byte 3 that is not" in done.stdout
    assert done.stderr == ""


def test_damaged_turns_are_named(monday):
    record_of(monday).write_text("{")
    path = record_of(monday)
    done = ptxbench(monday, "judge", "monday")
    assert done.returncode == 1
    assert f"\ndamaged: {path}: not a whole record" in done.stdout
    assert done.stdout.endswith("4 turns judged again, 0 verdicts changed, 1 damaged\n")
    assert "Infrastructure: 1 turn could not be judged and left out of N." in done.stdout
    done = ptxbench(monday, "evidence", "monday", "--into", "generated/reference")
    assert done.returncode == 1
    assert f"{path}: nothing written: it is damaged: not a whole record" in done.stdout
    for other in path.parents[1].glob("*/turn0.json"):
        other.write_text("{")
    done = ptxbench(monday, "judge", "monday")
    assert done.returncode == 1
    assert done.stdout.count("damaged: ") == 5
    assert done.stderr == ""


@pytest.mark.parametrize("place", ["/tmp", "."])
def test_a_record_outside_its_run_is_refused(monday, place):
    data = json.loads(record_of(monday).read_text()) | {"source_sha256": None, "build": None}
    with tempfile.NamedTemporaryFile("w", dir=monday.path / place, suffix=".json") as file:
        json.dump(data, file)
        file.flush()
        done = ptxbench(monday, "judge", file.name)
    assert done.returncode == 2
    assert "expected a turn inside its run folder (turns/<trajectory>/turnN.json)" in done.stderr
    assert done.stderr.count("\n") == 1


def test_judging_needs_no_compiler(monday, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert ptxbench(monday, "judge", "monday").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("never",), "expected a run folder, found no run.json in it"),
        (("generated/monday/run.json",), "expected the record of a turn, found: not a whole record"),
        (("monday", "tuesday"), "expected a run folder, found no run.json in it"),
    ],
)
def test_what_cannot_be_judged_is_one_clear_line(monday, arguments, message):
    done = ptxbench(monday, "judge", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("ptxbench judge: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_run_of_cases_that_are_gone(monday):
    path = record_of(monday)
    data = json.loads(path.read_text())
    folder = path.parent.with_name(path.parent.name.replace(data["key"]["case"], "conv"))
    path.parent.rename(folder)
    data["key"]["case"] = "conv"
    (folder / path.name).write_text(json.dumps(data))
    done = ptxbench(monday, "judge", "monday")
    assert done.returncode == 2
    assert "expected the case conv on h100 in the suites primary of this checkout, found none" in done.stderr


def test_outside_a_checkout(pytester, monkeypatch, checkout):
    elsewhere = pytester.mkdir("elsewhere")
    for name in ("cases", "knowledge_packs"):
        (pytester.path / name).unlink()
    done = subprocess.run(
        [sys.executable, "-m", "ptxbench", "doctor"], cwd=elsewhere, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("ptxbench doctor: expected a PTXBench checkout")


def test_the_doctor_says_what_each_gap_costs_and_how_to_close_it(checkout, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    done = ptxbench(checkout, "doctor")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("ok       Python ") for line in lines)
    assert any(line.startswith("ok       CUDA compiler ") for line in lines)
    assert any(line.startswith("ok       model keys ") and "OPENAI_API_KEY" in line for line in lines)
    assert "secret" not in done.stdout
    open_ones = sum(line.startswith(("gap ", "unknown ")) for line in lines)
    assert sum(line.strip().startswith("cost: ") for line in lines) == open_ones
    assert sum(line.strip().startswith("to close: ") for line in lines) == open_ones
    assert str(checkout.path / "generated") in done.stdout


def test_the_doctor_as_json(checkout, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    done = ptxbench(checkout, "doctor", "--json")
    assert done.returncode == 0, done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert checks["host compiler"]["status"] == "gap"
    assert checks["GPU"]["status"] == "gap"
    assert {check["status"] for check in checks.values()} <= {"ok", "gap", "unknown"}
    assert list(checks) == [
        *("Python", "host compiler", "CUDA compiler", "disassembler", "TVM-FFI", "build cache", "GPU"),
        *("counter permission", "Nsight Compute", "compute-sanitizer", "cuda-gdb", "CUPTI", "torch"),
        *("baseline cuBLAS", "baseline cuDNN", "baseline FlashInfer", "containment", "model keys", "run folder"),
    ]


def test_the_doctor_imports_nothing_heavy(checkout):
    program = (
        "import sys; from ptxbench.cli import main; main(['doctor'])\n"
        "assert not {'torch', 'litellm', 'cuda', 'cupti'} & sys.modules.keys()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=checkout.path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
