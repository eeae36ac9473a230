"""Claims, evidence, and what a function's text says of whether it was executed."""

import re
from pathlib import Path

import pytest
from ptx_tests.packs import programs

from ptxbench.errors import InputError
from ptxbench.packs.pack import open_pack
from ptxbench.packs.source import function_sha256, read_header
from ptxbench.packs.table import BEGIN, END, table, with_tables
from ptxbench.packs.validation import (
    COMPILED,
    Claim,
    Executed,
    PackEvidence,
    executed_share,
    gather,
    load_claims,
    load_evidence,
    status,
)
from tests.unit.factories import ROOT

DEFINITIONS = [found for path in open_pack(ROOT, "h100").headers() for found in read_header(path).definitions]
CLAIM = Claim.model_validate({"source": "here", "check": "counts", "ptx": "mbarrier.init.shared::cta.b64"})


def evidence(**functions: Executed) -> PackEvidence:
    return PackEvidence(device="NVIDIA H200", driver="580", cuda="13.0", date="2026-11-29", functions=functions)


def executed(name: str, passed: bool = True) -> Executed:
    return Executed(sha256=function_sha256(DEFINITIONS, name), check="counts", passed=passed)


def test_one_instruction_may_stand_without_a_list():
    assert CLAIM.ptx == ("mbarrier.init.shared::cta.b64",)
    assert CLAIM.sass == ()


def test_status():
    def of(found):
        return status("mbar_init", CLAIM, DEFINITIONS, found)

    assert of(None) == (False, "compiled")
    assert of(evidence()) == (False, "compiled")
    assert of(evidence(mbar_init=executed("mbar_init"))) == (True, "executed: NVIDIA H200, 2026-11-29")
    stale = evidence(mbar_init=executed("mbar_arrive"))
    assert of(stale) == (False, "compiled, not executed since its text changed")
    renamed = CLAIM.model_copy(update={"check": "other"})
    found = evidence(mbar_init=executed("mbar_init"))
    assert status("mbar_init", renamed, DEFINITIONS, found) == (False, "compiled, not executed by other")
    failed = evidence(mbar_init=executed("mbar_init", passed=False))
    assert of(failed) == (False, "failed on NVIDIA H200, 2026-11-29")
    unchecked = CLAIM.model_copy(update={"check": "compiled"})
    assert status("mbar_init", unchecked, DEFINITIONS, evidence(mbar_init=executed("mbar_init"))) == (False, "compiled")


def test_what_a_run_writes_is_what_is_judged():
    claims = {"mbar_init": CLAIM, "mbar_wait": CLAIM.model_copy(update={"check": "other"})}
    found = evidence(**gather({"counts": True}, claims, DEFINITIONS))
    assert list(found.functions) == ["mbar_init"]
    assert status("mbar_init", CLAIM, DEFINITIONS, found)[0]


def test_share():
    assert executed_share({}) == 0
    assert executed_share({"a": (True, ""), "b": (False, "")}) == 0.5


@pytest.mark.parametrize("arch", ["h100", "b200"])
def test_the_document_has_todays_table(arch: str):
    text = (ROOT / "docs" / "packs.md").read_text()
    assert with_tables(ROOT, text) == text, "run `ptxbench packs table --write`"
    for line in table(ROOT, arch):
        assert line in text


def test_a_document_without_marks():
    with pytest.raises(InputError, match=r"packs\.md: expected the lines"):
        with_tables(ROOT, f"text {BEGIN} text")
    assert with_tables(ROOT, f"{BEGIN}{END}").startswith(BEGIN)


def test_committed_evidence_is_of_the_checks_that_claims_name():
    found = load_evidence(ROOT, "h100")
    if found is None:
        pytest.skip("no run on hardware is committed yet")
    claims = load_claims(ROOT / "knowledge_packs" / "h100")
    assert found.functions.keys() <= claims.keys()
    assert all(done.passed for done in found.functions.values())
    assert {name: done.check for name, done in found.functions.items()} == {
        name: claims[name].check for name in found.functions
    }


def test_hoppers_functions_were_executed_as_they_are_now():
    claims = load_claims(ROOT / "knowledge_packs" / "h100")
    found = load_evidence(ROOT, "h100")
    statuses = {name: status(name, claim, DEFINITIONS, found) for name, claim in claims.items()}
    assert executed_share(statuses) >= 0.95, {name: how for name, (done, how) in statuses.items() if not done}


@pytest.mark.parametrize("arch", ["h100", "b200"])
def test_the_program_of_a_claimed_check_uses_the_function(arch: str):
    opened = open_pack(ROOT, arch)
    sources = {
        check: programs.source(opened, program, "")
        for program in programs.programs(arch)
        for check in programs.checks(arch, program)
    }
    claimed = {name: claim.check for name, claim in load_claims(opened.folder).items() if claim.check != COMPILED}
    assert {name for name, check in claimed.items() if not re.search(rf"\b{name}\b", sources[check])} == set()


def test_nothing_of_b200_counts_as_executed():
    assert load_evidence(ROOT, "b200") is None
    assert "(0%) executed on hardware" in "".join(table(ROOT, "b200"))


@pytest.mark.parametrize(
    ("text", "message"), [("{broken", "expected a JSON document"), ("{}", "`device`: expected this required key")]
)
def test_broken_evidence_is_one_error(tmp_path: Path, text: str, message: str):
    (tmp_path / "tests" / "evidence").mkdir(parents=True)
    (tmp_path / "tests" / "evidence" / "packs_h100.json").write_text(text)
    with pytest.raises(InputError, match=message):
        load_evidence(tmp_path, "h100")


def test_a_broken_claim_names_its_line(tmp_path: Path):
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "validation.yaml").write_text("a: {source: x}\nb: {sourc: x}\n")
    with pytest.raises(InputError, match=r"validation\.yaml:2: "):
        load_claims(tmp_path)
