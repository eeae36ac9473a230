import json

import pytest

from ptxbench.cases import load_suite
from ptxbench.client import cuda_solution
from ptxbench.client.shapes import Submission
from ptxbench.errors import InputError
from ptxbench.profiler.wire import case_digest
from ptxbench.service.catalog import Catalog, UnknownDefinitionError
from tests.conftest import ROOT
from tests.unit.factories import suite_case

GEMM = "gemm_n7168_k5120"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog(load_suite(ROOT, "primary").table)


def submission(definition: str = GEMM, hardware: str = "cuda", **changes: object) -> Submission:
    solution = cuda_solution(definition, "x").model_dump(mode="json")
    solution["spec"]["target_hardware"] = [hardware]
    return Submission.model_validate_json(json.dumps({"solution": solution, **changes}))


@pytest.mark.parametrize(
    ("hardware", "arch", "device", "expected"),
    [
        ("cuda", None, None, "h100"),
        ("cuda", None, "b200", "b200"),
        ("NVIDIA_B200", None, "h100", "b200"),
        ("nvidia h100 sxm", None, "b200", "h100"),
        ("NVIDIA_B200", "h100", None, "h100"),
    ],
)
def test_architecture_is_the_asked_one_the_named_one_or_the_devices(catalog, hardware, arch, device, expected) -> None:
    (case,) = catalog.select(submission(hardware=hardware, arch=arch), device)
    assert case.arch.name == expected


def test_unknown_things_are_named(catalog) -> None:
    with pytest.raises(UnknownDefinitionError, match="Definition not found: nothing"):
        catalog.select(submission("nothing"))
    with pytest.raises(InputError, match="Workload not found: u1 of gemm"):
        catalog.select(submission(workload_uuids=["u1"]))
    with pytest.raises(InputError, match=r"expected workload_uuids out of 9492.*; found"):
        catalog.select(submission(workload_uuids=[]))
    with pytest.raises(InputError, match="expected an architecture out of h100, b200, found 'z'"):
        catalog.select(submission(arch="z"))
    with pytest.raises(InputError, match="--arch"):
        Catalog(load_suite(ROOT, "primary").table, arch="z")


def test_tolerances_are_the_cases_own_or_none(catalog) -> None:
    assert catalog.select(submission(atol=0.01, rtol=0.01))
    with pytest.raises(InputError, match=r"expected no rtol, or the case's own 0\.01, found 0\.5"):
        catalog.select(submission(rtol=0.5))


def test_another_case_of_the_same_name_is_refused(catalog) -> None:
    ours = suite_case(GEMM)
    assert catalog.select(submission(arch="h100", case_sha256=case_digest(ours)))
    looser = ours.model_copy(update={"tolerance": ours.tolerance.model_copy(update={"atol": 0.5})})
    with pytest.raises(InputError, match="use the same checkout"):
        catalog.select(submission(arch="h100", case_sha256=case_digest(looser)))


def test_digest_is_of_what_is_measured_not_of_where_it_is_kept() -> None:
    ours = suite_case(GEMM)
    assert case_digest(ours) == case_digest(ours.model_copy(update={"suite": "other", "variants": ("none",)}))
    assert case_digest(ours) != case_digest(ours.model_copy(update={"trials": 2}))


def test_two_definitions_of_one_name_are_refused() -> None:
    ours = suite_case(GEMM)
    other = ours.model_copy(update={"definition": ours.definition.model_copy(update={"description": "another"})})
    with pytest.raises(InputError, match=f"expected one definition named {GEMM}, found another one in suite"):
        Catalog([ours, other])


def test_documents_are_those_of_flashinfer_trace(catalog) -> None:
    case = suite_case(GEMM)
    assert json.loads(catalog.definition(GEMM)) == case.definition.model_dump(mode="json")
    assert json.loads(catalog.workloads(GEMM)) == [case.workload.model_dump(mode="json")]
    assert json.loads(catalog.workload(case.workload.uuid)) == case.workload.model_dump(mode="json")
    assert json.loads(catalog.definitions)[0]["name"] == GEMM
    assert (catalog.definition("z"), catalog.workloads("z"), catalog.workload("z")) == (None, None, None)
