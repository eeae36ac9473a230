"""What stands below a table of a baseline that is no library."""

from __future__ import annotations

from ptxbench.cases.defaults import REFERENCE_BASELINE
from ptxbench.records import Containment
from ptxbench.report import render, summarize
from tests.unit.factories import make_baseline, make_evidence, make_record, make_run


def text_of(**changes: str) -> str:
    evidence = make_evidence(run=make_run(baseline=make_baseline(**changes)))
    return " ".join(" ".join(render(summarize([make_record(evidence=evidence)]), width=100)).split())


def test_a_library_needs_no_word() -> None:
    assert "No library" not in text_of()


def test_a_reference_is_called_what_it_is() -> None:
    text = text_of(library=REFERENCE_BASELINE.library, version="2.11.0", call=REFERENCE_BASELINE.call)
    assert "Baseline: torch 2.11.0 (definition.reference) for gemm_n7168_k5120." in text
    assert "No library: the baseline of gemm_n7168_k5120 is the definition's own reference in eager PyTorch" in text


def test_a_layer_that_was_missing_is_told_and_a_full_set_is_not() -> None:
    def text(missing: dict[str, str]) -> str:
        containment = Containment(active=("seccomp",), missing=missing)
        evidence = make_evidence(run=make_run(containment=containment))
        return " ".join(" ".join(render(summarize([make_record(evidence=evidence)]), width=100)).split())

    assert "Containment" not in text({})
    assert "ran without these layers around their process: ipc (1 turn), user (1 turn)." in text(
        {"user": "Operation not permitted", "ipc": "CUDA did not work inside"}
    )
