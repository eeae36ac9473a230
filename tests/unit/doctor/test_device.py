"""Checks of the GPU, on files and tools that say what they are told."""

from pathlib import Path

import pytest

from ptxbench.cases import load_arch
from ptxbench.doctor import device
from ptxbench.doctor.check import Check, Status
from tests.unit.factories import ROOT

ARCHS = [load_arch(ROOT, "h100"), load_arch(ROOT, "b200")]
NO_CAPABILITIES = "Name:\tpython\nCapEff:\t0000000000000000\n"
ALL_CAPABILITIES = "Name:\tpython\nCapEff:\t000001ffffffffff\n"


def smi(folder: Path, text: str, status: int = 0) -> str:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\nprintf '%s' '{text}'\nexit {status}\n")
    path.chmod(0o755)
    return str(path)


def test_a_known_device(tmp_path):
    check = device.check_gpu(ARCHS, smi(tmp_path, "NVIDIA H200, 9.0, 580.159.04\n"))
    assert check == Check(
        name="GPU", status=Status.OK, found="NVIDIA H200 (compute capability 9.0, h100, driver 580.159.04)"
    )


def test_a_device_that_no_architecture_covers(tmp_path):
    check = device.check_gpu(ARCHS, smi(tmp_path, "NVIDIA A100, 8.0, 580.1\n"))
    assert check.status is Status.GAP
    assert "no known architecture" in check.found
    mixed = device.check_gpu(ARCHS, smi(tmp_path, "NVIDIA A100, 8.0, 580.1\nNVIDIA B200, 10.0, 580.1\n"))
    assert mixed.status is Status.OK
    assert "b200" in mixed.found


@pytest.mark.parametrize(("text", "status"), [("", 0), ("No devices were found", 6)])
def test_no_device(tmp_path, text, status):
    check = device.check_gpu(ARCHS, smi(tmp_path, text, status))
    assert (check.status, check.found) == (Status.GAP, "nvidia-smi finds no device")
    assert "stored evidence" in check.cost
    assert check.remedy


def test_no_driver(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert device.check_gpu(ARCHS).found == "no nvidia-smi on PATH"


@pytest.mark.parametrize(
    ("parameters", "process", "status"),
    [
        ("EnableMSI: 1\nRmProfilingAdminOnly: 0\n", NO_CAPABILITIES, Status.OK),
        ("RmProfilingAdminOnly: 1\n", ALL_CAPABILITIES, Status.OK),
        ("RmProfilingAdminOnly: 1\n", NO_CAPABILITIES, Status.GAP),
        ("RmProfilingAdminOnly: 1\n", "Name: python\n", Status.UNKNOWN),
        ("EnableMSI: 1\n", ALL_CAPABILITIES, Status.UNKNOWN),
        (None, ALL_CAPABILITIES, Status.UNKNOWN),
    ],
)
def test_counter_permission(tmp_path, parameters, process, status):
    if parameters is not None:
        (tmp_path / "params").write_text(parameters)
    (tmp_path / "status").write_text(process)
    check = device.check_counter_permission(tmp_path / "params", tmp_path / "status")
    assert check.status is status
    assert bool(check.remedy) == bool(check.cost) == (status is not Status.OK)


@pytest.mark.parametrize(
    ("scope", "process", "status"),
    [
        (None, NO_CAPABILITIES, Status.OK),
        ("0\n", NO_CAPABILITIES, Status.OK),
        ("1\n", ALL_CAPABILITIES, Status.OK),
        ("1\n", NO_CAPABILITIES, Status.GAP),
        ("1\n", "Name: python\n", Status.GAP),
    ],
)
def test_debugger(tmp_path, monkeypatch, scope, process, status):
    tool = tmp_path / "cuda-gdb"
    tool.write_text("#!/bin/sh\necho 'NVIDIA (R) cuda-gdb 13.0'\necho 'GNU gdb (GDB) 14.2'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    if scope is not None:
        (tmp_path / "scope").write_text(scope)
    (tmp_path / "status").write_text(process)
    check = device.check_debugger(tmp_path / "scope", tmp_path / "status")
    assert (check.status, check.found.startswith("cuda-gdb 13.0")) == (status, True)
    assert bool(check.remedy) == bool(check.cost) == (status is not Status.OK)


def test_no_debugger(monkeypatch):
    monkeypatch.setattr(device, "find_tool", lambda name: None)
    check = device.check_debugger()
    assert (check.status, check.found) == (Status.GAP, "no cuda-gdb")
    assert "where it waits" in check.cost


def test_tools(tmp_path, monkeypatch):
    for name in ("ncu", "compute-sanitizer"):
        tool = tmp_path / name
        tool.write_text("#!/bin/sh\necho 'Version 2025.3.1.0 (build 1)'\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert device.check_ncu().found == "ncu 2025.3.1.0 (build 1)"
    assert device.check_sanitizer().found == "compute-sanitizer 2025.3.1.0 (build 1)"


def test_missing_tools_cost_something(monkeypatch):
    monkeypatch.setattr(device, "find_tool", lambda name: None)
    assert (device.check_ncu().status, device.check_ncu().found) == (Status.GAP, "no ncu")
    assert "memory safety is unknown" in device.check_sanitizer().cost


@pytest.mark.parametrize(
    ("version", "status"), [(None, Status.GAP), ("2.11.0+cpu", Status.GAP), ("2.11.0+cu130", Status.OK)]
)
def test_torch(monkeypatch, version, status):
    monkeypatch.setattr(device, "installed", lambda *names: version and f"torch {version}")
    assert device.check_torch().status is status


@pytest.mark.parametrize(("version", "status"), [(None, Status.GAP), ("13.4.0", Status.GAP), ("13.0.1", Status.OK)])
def test_cupti_must_match_the_cuda_libraries(monkeypatch, version, status):
    monkeypatch.setattr(device, "installed", lambda *names: version and f"cupti-python {version}")
    assert device.check_cupti().status is status


def test_each_baseline_says_what_it_is_for(monkeypatch):
    monkeypatch.setattr(device, "installed", lambda *names: "x 1" if "flashinfer-python" in names else None)
    cublas, cudnn, flashinfer = device.check_baselines()
    assert (cublas.status, cudnn.status, flashinfer.status) == (Status.GAP, Status.GAP, Status.OK)
    assert cublas.cost == "no speedup of GEMM workloads"
