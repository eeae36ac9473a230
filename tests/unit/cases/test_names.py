from __future__ import annotations

import pytest

from ptxbench.cases.names import expect_known
from ptxbench.errors import InputError


def test_known_names_pass():
    expect_known("arch", "h100", ("h100",))


def test_unknown_names_list_the_known_ones_and_the_closest():
    with pytest.raises(InputError) as caught:
        expect_known("arch", "h10", ("b200", "h100"))
    assert str(caught.value) == "unknown arch: expected one of b200, h100; found 'h10'. Did you mean 'h100'?"


def test_nothing_known():
    with pytest.raises(InputError, match=r"\(none exist\)"):
        expect_known("suite", "x", ())
