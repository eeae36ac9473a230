from __future__ import annotations

import math

import pytest

from ptxbench.trace import EvaluationStatus, FileError, load_traces, save_traces
from tests.unit.trace import samples

CORRECTNESS = {"max_relative_error": 1.0, "max_absolute_error": 1.0}
PERFORMANCE = {"latency_ms": 1.0, "reference_latency_ms": 1.0, "speedup_factor": 1.0}


def evaluated(status: str, *, correctness: bool, performance: bool) -> dict[str, object]:
    trace = samples.trace()
    trace["evaluation"] |= {
        "status": status,
        "correctness": CORRECTNESS if correctness else None,
        "performance": PERFORMANCE if performance else None,
    }
    return trace


def test_there_are_seven_statuses():
    assert [status.value for status in EvaluationStatus] == [
        "PASSED",
        "INCORRECT_SHAPE",
        "INCORRECT_NUMERICAL",
        "INCORRECT_DTYPE",
        "RUNTIME_ERROR",
        "COMPILE_ERROR",
        "TIMEOUT",
    ]


@pytest.mark.parametrize("status", list(EvaluationStatus))
@pytest.mark.parametrize("correctness", [False, True])
@pytest.mark.parametrize("performance", [False, True])
def test_status_decides_which_fields_there_are(tmp_path, status, correctness, performance):
    wanted = {
        EvaluationStatus.PASSED: (True, True),
        EvaluationStatus.INCORRECT_NUMERICAL: (True, False),
    }.get(status, (False, False))
    path = samples.write_jsonl(
        tmp_path / "t.jsonl", evaluated(status.value, correctness=correctness, performance=performance)
    )
    if (correctness, performance) == wanted:
        assert load_traces(path)[0].evaluation is not None
    else:
        with pytest.raises(FileError, match=f"with status {status.value}") as caught:
            load_traces(path)
        assert caught.value.field in ("evaluation.correctness", "evaluation.performance")
        assert caught.value.line == 1


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_non_finite_errors_are_written_as_strings_and_read_back(tmp_path, value):
    trace = evaluated("INCORRECT_NUMERICAL", correctness=True, performance=False)
    samples.change(trace, "evaluation", "correctness", to={"max_absolute_error": str(value).replace("inf", "Infinity")})
    samples.change(trace, "evaluation", "correctness", "max_absolute_error", to="NaN" if value != value else "Infinity")
    samples.change(trace, "evaluation", "correctness", "extra", to={"rows": [1, None, "x"]})
    path = samples.write_jsonl(tmp_path / "t.jsonl", trace)
    loaded = load_traces(path)
    save_traces(loaded, path)
    again = load_traces(path)[0].evaluation
    assert again is not None
    assert again.correctness is not None
    assert repr(again.correctness.max_absolute_error) == repr(value)
    assert again.correctness.extra == {"rows": [1, None, "x"]}


@pytest.mark.parametrize(
    ("steps", "value", "field"),
    [
        (["evaluation", "status"], "OK", "evaluation.status"),
        (["evaluation", "correctness", "max_absolute_error"], -1.0, "evaluation.correctness.max_absolute_error"),
        (["evaluation", "performance", "latency_ms"], -0.5, "evaluation.performance.latency_ms"),
        (["evaluation", "performance", "speedup"], 1.0, "evaluation.performance.speedup"),
        (["evaluation", "environment", "hardware"], "", "evaluation.environment.hardware"),
        (["evaluation", "timestamp"], "", "evaluation.timestamp"),
        (["definition"], "", "definition"),
    ],
)
def test_refuses(tmp_path, steps, value, field):
    path = samples.write_jsonl(
        tmp_path / "t.jsonl", samples.workload(), samples.change(samples.trace(), *steps, to=value)
    )
    with pytest.raises(FileError) as caught:
        load_traces(path)
    assert (caught.value.field, caught.value.line) == (field, 2)


def test_profiles_are_read(tmp_path):
    launch = {
        "name": "k",
        "duration_ns": 10,
        "grid": [1, 1, 1],
        "block": [128, 1, 1],
        "registers_per_thread": 32,
        "static_shared_memory": 0,
        "dynamic_shared_memory": 0,
        "shared_memory_executed": 0,
        "local_memory_per_thread": 0,
        "local_memory_total": 0,
    }
    trace = samples.change(samples.trace(), "evaluation", "performance", "profile", to=[launch])
    evaluation = load_traces(samples.write_jsonl(tmp_path / "t.jsonl", trace))[0].evaluation
    assert evaluation is not None
    assert evaluation.performance is not None
    assert evaluation.performance.profile is not None
    assert evaluation.performance.profile[0].block == (128, 1, 1)
