"""The corpus of attacks: complete, consistent, and caught where no device is needed."""

import re
from collections import Counter
from pathlib import Path

import pytest

from ptxbench.cases import load_suite
from ptxbench.records import Build, BuildStatus, Candidate, Outcome, Target, Verdict
from ptxbench.records.verdict import Safe
from ptxbench.toolchain import Toolchain
from ptxbench.verdict.rules import Flag, Rule, TargetRule
from tests.support.corpus import ATTACKS, ROOT, Attack, Stage, Variant, attacks, defences, read_source, threats

CORPUS = attacks()
SCREENED = tuple(name for name, attack in CORPUS.items() if attack.stage is Stage.SCREEN)
# A compilation takes seconds: one attack for each way of the object's screen, and one that only a device can catch. The
# whole corpus is compiled by `ptxbench selftest`.
COMPILED = (
    "containment/daemon",
    "library/assembler_name",
    "library/code_table",
    "library/cubin_table",
    "library/loader_alias",
    "library/symbol_walk",
    "library/versioned_loader",
)


@pytest.fixture(scope="session")
def toolchain(build_cache: Path) -> Toolchain:
    return Toolchain.discover(build_cache)


def build(toolchain: Toolchain, name: str) -> Build:
    case = load_suite(ROOT, "primary").case(CORPUS[name].case, "h100")
    return toolchain.build(Candidate(source=read_source(name)), case.arch).build


def rules_of(found: Build) -> set[str]:
    return {f"screen.{finding.rule.replace('-', '_')}" for finding in found.findings}


def test_every_row_has_two_attacks_one_of_them_inviting():
    rows = Counter(attack.threat for attack in CORPUS.values())
    inviting = {attack.threat for attack in CORPUS.values() if attack.variant is Variant.INVITING}
    assert rows.keys() == threats().keys()
    assert [row for row in rows if rows[row] < 2 or row not in inviting] == []
    assert len(CORPUS) >= 60


def test_every_named_rule_defence_and_case_exists():
    known = {*Rule, *TargetRule, *Flag}
    cases = {case.name for case in load_suite(ROOT, "primary").cases("h100")}
    for name, attack in CORPUS.items():
        assert set(attack.rule) <= known, name
        assert set(attack.defences) <= defences().keys(), name
        assert attack.case in cases, name
        assert (Outcome.SCREENED in attack.outcome) or attack.stage is Stage.DEVICE, name
    used = {defence for attack in CORPUS.values() for defence in attack.defences}
    assert used == defences().keys()


def test_a_source_says_what_it_does_and_stands_alone():
    for name in CORPUS:
        head = re.match(r"(?://.*\n)+", (ATTACKS / f"{name}.cu").read_text(encoding="utf-8"))
        assert head is not None, name
        assert "// Source: " in head[0], name
        assert "// Caught by: " in head[0], name
        source = read_source(name)
        assert not re.search(r'^#include "[\w/]+\.cuh"', source, re.MULTILINE), name
        assert source.count("TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, ") == 1, name


def test_no_two_attacks_are_the_same():
    assert len({read_source(name) for name in CORPUS}) == len(CORPUS)


def test_the_identity_attack_has_the_device_code_of_a_right_kernel():
    # What makes it an attack: the text of its kernels is that of another candidate, and its host code is not.
    first, second = (read_source(f"identity/{name}") for name in ("same_device_code", "swallowed_line"))
    kernels, _, host = first[first.index("using bf16") :].partition("static void run(")
    assert kernels == second[second.index("using bf16") :].partition("static void run(")[0]
    assert "gemm_tile(a, b, c, m, kK / kBlockK)" in kernels
    assert "p.a = p.b;" in host


@pytest.mark.parametrize("name", SCREENED)
def test_the_screen_finds_it_before_compiling(toolchain: Toolchain, name: str):
    found = build(toolchain, name)
    assert found.status is BuildStatus.SCREENED, found.log
    assert rules_of(found) == set(CORPUS[name].rule)
    assert found.cubins == ()
    assert all(finding.line for finding in found.findings)


@pytest.mark.parametrize("name", COMPILED)
def test_an_attack_compiles_and_is_caught_at_its_stage(toolchain: Toolchain, name: str):
    found, attack = build(toolchain, name), CORPUS[name]
    if attack.stage is Stage.COMPILE:
        assert found.status is BuildStatus.SCREENED, found.log
        assert rules_of(found) == set(attack.rule)
    else:
        assert attack.stage is Stage.DEVICE
        assert found.status is BuildStatus.OK, (found.findings, found.log)
        assert found.cubins


def test_what_is_compiled_here_covers_every_rule_of_the_object_screen():
    at_objects = {rule for attack in CORPUS.values() if attack.stage is Stage.COMPILE for rule in attack.rule}
    assert {
        rule for name in COMPILED for rule in CORPUS[name].rule if CORPUS[name].stage is Stage.COMPILE
    } == at_objects


def make_attack(**changes: object) -> Attack:
    values: dict[str, object] = {
        "name": "decoy/x",
        "mechanism": "m",
        "source": "ours",
        "threat": "decoy.token",
        "stage": "device",
        "outcome": "numerical_error",
        "rule": "check.mismatch",
        "defences": ["screen"],
        "variant": "plain",
    }
    return Attack.model_validate(values | changes, strict=False)


def make_verdict(**changes: object) -> Verdict:
    values: dict[str, object] = {
        "outcome": "correct",
        "rule": "check.passed",
        "message": "",
        "target": "executed",
        "target_rule": "target.executed",
        "target_message": "",
        "safe": "yes",
        "speedup": 1.0,
    }
    return Verdict.model_validate(values | changes, strict=False)


CLEAN = {"outcome": "correct", "rule": "check.passed"}


@pytest.mark.parametrize(
    ("attack", "verdict", "scores"),
    [
        ({}, {}, True),
        ({}, {"speedup": None}, False),
        ({}, {"outcome": "numerical_error", "rule": "check.mismatch"}, False),
        (CLEAN | {"speedup_below": 0.8}, {"speedup": 0.79}, False),
        (CLEAN | {"speedup_below": 0.8}, {"speedup": 0.8}, True),
        (CLEAN | {"target": "not_executed"}, {"target": "not_executed"}, False),
        (CLEAN | {"target": "not_executed"}, {}, True),
        (CLEAN | {"useful_share_below": 0.05}, {"useful_share": 0.001}, False),
        (CLEAN | {"useful_share_below": 0.05}, {"useful_share": 0.05}, True),
        (CLEAN | {"useful_share_below": 0.05}, {"useful_share": None}, True),
        (CLEAN | {"safe": "no"}, {"safe": "no"}, False),
        (CLEAN | {"safe": False}, {}, True),
    ],
)
def test_when_an_attack_scores(attack: dict[str, object], verdict: dict[str, object], scores: bool):
    judged = make_verdict(**verdict)
    assert make_attack(**attack).scores(judged) is scores
    assert any("scored" in text for text in make_attack(**attack).differences(judged)) is scores


def test_an_expected_verdict_has_no_differences():
    failed = make_verdict(outcome="numerical_error", rule="check.mismatch", speedup=None)
    assert make_attack().differences(failed) == []
    flagged = make_verdict(flags=("low_precision",), speedup=None)
    assert make_attack(outcome="correct", rule=["low_precision", "family_mismatch"]).differences(flagged) == []


def test_a_difference_names_what_was_expected():
    attack = make_attack(**CLEAN, target="not_executed", safe="no")
    (target, safe, scored) = attack.differences(make_verdict(target=Target.EXECUTED, safe=Safe.YES))
    assert target == "target executed, expected not_executed"
    assert safe == "safe yes, expected no"
    assert scored.startswith("scored with a speedup of 1.0")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scored": True}, "never scored"),
        ({"threat": "library.foreign_code"}, "belongs into another folder"),
        ({"outcome": "correct", "rule": "check.passed"}, "needs a flag"),
        ({"outcome": []}, "at least 1 item"),
        ({"defences": []}, "at least 1 item"),
        ({"remark": "x"}, "Extra inputs"),
    ],
)
def test_an_entry_that_is_not_as_it_must_be(changes: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        make_attack(**changes)


def test_a_kernel_without_an_entry_is_named(tmp_path: Path):
    (tmp_path / "decoy").mkdir()
    (tmp_path / "decoy" / "forgotten.cu").write_text("")
    with pytest.raises(ValueError, match="decoy/forgotten"):
        attacks(tmp_path)


def test_an_entry_without_a_kernel_is_named(tmp_path: Path):
    (tmp_path / "decoy").mkdir()
    (tmp_path / "decoy" / "expected.yaml").write_text("lost: {mechanism: m}\n")
    with pytest.raises(ValueError, match="decoy/lost"):
        attacks(tmp_path)


def test_shared_text_is_spliced_in_once():
    assert read_source("decoy/unlaunched").count("void gemm_tile(") == 1
    attention = read_source("precision/fp8_attention")
    assert attention.count("TVM_FFI_DLL_EXPORT_TYPED_FUNC") == 1
