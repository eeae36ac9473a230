from __future__ import annotations

import pytest

from ptxbench.cases import find_root
from ptxbench.errors import InputError
from tests.unit.cases import checkout


def test_finds_the_nearest_checkout(tmp_path):
    root = checkout.copy(tmp_path / "outer")
    inner = checkout.copy(root / "deep" / "inner")
    assert find_root(root) == root
    assert find_root(root / "cases" / "suites") == root
    assert find_root(inner / "knowledge_packs") == inner


def test_both_folders_are_needed(tmp_path):
    (tmp_path / "cases" / "suites").mkdir(parents=True)
    with pytest.raises(InputError, match=r"expected a PTXBench checkout.*found none"):
        find_root(tmp_path)
