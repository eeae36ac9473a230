"""Evidence of earlier runs, found by what was measured."""

from pathlib import Path
from typing import Any

from ptxbench.agent import RunStore
from ptxbench.agent.recorded import RecordedProfiler
from ptxbench.profiler.replay import ReplayProfiler
from ptxbench.records import Candidate, ToolStatus
from ptxbench.toolchain import Built
from tests.unit.factories import digest, make_build, make_evidence, make_record, suite_case

CANDIDATE = Candidate(source="int x;")


def built(**changes: Any) -> Built:
    return Built(make_build(**{"candidate_sha256": CANDIDATE.sha256, **changes}), Path("k.so"))


def profiler(tmp_path: Path) -> RecordedProfiler:
    store = RunStore.open(tmp_path / "run", {})
    evidence = make_evidence(candidate_sha256=CANDIDATE.sha256)
    build = make_build(candidate_sha256=CANDIDATE.sha256)
    store.save(make_record(0, source_sha256=CANDIDATE.sha256, build=build, evidence=evidence), CANDIDATE)
    store.save(make_record(1, source_sha256=CANDIDATE.sha256, build=build, evidence=None), CANDIDATE)
    return RecordedProfiler([store], ReplayProfiler([tmp_path / "evidence"]))


def test_the_same_device_code_of_the_same_source_has_its_evidence(tmp_path):
    found = profiler(tmp_path)
    assert found.origin == "replayed"
    evidence = make_evidence(candidate_sha256=CANDIDATE.sha256)
    assert found.evaluate(suite_case(), built()) == evidence
    assert found.instructions(suite_case(), built()) == evidence.instructions
    assert found.sanitize(suite_case(), built(), "memcheck") == evidence.safety[0]
    assert found.sanitize(suite_case(), built(), "racecheck").status is ToolStatus.UNAVAILABLE
    assert found.health().message == "1 recorded turns; 0 stored evidence records"
    found.close()


def test_anything_else_is_the_other_profilers_business(tmp_path):
    found = profiler(tmp_path)
    for other in (built(candidate_sha256=digest("e")), built(cubins=())):
        assert found.evaluate(suite_case(), other) is None
        assert found.instructions(suite_case(), other).status is ToolStatus.UNAVAILABLE
        assert found.sanitize(suite_case(), other, "memcheck").status is ToolStatus.UNAVAILABLE
    assert found.evaluate(suite_case("mha_bwd_d128"), built()) is None
