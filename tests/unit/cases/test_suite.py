from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from ptxbench.cases import available_suites, load_suite, select_cases
from ptxbench.errors import InputError
from ptxbench.trace import FileError
from tests.unit.cases import checkout

NAMES = [
    "gemm_n7168_k5120",
    "mha_with_lse_d128",
    "mha_with_lse_d128_causal",
    "mha_bwd_d128",
    "mha_bwd_d128_causal",
]


@pytest.fixture(scope="module")
def suite():
    return load_suite(checkout.ROOT, "primary")


def test_available_suites():
    assert "primary" in available_suites(checkout.ROOT)


def test_cases_of_an_arch(suite):
    assert suite.archs == ("h100", "b200")
    for arch in suite.archs:
        cases = suite.cases(arch)
        assert [case.name for case in cases] == NAMES
        assert {case.arch.name for case in cases} == {arch}


def test_unknown_names_list_the_known_ones(suite):
    with pytest.raises(
        InputError, match=r"unknown suite: expected one of .*primary.*found 'primry'. Did you mean 'primary'"
    ):
        load_suite(checkout.ROOT, "primry")
    with pytest.raises(
        InputError, match=r"arch of suite primary: expected one of h100, b200; found 'a100'. Did you mean"
    ):
        suite.cases("a100")
    with pytest.raises(InputError, match=r"case of suite primary on h100.*Did you mean 'mha_bwd_d128'"):
        suite.case("mha_bwd_d12", "h100")


@pytest.mark.parametrize(
    ("archs", "globs", "names"),
    [
        ((), (), [*NAMES, *NAMES]),
        (("b200",), (), NAMES),
        (("h100", "h100"), ("gemm*",), NAMES[:1]),
        (("h100",), ("*causal", "gemm*"), [NAMES[0], NAMES[2], NAMES[4]]),
        (("b200", "h100"), ("mha_bwd_d128",), ["mha_bwd_d128", "mha_bwd_d128"]),
    ],
)
def test_select_cases(suite, archs, globs, names):
    assert [case.name for case in select_cases(suite, archs, globs)] == names


def test_selection_keeps_the_order_of_archs(suite):
    assert [case.arch.name for case in select_cases(suite, ("b200", "h100"), ("gemm*",))] == ["b200", "h100"]


def test_a_glob_that_matches_nothing_is_an_error(suite):
    with pytest.raises(
        InputError, match=r"unknown case.*gemm_n7168_k5120.*found 'gemm_n7168'. Did you mean 'gemm_n7168_k5120'"
    ):
        select_cases(suite, ("h100",), ("mha*", "gemm_n7168"))


def test_an_unknown_arch_is_an_error(suite):
    with pytest.raises(InputError, match="found 'h200'"):
        select_cases(suite, ("h200",))


@pytest.mark.parametrize(
    ("old", "new", "field", "expected", "found"),
    [
        ("schema_version: 1", "schema_version: 2", "schema_version", "1", "2"),
        ("name: primary", "name: other", "name", "'primary', the name of the file", "'other'"),
        ("  trials: 3", "  trials: 0", "protocol.trials", "greater than 0", "0"),
        ("  trials: 3", "  trails: 3", "protocol.trails", "one of the keys trials", "'trails'"),
        (
            "definition: gemm_n7168_k5120",
            "definition: gemm_n7168",
            "cases[0].definition",
            "a definition under",
            "Did you mean",
        ),
        (
            "definition: mha_with_lse_d128\n",
            "definition: gemm_n7168_k5120\n",
            "cases[1].definition",
            "each definition once",
            "again",
        ),
        ("workload: 9492", "workload: 9493", "cases[0].workload", "a uuid of gemm_n7168_k5120.jsonl", "'9493"),
        ("op: gemm", "op: conv", "cases[0].op", "'gemm', 'attention' or 'other'", "'conv'"),
        ("archs: [h100, b200]", "archs: []", "cases[0].archs", "at least 1 item", "a list of 0"),
        (
            "archs: [h100, b200]",
            "archs: [h100]",
            "cases[0].variants",
            "one list for each arch in archs (h100)",
            "h100, b200",
        ),
        ("archs: [h100, b200]", "archs: [h100, b200, b200]", "cases[0].variants", "each arch once", "h100, b200"),
        ("atol: 0.01", "atol: -1", "cases[0].tolerance.atol", "greater than or equal to 0", "-1"),
        ("atol: 0.01", "atol: 1%", "cases[0].tolerance.atol", "a valid number", "'1%'"),
        ("input_recipe: normal", "input_recipe: uniform", "cases[0].input_recipe", "'normal', 'attention", "'uniform'"),
        ("causal: false", "causal: no", "cases[0].causal", "a valid boolean", "'no'"),
        ("flops: 2*M*N*K", "flops: 2*M*N*Q", "cases[0].flops", "axis names (M, N, K)", "'Q'"),
        ("bytes: 2*(M*K", "bytes: 2*(M*K)/0", "cases[0].bytes", "an arithmetic expression", "unmatched"),
        ("{M: 256}", "{N: 256}", "cases[0].shrunk_axes.N", "a var axis of gemm_n7168_k5120", "'N'"),
        ("{M: 256}", "{M: 16384}", "cases[0].shrunk_axes.M", "at most 8192", "16384"),
        ("{M: 256}", "{M: 0}", "cases[0].shrunk_axes.M", "greater than 0", "0"),
        ("h100: [none, cluster", "h100: [cluster", "cases[0].variants.h100", "start with none", "cluster-multicast"),
        ("[none, cluster-multicast,", "[none, none,", "cases[0].variants.h100", "each once", "none, none"),
        (
            "[none, cluster-multicast,",
            "[none, Cluster,",
            "cases[0].variants.h100[1]",
            "a string that matches",
            "'Cluster'",
        ),
        ("op: gemm", "op: gemm\n    op: gemm", "cases[0].op", "each key once", "'op' again"),
        ("op: gemm", "op: gemm\n    warmup: 1", "cases[0].warmup", "one of the keys definition", "'warmup'"),
    ],
)
def test_refuses(tmp_path, old, new, field, expected, found):
    root = checkout.copy(tmp_path)
    path = root / "cases" / "suites" / "primary.yaml"
    line = checkout.edit(path, old, new)
    with pytest.raises(FileError) as caught:
        load_suite(root, "primary")
    error = caught.value
    assert error.field == field
    assert expected in error.expected
    assert found in error.found
    assert error.file == path
    assert error.line is not None
    assert field.split(".")[-1].split("[")[0] in path.read_text().splitlines()[error.line - 1]
    assert abs(error.line - line) <= 10


def test_an_arch_that_no_pack_describes(tmp_path):
    root = checkout.copy(tmp_path)
    path = root / "cases" / "suites" / "primary.yaml"
    path.write_text(path.read_text().replace("b200", "b300"))
    with pytest.raises(FileError, match=r"cases\[0\].archs\[1\].*an arch under knowledge_packs: b200, h100.*'b300'"):
        load_suite(root, "primary")


def test_a_definition_must_be_where_its_name_says(tmp_path):
    root = checkout.copy(tmp_path)
    checkout.edit(root / "cases" / "definitions" / "gemm" / "gemm_n7168_k5120.json", '"gemm"', '"matmul"')
    with pytest.raises(InputError, match=r"gemm_n7168_k5120.json: expected name .* op_type 'gemm'.*found .*'matmul'"):
        load_suite(root, "primary")


def test_a_definition_that_breaks_the_schema_names_its_own_file(tmp_path):
    root = checkout.copy(tmp_path)
    checkout.edit(root / "cases" / "definitions" / "gemm" / "gemm_n7168_k5120.json", "bfloat16", "bf16")
    with pytest.raises(FileError, match=r"gemm_n7168_k5120.json:\d+: `inputs.A.dtype`"):
        load_suite(root, "primary")


def test_scalar_outputs_cannot_be_written_by_a_kernel(tmp_path):
    root = checkout.copy(tmp_path)
    checkout.edit(
        root / "cases" / "definitions" / "gemm" / "gemm_n7168_k5120.json", '"shape": ["M", "N"]', '"shape": null'
    )
    with pytest.raises(FileError, match=r"cases\[0\].definition.*tensor outputs.*the scalar 'C'"):
        load_suite(root, "primary")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"M": 8192', '"M": 8192, "K": 1', "`workload.axes.K`: expected 5120, the definition's constant; found 1"),
        ('"M": 8192', '"X": 8192', "`workload.axes.X`: expected a var axis of the definition (M)"),
        ('"M": 8192', "", "`workload.axes.M`: expected a var axis that the definition has"),
        ('"M": 8192', '"M": 0', "`workload.axes.M`: expected a size of at least 1; found 0"),
        ('"M": 8192', '"M": 2147483648', "`workload.axes.M`: expected a size of at most 2147483647"),
        (', "B": {"type": "random"}', "", "`workload.inputs.B`: expected an input that the definition has"),
        ('"definition": "gemm_n7168_k5120"', '"definition": "gemm"', "`definition`: expected 'gemm_n7168_k5120', as"),
        (
            '"B": {"type": "random"}',
            '"B": {"type": "safetensors", "path": "b", "tensor_key": "B"}',
            "`workload.inputs.B.type`: expected random or scalar: a suite has no files; found 'safetensors'",
        ),
    ],
)
def test_a_workload_must_fit_its_definition(tmp_path, old, new, message):
    root = checkout.copy(tmp_path)
    path = root / "cases" / "workloads" / "gemm" / "gemm_n7168_k5120.jsonl"
    checkout.edit(path, old, new)
    with pytest.raises(FileError) as caught:
        load_suite(root, "primary")
    assert (caught.value.file, caught.value.line) == (path, 1)
    assert message in str(caught.value)


def test_a_definition_in_two_folders(tmp_path):
    root = checkout.copy(tmp_path)
    again = root / "cases" / "definitions" / "matmul" / "gemm_n7168_k5120.json"
    again.parent.mkdir()
    shutil.copyfile(root / "cases" / "definitions" / "gemm" / again.name, again)
    with pytest.raises(FileError, match=r"matmul/gemm.*`name`: expected each definition once; .*/gemm/gemm_n7168"):
        load_suite(root, "primary")


def test_a_missing_workload_file(tmp_path):
    root = checkout.copy(tmp_path)
    (root / "cases" / "workloads" / "gemm" / "gemm_n7168_k5120.jsonl").unlink()
    with pytest.raises(InputError, match=r"gemm_n7168_k5120.jsonl: expected a readable file"):
        load_suite(root, "primary")


_LOADING = """
import sys, time
from pathlib import Path
from ptxbench.cases import load_suite
start = time.perf_counter()
load_suite(Path(sys.argv[1]), "primary")
print(time.perf_counter() - start, *({"torch", "litellm", "numpy"} & set(sys.modules)))
"""


def test_loading_is_quick_and_imports_nothing_heavy():
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, 'plugins'){_LOADING}", str(checkout.ROOT)]
    runs = [
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=checkout.ROOT).stdout.split()
        for _ in range(2)
    ]
    assert min(float(run[0]) for run in runs) < 0.1
    assert all(run[1:] == [] for run in runs)
