"""``reference``."""

import shutil
from pathlib import Path

import pytest

from ptxbench.errors import InputError
from ptxbench.models.base import End, Proposal
from ptxbench.models.floors import load_floors
from ptxbench.models.reference import ReferenceModel
from ptxbench.records import Candidate
from tests.unit.factories import ROOT, suite_case

GEMM = "gemm_n7168_k5120"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "generated" / "reference" / "h100"
    (folder / GEMM).mkdir(parents=True)
    (folder / GEMM / "kernel.cu").write_text("// gemm\n")
    shutil.copy(ROOT / "generated" / "reference" / "h100" / "reference.yaml", folder)
    return tmp_path


def test_proposes_the_solution_of_the_case(checkout):
    model = ReferenceModel(checkout)
    proposal = model.propose(suite_case(), 2, 3, 0, ())
    assert isinstance(proposal, Proposal)
    assert proposal.candidate is not None
    assert proposal.candidate.source == "// gemm\n"
    assert model.known_source(suite_case(), 0, 0, 0) == proposal.candidate.sha256


def test_keeps_the_newlines_of_the_solution(checkout):
    (checkout / "generated" / "reference" / "h100" / GEMM / "kernel.cu").write_bytes(b"// gemm\r\nint x;\r")
    expected = Candidate(source="// gemm\r\nint x;\r").sha256
    assert ReferenceModel(checkout).known_source(suite_case(), 0, 0, 0) == expected


def test_has_one_turn(checkout):
    end = ReferenceModel(checkout).propose(suite_case(), 0, 0, 1, ())
    assert isinstance(end, End)
    assert "the model has no further turn" in end.message


@pytest.mark.parametrize(("name", "arch"), [(GEMM, "b200"), ("mha_bwd_d128", "h100")])
def test_ends_where_there_is_no_solution(checkout, name, arch):
    end = ReferenceModel(checkout).propose(suite_case(name, arch), 0, 0, 0, ())
    assert isinstance(end, End)
    assert end.message == f"there is no reference solution of {name} for {arch}"


def test_sees_an_edited_solution(checkout):
    model = ReferenceModel(checkout)
    before = model.known_source(suite_case(), 0, 0, 0)
    (checkout / "generated" / "reference" / "h100" / GEMM / "kernel.cu").write_text("// better\n")
    assert model.known_source(suite_case(), 0, 0, 0) != before


def test_declares_the_floors_of_the_checkout():
    floors = load_floors(ROOT / "generated" / "reference" / "h100" / "reference.yaml", "h100").min_speedup
    model = ReferenceModel(ROOT)
    assert model.min_speedup(suite_case()) == floors[GEMM] >= 0.6
    assert model.min_speedup(suite_case("mha_bwd_d128_causal")) == floors["mha_bwd_d128_causal"] >= 0.15
    assert model.min_speedup(suite_case(GEMM, "b200")) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema_version: 1\narch: b200\nmin_speedup: {}\n", r"floors\.yaml:2: `arch`: expected 'h100'.* found 'b200'"),
        (
            "schema_version: 1\narch: h100\nmin_speedup:\n  gemm: fast\n",
            r"floors\.yaml:4: `min_speedup\.gemm`: expected",
        ),
        ("schema_version: 1\narch: h100\nmin_speedup:\n  gemm: 0\n", r"floors\.yaml:4: `min_speedup\.gemm`: expected"),
        ("schema_version: 2\narch: h100\nmin_speedup: {}\n", r"floors\.yaml:1: `schema_version`: expected"),
        ("schema_version: 1\narch: h100\nmin_speedup: {}\nfloor: 1\n", r"floors\.yaml:4: .*unknown key 'floor'"),
        ("schema_version: 1\narch: h100\n", r"`min_speedup`: expected this "),
    ],
)
def test_refuses_broken_floors(tmp_path, text, message):
    path = tmp_path / "floors.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_floors(path, "h100")
