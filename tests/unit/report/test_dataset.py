"""Manifests of datasets, and which adapted model each is of."""

from __future__ import annotations

import pytest

from ptxbench.cli import main
from ptxbench.errors import InputError
from ptxbench.report.dataset import MANIFEST, load_manifests, read_manifest
from tests.support.manifests import write_manifest


def test_a_manifest_tells_what_the_training_knew(tmp_path) -> None:
    found = read_manifest(write_manifest(tmp_path))
    assert found == read_manifest(tmp_path / MANIFEST)
    assert found.cases == {"gemm_n7168_k5120", "mha_with_lse_d128"}
    assert found.archs == {"h100"}
    assert found.languages == {"cuda"}


def test_one_dataset_stands_for_all_and_several_for_one_each(tmp_path) -> None:
    one, other = (write_manifest(tmp_path / name, name) for name in ("s0", "s1"))
    assert [found.name for found in load_manifests([one], 4)] == ["s0", "s0", "s0"]
    assert [found.name for found in load_manifests([one, other], 3)] == ["s0", "s1"]
    for folders, sources in (([one], 1), ([one, other], 2), ([one, other], 4), ([one], 0)):
        with pytest.raises(InputError, match=f"found {sources} runs and {len(folders)} datasets"):
            load_manifests(folders, sources)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"by_case": {}}, "by_case"),
        ({"by_turn": {"0": 0}}, "by_turn.0"),
        ({"by_teacher": {"": 1}}, "by_teacher"),
        ({"records": "20"}, "records"),
        ({"kind": "other"}, "kind"),
        ({"name": "n" * 301}, "name"),
    ],
)
def test_what_is_no_manifest_is_refused(tmp_path, changes, told) -> None:
    with pytest.raises(InputError, match=told):
        read_manifest(write_manifest(tmp_path, **changes))


def test_a_missing_manifest_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="fixit build"):
        read_manifest(tmp_path)


def test_a_dataset_wants_a_page(tmp_path, capsys) -> None:
    assert main(["report", "base", "adapted", "--dataset", str(write_manifest(tmp_path))]) == 2
    assert "add --html or --figures" in capsys.readouterr().err
