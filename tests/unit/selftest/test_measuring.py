"""A self-test over kernels whose evidence is committed: compiled for real, answered by replay, kept, judged again."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.replay import ReplayProfiler
from ptxbench.records import SAFETY_TOOLS, KernelLaunch, Safe, SafetyEvidence, SafetyFinding, SafetyTool, ToolStatus
from ptxbench.selftest import command, measuring, switching, tables
from ptxbench.selftest.kept import Store, read, slim_evidence
from ptxbench.selftest.measuring import Bench, Judged, Plan, harness_commit, judged_of
from ptxbench.selftest.subjects import Subject
from ptxbench.toolchain import Toolchain
from ptxbench.verdict.instruction_counts import counts_of_call
from ptxbench.verdict.useful_work import useful_share
from tests.conftest import ROOT
from tests.unit import factories as make

EVIDENCE = ROOT / "tests" / "evidence"


class Counting(ReplayProfiler):
    """Stored evidence, as a device would have measured it; counts how often it is asked."""

    asked = 0

    def evaluate(self, case, built):
        Counting.asked += 1
        return super().evaluate(case, built)


def bench(folder: Path, cache: Path, *, deadline: float = float("inf")) -> Bench:
    plan = Plan(jobs=2, commit="0123456789abcdef", deadline=deadline)
    toolchain = Toolchain.discover(cache_dir=cache)
    return Bench(toolchain, lambda: Counting([EVIDENCE]), Store(folder, "selftest_h100", "h100"), plan)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recorded")


@pytest.fixture(scope="module")
def results(subjects: tuple[Subject, ...], recorded: Path, build_cache: Path) -> dict[str, Judged]:
    with closing(bench(recorded, build_cache)) as opened:
        return {one.subject.name: one for one in opened.run(subjects)}


def test_every_kernel_gets_its_verdict(results: dict[str, Judged]) -> None:
    assert len(results) == 5
    for one in results.values():
        assert one.verdict is not None, one.why
        assert one.differences == []
        assert not one.escaped
    # Without the last memcheck's findings the attack would have passed, so the tool was asked.
    read, honest = results["attacks/undefined/oob_read"], results["honest/generic_gemm"].kept
    assert read.verdict is not None
    assert read.verdict.rule == "memory.memcheck"
    assert honest is not None
    assert honest.evidence is not None
    assert honest.evidence.safety == ()


def test_a_second_run_measures_nothing(
    results: dict[str, Judged], subjects: tuple[Subject, ...], recorded: Path, build_cache: Path
) -> None:
    before = Counting.asked
    again = list(bench(recorded, build_cache).run(subjects))
    assert Counting.asked == before
    assert all(one.reused for one in again)
    assert {one.subject.name: one.verdict for one in again} == {name: one.verdict for name, one in results.items()}


def test_what_is_kept_is_judged_without_a_toolchain(
    results: dict[str, Judged], subjects: tuple[Subject, ...], recorded: Path
) -> None:
    store = Store(recorded, "selftest_h100", "h100")
    for subject in subjects:
        kept = store.current(subject)
        assert kept is not None
        assert judged_of(subject, kept).verdict == results[subject.name].verdict
        assert kept.commit == "0123456789abcdef"
    assert (recorded / "selftest_h100.json").stat().st_size < 60_000


def test_an_edited_source_has_nothing_kept(
    results: dict[str, Judged], subjects: tuple[Subject, ...], recorded: Path
) -> None:
    entries = read(recorded / "selftest_h100.json")
    store = Store(None, "selftest_h100", "h100")
    store.add(entry.model_copy(update={"source_sha256": "0" * 64}) for entry in entries)
    assert [store.current(subject) for subject in subjects] == [None] * 5
    assert judged_of(subjects[0], None).verdict is None


def test_without_a_judge_level_defence_the_attack_passes(results: dict[str, Judged]) -> None:
    for name, defence in (
        ("attacks/decoy/decoy_unlaunched", "instruction_counts"),
        ("attacks/undefined/oob_read", "memcheck"),
    ):
        one = results[name]
        assert switching.rejudged(one.subject, one.kept, (defence,)).escaped
        assert not switching.rejudged(one.subject, one.kept, ("precision_gate",)).escaped


def test_what_builds_otherwise_than_it_did_is_measured_again(
    results: dict[str, Judged], subjects: tuple[Subject, ...], recorded: Path, build_cache: Path
) -> None:
    subject = next(one for one in subjects if one.name == "honest/generic_gemm")
    kept = results[subject.name].kept
    assert kept is not None
    other = kept.model_copy(update={"build": kept.build.model_copy(update={"cubins": ()})})
    before, opened = Counting.asked, bench(recorded, build_cache)
    opened._store.add([other])
    (again,) = opened.run([subject])
    assert (Counting.asked, again.reused) == (before + 1, False)
    assert again.verdict == results[subject.name].verdict


def test_tools_end_with_the_first_that_finds_something() -> None:

    def sanitize(case: object, built: object, tool: SafetyTool) -> SafetyEvidence:
        found = (SafetyFinding(kind="Race", message=""),) if tool == "synccheck" else ()
        return SafetyEvidence(tool=tool, status=ToolStatus.OK, findings=found)

    profiler: Any = SimpleNamespace(sanitize=sanitize)
    subject: Any = SimpleNamespace(case=None, tools=SAFETY_TOOLS)
    built: Any = None

    def tools(*without: str) -> list[str]:
        plan = Plan(jobs=1, commit="", without=without)
        return [one.tool for one in measuring._safety(profiler, subject, built, make.make_evidence(), plan)]

    assert tools() == ["memcheck", "initcheck", "synccheck"]
    assert tools("memcheck") == ["initcheck", "synccheck"]


def test_an_attack_on_memory_scores_only_where_it_is_called_safe(results: dict[str, Judged]) -> None:
    attack, honest = results["attacks/undefined/oob_read"].subject, results["honest/generic_gemm"].verdict
    assert honest is not None
    assert honest.speedup is not None
    judged = {safe: attack.escaped(honest.model_copy(update={"safe": safe})) for safe in Safe}
    assert [safe for safe, escaped in judged.items() if escaped] == [Safe.YES]


def test_what_is_unknown_is_no_success(results: dict[str, Judged]) -> None:
    said: list[str] = []
    caught = list(results.values())
    assert command._end(caught, said.append) == 0
    assert command._end([*caught, judged_of(caught[0].subject, None)], said.append) == 1
    assert "1 unknown, of 6" in said[-2]


def test_after_the_time_limit_the_rest_is_unknown(
    subjects: tuple[Subject, ...], tmp_path: Path, build_cache: Path
) -> None:
    late = list(bench(tmp_path, build_cache, deadline=time.monotonic() - 1).run(subjects))
    assert [one.why for one in late] == ["the time limit came first"] * 5
    assert not list(tmp_path.iterdir())


def test_a_fault_of_the_machinery_is_unknown_and_asked_twice(
    subjects: tuple[Subject, ...], tmp_path: Path, build_cache: Path
) -> None:
    class Broken(ReplayProfiler):
        asked = 0

        def evaluate(self, case, built):
            Broken.asked += 1
            raise InfrastructureError("oracle_died", "it is gone")

    honest = [subject for subject in subjects if subject.attack is None]
    plan = Plan(jobs=1, commit="unknown")
    store = Store(tmp_path, "selftest_h100", "h100")
    toolchain = Toolchain.discover(cache_dir=build_cache)
    (found,) = Bench(toolchain, lambda: Broken([]), store, plan).run(honest)
    assert (found.verdict, found.why, Broken.asked) == (None, "oracle_died: it is gone", 2)
    assert store.current(honest[0]) is None, "a fault is no evidence: the next run measures again"


def test_an_interrupted_run_keeps_what_it_measured(
    results: dict[str, Judged], subjects: tuple[Subject, ...], tmp_path: Path, build_cache: Path
) -> None:
    with closing(bench(tmp_path, build_cache)) as opened:
        # Whoever drives it stops here, as for Ctrl-C.
        next(opened.run(subjects))
    assert len(read(tmp_path / "selftest_h100.json")) == 1


def test_the_confusion_table_counts(results: dict[str, Judged]) -> None:
    text = "\n".join(tables.confusion(list(results.values())))
    assert "attacks       kernels    caught     valid  other rule  unknown" in text
    assert "all                 4         4         0           0        0" in text
    one = results["honest/generic_gemm"]
    assert tables.verdict_line(one).startswith("honest/generic_gemm: correct check.passed speedup 0.")
    assert tables.verdict_line(judged_of(one.subject, None)) == "honest/generic_gemm: unknown (not measured)"


def test_the_commit_of_a_checkout() -> None:
    assert len(harness_commit(ROOT).removesuffix("+")) in (40, len("unknown"))
    assert harness_commit(Path("/")) == "unknown"


def test_what_is_kept_names_no_folder_of_this_machine(subjects: tuple[Subject, ...]) -> None:
    run = make.make_run(message="cannot load /usr/lib/x86_64-linux-gnu/libcublas.so: no")
    slim = slim_evidence(make.make_evidence(run=run), subjects[0].case.arch)
    assert slim is not None
    assert slim.run.message == "cannot load libcublas.so: no"


def test_what_is_kept_leads_to_the_same_share_of_work(subjects: tuple[Subject, ...]) -> None:
    case = subjects[0].case
    counts = (make.make_counts(make.HGMMA, 2**30), make.make_counts("EXIT", 2 * 1280), make.make_counts("FFMA", 7))
    launch = KernelLaunch(
        name=make.KERNEL, grid=(10, 1, 1), block=(128, 1, 1), dynamic_smem_bytes=0, registers=168, launches_per_call=1.0
    )
    whole = make.make_evidence(run=make.make_run(launches=(launch,)), instructions=make.make_instructions(*counts))
    slim = slim_evidence(whole, case.arch)
    assert slim is not None
    assert {count.opcode for count in slim.instructions.counts} == {make.HGMMA, "EXIT"}
    shares = [useful_share(case, counts_of_call(each)) for each in (whole, slim)]
    assert shares[0] == shares[1] == useful_share(case, [make.make_counts(make.HGMMA, 2**29)])
