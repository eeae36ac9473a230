from __future__ import annotations

import pytest

from ptxbench.cases import Case, load_suite
from tests.unit.cases import checkout


@pytest.fixture(scope="module")
def suite():
    return load_suite(checkout.ROOT, "primary")


def test_shapes_and_dtypes_follow_the_definition(suite):
    case = suite.case("mha_bwd_d128", "h100")
    full, rows = (4, 48, 4096, 128), (4, 48, 4096)
    assert list(case.input_shapes().items()) == [
        ("Q", full),
        ("K", full),
        ("V", full),
        ("O", full),
        ("dO", full),
        ("L", rows),
    ]
    assert list(case.output_shapes().items()) == [("dQ", full), ("dK", full), ("dV", full)]
    assert list(case.dtypes()) == ["Q", "K", "V", "O", "dO", "L", "dQ", "dK", "dV"]
    assert case.dtypes()["L"] == "float32"
    assert case.axes == {"B": 4, "H": 48, "S": 4096, "D": 128}


def test_shrinking_keeps_const_axes_and_counts_again(suite):
    case = suite.case("gemm_n7168_k5120", "h100")
    small = case.shrunk()
    assert small.axes == {"M": 256, "N": 7168, "K": 5120}
    assert small.input_shapes() == {"A": (256, 5120), "B": (7168, 5120)}
    assert small.flops == case.flops * 256 // 8192
    assert small.bytes == 2 * (256 * 5120 + 7168 * 5120 + 256 * 7168)
    assert small.definition is case.definition
    assert case.axes["M"] == 8192


def test_a_shrunk_workload_has_its_own_identity(suite):
    case = suite.case("mha_with_lse_d128", "h100")
    small = case.shrunk()
    assert small.workload.uuid != case.workload.uuid
    assert small.shrunk() is small


def test_survives_json(suite):
    for case in suite.table:
        assert Case.model_validate_json(case.model_dump_json()) == case


def test_is_frozen(suite):
    with pytest.raises(ValueError, match="frozen"):
        suite.table[0].flops = 1
