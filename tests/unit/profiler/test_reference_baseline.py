"""The reference as a baseline, on the CPU."""

from __future__ import annotations

import importlib.metadata

import pytest

from ptxbench.cases import Case
from ptxbench.cases.trace_sets import load_collections
from ptxbench.errors import InfrastructureError
from ptxbench.profiler.baselines import library_version
from ptxbench.profiler.inputs import InputSource
from ptxbench.profiler.reference import compile_reference
from ptxbench.profiler.reference_baseline import bind_reference, is_reference, reference_job
from ptxbench.profiler.state import reference_outputs
from tests.support.trace_sets import ROOT, SMALL
from tests.unit.factories import suite_case

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def case() -> Case:
    return load_collections(ROOT, [SMALL], ["rmsnorm*"]).suite.cases("h100")[0]


def test_a_library_needs_no_reference(case: Case) -> None:
    assert reference_job(suite_case()) == {}
    assert not is_reference(suite_case())
    assert is_reference(case)


def test_the_job_is_the_whole_case_and_the_call_its_reference(case: Case) -> None:
    source = InputSource(case)
    inputs = source.make(source.keep(), "cpu")
    output = torch.full((512, 2048), torch.nan, dtype=torch.bfloat16)
    bound = bind_reference(reference_job(case), {**inputs, "output": output})
    bound.call()
    # Nothing but the publication writes to the outputs: it is not timed.
    assert bool(output.isnan().all())
    bound.publish()
    assert torch.equal(output, reference_outputs(case, compile_reference(case), inputs)["output"])
    # New data at the same addresses.
    inputs["hidden_states"].mul_(2).add_(1)
    bound.call()
    bound.publish()
    assert torch.equal(output, reference_outputs(case, compile_reference(case), inputs)["output"])


def test_several_results_are_published_in_order() -> None:
    case = suite_case("mha_with_lse_d128").shrunk()
    baseline = load_collections(ROOT, [SMALL], ["rmsnorm*"]).suite.table[0].baseline
    case = case.model_copy(update={"baseline": baseline})
    tensors = {
        name: torch.randn(shape or ()).to(getattr(torch, case.dtypes()[name]))
        for name, shape in (*case.input_shapes().items(), *case.output_shapes().items())
    }
    before = {name: tensors[name].clone() for name in case.output_shapes()}
    bound = bind_reference(reference_job(case), tensors)
    bound.call()
    bound.publish()
    inputs = {name: tensors[name] for name in case.input_shapes()}
    for name, value in reference_outputs(case, compile_reference(case), inputs).items():
        assert torch.equal(tensors[name], value)
        assert not torch.equal(tensors[name], before[name])


def test_a_reference_that_does_not_load(case: Case) -> None:
    definition = case.definition.model_copy(update={"reference": "import nowhere\ndef run(*a): ..."})
    with pytest.raises(InfrastructureError, match="does not load"):
        bind_reference(reference_job(case.model_copy(update={"definition": definition})), {})


def test_its_version_is_torchs(case: Case) -> None:
    assert library_version(case.baseline.library) == importlib.metadata.version("torch")
