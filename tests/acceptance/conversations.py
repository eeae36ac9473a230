"""Conversations over real HTTP: a scripted server answers with kernels whose evidence is stored."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ptxbench.agent import RunStore
from ptxbench.cli import main
from ptxbench.records import TurnRecord
from tests.acceptance.parts import SOURCE
from tests.conftest import ROOT
from tests.fixtures.kernels import load
from tests.support.llm_script import Answer, Step, kernel
from tests.support.llm_server import LlmServer, Seen

KEY = "sk-test-0123456789abcdef0123456789abcdef"
KEY_VARIABLE = "PTXBENCH_TEST_API_KEY"
MODEL = "scripted"
CASE = "gemm_n7168_k5120"
TRAJECTORY = f"{MODEL}-{CASE}-h100-v0-t0"

OUTCOMES = {
    "": "extraction_error",
    "screened": "screened",
    "compile_error": "compile_error",
    "oob_write": "memory_error",
    "illegal_address": "runtime_error",
    "endless": "timeout",
    "wrong_result": "numerical_error",
    "generic_gemm": "correct",
}
"""Fixture kernel of each turn (none: an answer without code) and what must become of it."""
SCREENED = f"#include <cublas_v2.h>\n{SOURCE}"
REFUSED = """\
__global__ void small(float* out) {{ out[0] = undeclared_{number}; }}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, small);
"""
"""A kernel that the compiler refuses, numbered to be one of its own.

It includes nothing: a source that does is tried with the light and then with the full headers, in five times the time.
"""


def answer(name: str, **changes: Any) -> Answer:
    """An answer that holds a fixture kernel; an answer without code for no name."""
    if not name:
        return Answer(text="I would start with a tiled GEMM, but I am not sure about the layout.", **changes)
    return kernel(SCREENED if name == "screened" else load(name), **changes)


def refused(number: int, **changes: Any) -> Answer:
    """An answer whose kernel does not compile, which is found out in a moment."""
    return kernel(REFUSED.format(number=number), **changes)


def by_turn(steps: Iterable[Step]) -> Callable[[Seen], Step]:
    """A script that answers each turn of any trajectory with the step of that number."""
    listed = list(steps)
    return lambda seen: listed[seen.turn]


def first_then(*steps: Step, then: Callable[[Seen], Step]) -> Callable[[Seen], Step]:
    """A script that plays ``steps`` for the first requests, whatever they are, and goes on with another one."""
    return lambda seen: steps[seen.number] if seen.number < len(steps) else then(seen)


class Entry(NamedTuple):
    """One model of a models file."""

    server: LlmServer
    name: str = MODEL
    fields: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def text(self) -> str:
        """As YAML; JSON is."""
        prices = {"input": 2.0, "cached_input": 0.5, "output": 10.0}
        fields = {
            "provider": "openai",
            "model": f"{self.name}-1",
            "api_base": self.server.url,
            "api_key_env": KEY_VARIABLE,
            "max_output_tokens": 32_000,
            "prices": prices,
            **self.fields,
        }
        return f"  {self.name}: {json.dumps({key: value for key, value in fields.items() if value is not None})}\n"


class Conversations:
    """A checkout whose models are scripted servers and whose evidence is this checkout's."""

    def __init__(self, checkout: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checkout = checkout
        self.path = checkout.path
        monkeypatch.setenv(KEY_VARIABLE, KEY)
        # Other packages' plugins are half of what it takes to start a session.
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        for proxy in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.delenv(proxy, raising=False)
            monkeypatch.delenv(proxy.lower(), raising=False)
        (self.path / "generated" / "reference").symlink_to(ROOT / "generated" / "reference")
        (self.path / "tests").mkdir()
        (self.path / "tests" / "evidence").symlink_to(ROOT / "tests" / "evidence")

    def arguments(self, *entries: Entry, run: str = "talk", turns: int = 8, check: str = "test_correct") -> list[str]:
        """pytest's, after a models file for ``entries`` was written."""
        file = self.path / "models.yaml"
        file.write_text("models:\n" + "".join(entry.text() for entry in entries))
        models = [f"--model={entry.name}" for entry in entries]
        return [
            *("-p", "no:cacheprovider", "-p", "xdist", "--profiler=replay", "-m", "h100 and gemm", "-k", check),
            *(f"--models-file={file}", *models, f"--turns={turns}", f"--run={run}", f"--ptx-json={run}.json", "-rs"),
        ]

    def run(self, *entries: Entry, more: Iterable[str] = (), apart: bool = False, **options: Any) -> pytest.RunResult:
        """A whole session, in this process unless it is to be ``apart``: starting one is most of what it takes."""
        run = self.checkout.runpytest_subprocess if apart else self.checkout.runpytest_inprocess
        return run(*self.arguments(*entries, **options), *more)

    def store(self, run: str = "talk") -> RunStore:
        """A run folder."""
        return RunStore.read(self.path / "generated" / run)

    def records(self, run: str = "talk") -> list[TurnRecord]:
        """Its turns in order."""
        return [stored.record for stored in self.store(run).turns()]

    def outcomes(self, run: str = "talk") -> list[str]:
        """Their outcomes."""
        return [record.verdict.outcome.value for record in self.records(run)]

    def judged_again(self, run: str = "talk") -> list[str]:
        """The table of ``ptxbench judge``, with its notes."""
        with contextlib.redirect_stdout(io.StringIO()) as output:
            assert main(["judge", run]) == 0
        *table, last = output.getvalue().splitlines()
        assert last == f"{len(self.records(run))} turns judged again, 0 verdicts changed"
        return table

    def report(self, run: str = "talk") -> dict[str, Any]:
        """The JSON report without what differs from session to session: when calls were made, what time things took."""
        document: dict[str, Any] = json.loads((self.path / f"{run}.json").read_text())
        stripped: dict[str, Any] = _without(
            document, {"asked_at", "failed_attempts", "latency_s", "median_latency_s", "stages_ms"}
        )
        return stripped


def _without(value: Any, names: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(inner, names) for key, inner in value.items() if key not in names}
    return [_without(inner, names) for inner in value] if isinstance(value, list) else value


def table(result: pytest.RunResult) -> list[str]:
    """The table at the end of a session, with its notes."""
    lines: list[str] = result.outlines
    start = next(number for number, line in enumerate(lines) if line.startswith("=") and " PTXBench " in line) + 1
    return lines[start : next(number for number, line in enumerate(lines) if line.startswith("Total: "))]


def files_with(folder: Path, text: str) -> list[Path]:
    """Every file under ``folder`` whose name or content holds ``text``."""
    wanted = text.encode()
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and (wanted in path.read_bytes() or text in path.name)
    ]


def wait_for(server: LlmServer, requests: int) -> None:
    deadline = time.monotonic() + 60
    while len(server.seen) < requests:
        assert time.monotonic() < deadline, f"only {len(server.seen)} requests after 60 s"
        time.sleep(0.01)
