"""Bindings without a device: FlashInfer's calls as they are made, and a library that is not there."""

from __future__ import annotations

import importlib.metadata
import sys
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from ptxbench.cases import load_suite
from ptxbench.errors import InfrastructureError
from ptxbench.profiler.baselines import BINDINGS, PLANNED, bind, library_version
from ptxbench.profiler.exact import ORACLES
from ptxbench.profiler.flashinfer_calls import WORKSPACE_BYTES
from ptxbench.profiler.inputs import InputSource
from tests.support.small_cases import ROOT, small_case

GQA = {
    "BatchPrefillWithRaggedKVCacheWrapper": "gqa_ragged_prefill_causal_h32_kv4_d128",
    "BatchPrefillWithPagedKVCacheWrapper": "gqa_paged_prefill_causal_h24_kv8_d128_ps1",
    "BatchDecodeWithPagedKVCacheWrapper": "gqa_paged_decode_h24_kv8_d128_ps1",
}


class Recorded:
    """A wrapper of FlashInfer's that notes what it is asked."""

    _backend = "fa3"
    made: list[Recorded] = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.arguments, self.settings = arguments, settings
        self.plans: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.runs: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        Recorded.made.append(self)

    def plan(self, *arguments: Any, **settings: Any) -> None:
        self.plans.append((arguments, settings))

    def run(self, *arguments: Any, **settings: Any) -> None:
        self.runs.append((arguments, settings))


@pytest.fixture
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("flashinfer")
    for name in GQA:
        setattr(module, name, type(name, (Recorded,), {}))
    monkeypatch.setitem(sys.modules, "flashinfer", module)
    monkeypatch.setattr(Recorded, "made", [])
    return module


def arguments_of(name: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    case = small_case(name)
    source = InputSource(case)
    tensors = source.make(source.keep(), "cpu")
    dtypes = case.dtypes()
    outputs = {
        output: torch.empty(shape, dtype=getattr(torch, dtypes[output]))
        for output, shape in case.output_shapes().items()
    }
    return tensors | outputs, dict(case.scalars())


def test_every_call_of_the_suites_has_a_binding_and_an_oracle() -> None:
    calls = {case.baseline.call for case in load_suite(ROOT, "all").table}
    assert calls == set(BINDINGS) == set(ORACLES)
    assert set(GQA) == PLANNED


@pytest.mark.parametrize("call", GQA)
def test_flashinfer_is_planned_apart_from_the_call(call: str, flashinfer: ModuleType) -> None:
    tensors, scalars = arguments_of(GQA[call])
    bound = bind(call, tensors, causal="Decode" not in call, scalars=scalars)
    (wrapper,) = Recorded.made
    workspace, layout = wrapper.arguments
    assert (type(wrapper).__name__, workspace.nbytes, layout) == (call, WORKSPACE_BYTES, "NHD")
    assert wrapper.plans == wrapper.runs == []
    assert bound.plan is not None
    detail = bound.plan()
    assert call in detail
    assert "fa3" in detail
    ((planned, settings),) = wrapper.plans
    paged = "Paged" in call
    heads = (24, 8, 128) if paged else (32, 4, 128)
    offsets = [tensors[name] for name in ("qo_indptr", "kv_indptr") if name in tensors]
    assert all(found is wanted for found, wanted in zip(planned, offsets, strict=False))
    if paged:
        assert planned[len(offsets)] is tensors["kv_indices"], "by reference: the next call reads other pages there"
        assert planned[len(offsets) + 1].tolist() == [1] * (tensors["kv_indptr"].numel() - 1)
        assert planned[len(offsets) + 2 :] == (*heads, 1)
    else:
        assert planned[len(offsets) :] == heads
    assert settings["sm_scale"] == scalars["sm_scale"]
    assert settings["q_data_type"] is settings["kv_data_type"] is torch.bfloat16
    assert settings.get("causal", False) == ("Prefill" in call)
    bound.call()
    bound.publish()
    ((run, options),) = wrapper.runs
    assert run[0] is tensors["q"]
    caches = run[1] if paged else run[1:]
    wanted = ("k_cache", "v_cache") if paged else ("k", "v")
    assert all(found is tensors[name] for found, name in zip(caches, wanted, strict=True))
    assert options["out"] is tensors["output"]
    assert options["lse"] is tensors["lse"]
    assert options["return_lse"] is True
    assert len(wrapper.plans) == 1


@pytest.mark.parametrize("call", GQA)
def test_a_missing_library_is_named_and_nothing_takes_its_place(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    tensors, scalars = arguments_of(GQA[call])
    with pytest.raises(
        InfrastructureError, match=rf"the library flashinfer, whose {call} .*flashinfer-python"
    ) as caught:
        bind(call, tensors, causal=True, scalars=scalars)
    assert caught.value.kind == "baseline_unavailable"


def test_an_unknown_call_lists_the_known_ones() -> None:
    with pytest.raises(InfrastructureError, match=r"found 'cublasGemm'") as caught:
        bind("cublasGemm", {}, causal=False)
    assert caught.value.kind == "baseline_unavailable"


def test_versions_are_of_the_package_that_holds_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package == "flashinfer-python":
            return "0.6.14"
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert library_version("flashinfer") == "0.6.14"
    assert library_version("cublas").startswith("of CUDA")
    assert library_version("somewhere") == "missing"
