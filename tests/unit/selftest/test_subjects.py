"""Which kernels are measured, in which order, with which tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.errors import InputError
from ptxbench.selftest.subjects import Subject, load_subjects, selected
from tests.conftest import ROOT


def test_what_needs_no_device_comes_first_and_tools_come_late(subjects: tuple[Subject, ...]) -> None:
    names = [subject.name for subject in subjects]
    assert names[0] == "attacks/library/cublas_include"
    assert names[-1] == "attacks/undefined/oob_read"
    assert {subject.name: subject.tools for subject in subjects if subject.tools} == {
        "attacks/undefined/oob_read": ("memcheck",)
    }
    assert [subject.name for subject in subjects if subject.counts] == ["attacks/decoy/decoy_unlaunched"]


def test_a_pattern_selects(subjects: tuple[Subject, ...]) -> None:
    assert [one.name for one in selected(subjects, "decoy")] == ["attacks/decoy/decoy_unlaunched"]
    assert [one.name for one in selected(subjects, "honest/*gemm")] == ["honest/generic_gemm"]
    assert selected(subjects, None) == subjects
    with pytest.raises(InputError, match="found 'nothing', which matches none"):
        selected(subjects, "nothing")


def test_a_folder_without_a_corpus_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the corpora are part of a checkout, not of the installed package"):
        load_subjects(ROOT, "h100", [tmp_path])


def test_an_entry_that_is_not_as_it_must_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "expected.yaml").write_text("lonely: {mechanism: none}\n")
    with pytest.raises(InputError, match=r"without a kernel: \['lonely'\]"):
        load_subjects(ROOT, "h100", [tmp_path])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"a: [\n", r"expected\.yaml.*a YAML document"),
        (b"- a\n", "expected a mapping of names to entries; found a list"),
        (b"odd:\n", "attacks/odd: .*Field required"),
        (b"odd: [1]\n", "attacks/odd: .*not a mapping"),
        (b"odd: {}\nodd: {}\n", "each key once"),
        (b"\xff\n", r"expected\.yaml"),
    ],
)
def test_a_broken_list_is_said_with_its_file(text: bytes, said: str, tmp_path: Path) -> None:
    folder = tmp_path / "attacks"
    folder.mkdir()
    (folder / "odd.cu").write_text("")
    (folder / "expected.yaml").write_bytes(text)
    with pytest.raises(InputError, match=f"(?s){said}"):
        load_subjects(ROOT, "h100", [folder])


def test_an_unknown_case_is_said(tmp_path: Path) -> None:
    (tmp_path / "honest").mkdir()
    (tmp_path / "honest" / "odd.cu").write_text("")
    (tmp_path / "honest" / "expected.yaml").write_text("odd: {looks_like: x, case: softmax}\n")
    with pytest.raises(InputError, match="expected a case of suite primary, found 'softmax'"):
        load_subjects(ROOT, "h100", [tmp_path / "honest"])
