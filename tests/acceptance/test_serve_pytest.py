"""``--profiler http://...``: the benchmark measured elsewhere is the benchmark."""

import json

import pytest

from tests.support.service import serving

GEMM = "h100 and gemm"
QUIET = ("-p", "no:cacheprovider", "-m", "h100")
OF_THE_RUN = ("run", "created_at", "environment", "stages_ms", "measured_at")


def comparable(value: object) -> object:
    """A report without what two runs of the same thing never share."""
    if isinstance(value, dict):
        return {name: comparable(part) for name, part in value.items() if name not in OF_THE_RUN}
    return [comparable(part) for part in value] if isinstance(value, list) else value


def test_report_over_http_equals_the_one_of_this_process(judged: pytest.Pytester, build_cache) -> None:
    with serving(
        judged.path / "generated" / "serve",
        "--profiler",
        "replay",
        root=judged.path,
        env={"PTXBENCH_CACHE": str(build_cache)},
    ) as service:
        for name, profiler in (("here", "replay"), ("there", service.url)):
            result = judged.runpytest_subprocess(
                *QUIET, "--profiler", profiler, "--run", name, "--ptx-json", f"{name}.json"
            )
            result.assert_outcomes(passed=15, deselected=15)
    here, there = (json.loads((judged.path / f"{name}.json").read_text()) for name in ("here", "there"))
    assert comparable(there) == comparable(here)
    assert [turn["verdict"]["outcome"] for turn in there["turns"]] == ["correct"] * 5


def test_without_the_service_it_is_an_error_of_the_machinery_and_no_failure(judged: pytest.Pytester) -> None:
    result = judged.runpytest_subprocess(*QUIET, "-k", "gemm", "--profiler", "http://127.0.0.1:9")
    result.assert_outcomes(errors=3, deselected=27)
    result.stdout.fnmatch_lines(["*infrastructure fault service_unavailable: *start `ptxbench serve`*"])
