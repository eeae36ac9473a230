"""A candidate is one self-contained source, so a causal solution repeats its full twin; they must not drift apart."""

import difflib

import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "generated" / "reference" / "h100"


@pytest.mark.parametrize("name", ["mha_with_lse_d128", "mha_bwd_d128"])
def test_twins_differ_in_the_mask_and_the_words_about_it(name):
    full, causal = ((FOLDER / folder / "kernel.cu").read_text() for folder in (name, f"{name}_causal"))
    changed = [
        line[2:]
        for line in difflib.ndiff(full.splitlines(), causal.splitlines())
        if line.startswith(("- ", "+ ")) and not line[2:].startswith("//")
    ]
    assert len(changed) == 2
    assert all("constexpr bool kCausal" in line for line in changed)
