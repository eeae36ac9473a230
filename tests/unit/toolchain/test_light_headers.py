"""One source built with the light headers and with the full ones: every call does the same."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ptxbench.records import BuildStatus, Candidate
from ptxbench.toolchain import Toolchain, headers
from ptxbench.toolchain.discovery import Tools
from ptxbench.toolchain.plan import compiler_environ, read_plan
from ptxbench.toolchain.process import Limits, Session
from ptxbench.toolchain.steps import PREPROCESS_STEPS, Steps
from ptxbench.toolchain.translation import read_translation
from tests.unit.toolchain.parts import EXPORT, HOPPER

SOURCE = Path(__file__).parent / "sources/parity.cu"

# <climits> and std::vector come with the full headers only, and std::hex is for real streams. No hint tells so.
BEYOND_LIGHT = """
#ifndef INT_MAX
#error rejected at once
#endif
static int64_t beyond(ffi::TensorView x) {
  std::vector<int64_t> sizes(x.shape().begin(), x.shape().end());
  if (sizes.empty()) TVM_FFI_THROW(ValueError) << std::hex << 255;
  return static_cast<int64_t>(sizes.size());
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(beyond, beyond);
"""


class Parity(NamedTuple):
    light: Any
    full: Any


@pytest.fixture(scope="session")
def parity(toolchain: Toolchain) -> Parity:
    """The source built with both kinds of headers and loaded; the second is rejected with the light ones first."""
    import tvm_ffi

    source = SOURCE.read_text()
    assert headers.header_choices(source + BEYOND_LIGHT) == ("light", "full")
    with ThreadPoolExecutor(2) as pool:
        built = pool.map(lambda text: toolchain.build(Candidate(source=text), HOPPER), (source, source + BEYOND_LIGHT))
    light, full = built
    assert (light.build.toolchain.headers, full.build.toolchain.headers) == ("light", "full")
    assert (light.build.log, full.build.log) == ("", "")
    return Parity(tvm_ffi.load_module(str(light.so_path)), tvm_ffi.load_module(str(full.so_path)))


def tensors() -> dict[str, Any]:
    import numpy as np
    import tvm_ffi

    arrays = {
        "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
        "output": np.zeros((2, 3), dtype=np.float32),
        "strided": np.arange(24, dtype=np.int16).reshape(4, 6)[::2, 1::2],
        "empty": np.zeros((0, 3)),
        "scalar": np.array(1.0),
        "vector": np.zeros(5, dtype=np.float32),
    }
    return {name: tvm_ffi.from_dlpack(array) for name, array in arrays.items()}


CALLS: list[tuple[Any, ...]] = [
    *(("run", "$matrix", "$output"), ("run", "$matrix"), ("run",), ("run", "$matrix", "$output", "$output")),
    *(("run", "$matrix", 1), ("run", 1, "$matrix"), ("run", 1, "text"), ("run", None, "$matrix")),
    *(("run", "$matrix", "$vector"), ("run", "$vector", "$matrix")),
    *(("digest", name) for name in ("$matrix", "$strided", "$empty", "$scalar", "$vector", 3)),
    *(("front_and_back", "$matrix"), ("front_and_back", "$scalar")),
    *(("at", "$matrix", index) for index in (0, 1, 2, -1)),
    *((name, "$matrix", index) for name in ("size", "stride") for index in (0, 1, -1, -2, 2, -3)),
    *(("scalars", 1, 2.5, True, 0.5, 3, 4), ("scalars", 1, 2, 1, 1, True, False), ("scalars", -1, 0, 0, 0, 0, -1)),
    *(("scalars", 1.5, 2.5, True, 0.5, 3, 4), ("scalars", 1, "2", 1, 1, 1, 1), ("scalars", 2**70, 2, 1, 1, 1, 1)),
    *(("narrow", 2**33 + 1), ("narrow", 2.0), ("negate", True), ("negate", 1), ("negate", 0.0)),
    *(("is_null", None), ("is_null", 3), ("raw", "$matrix"), ("raw", 3), ("nothing",), ("nothing", 1)),
    *(("stream_is_default",), ("functor", 4), ("functor", "text"), ("caught",)),
    *(("print", "$matrix", which) for which in range(10)),
    *(("compare", which, a, b) for which in range(13) for a, b in ((1, 2), (2, 1), (1, 1))),
]


def outcome(module: Any, call: tuple[Any, ...]) -> tuple[str, str]:
    given = tensors()
    arguments = [given[a[1:]] if isinstance(a, str) and a.startswith("$") else a for a in call[1:]]
    try:
        value = getattr(module, call[0])(*arguments)
    except Exception as error:  # any kind of error is an outcome to compare
        return type(error).__name__, str(error)
    import numpy as np

    return type(value).__name__, f"{value} {np.from_dlpack(given['output']).tolist()}"


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_both_kinds_of_headers_behave_alike(parity: Parity, call: tuple[Any, ...]):
    assert outcome(parity.light, call) == outcome(parity.full, call)


def test_the_comparison_sees_results_and_messages(parity: Parity):
    assert outcome(parity.light, ("run", "$matrix", "$output")) == (
        "NoneType",
        "None [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]",
    )
    assert outcome(parity.light, ("run", "$matrix")) == (
        "TypeError",
        "Mismatched number of arguments when calling: `run(0: DLTensor*, 1: DLTensor*) -> void`. "
        "Expected 2 but got 1 arguments",
    )


def test_what_the_light_headers_lack_is_built_with_the_full_ones(parity: Parity):
    assert parity.full.beyond(tensors()["matrix"]) == 2


def test_a_source_that_both_reject_is_judged_by_the_full_ones(toolchain: Toolchain):
    build = toolchain.build(Candidate(source=EXPORT + "#error not yet written\n"), HOPPER).build
    assert (build.status, build.toolchain.headers) == (BuildStatus.COMPILE_ERROR, "full")
    assert "#error not yet written" in build.log


@pytest.fixture
def dependencies(tools: Tools, tmp_path: Path) -> Callable[[headers.Headers], set[str]]:
    """Names of the headers of apache-tvm-ffi that the smallest candidate reads, in either half."""

    def read(choice: headers.Headers) -> set[str]:
        plan = read_plan(tools.compiler.nvcc, tools.host.path, HOPPER.gencode, headers.include_dirs(choice))
        with Session(tmp_path, compiler_environ() | plan.env, Limits()) as session:
            steps = Steps(plan, tmp_path, session)
            for name in PREPROCESS_STEPS:
                steps.run(name)
        texts = [steps.product(name).read_text() for name in PREPROCESS_STEPS]
        paths = {inclusion.path for text in texts for inclusion in read_translation(text).inclusions}
        prefix = f"{headers.FULL_LINK}/"
        return {path.removeprefix(prefix) for path in paths if path.startswith(prefix)}

    headers.link_headers(tmp_path, tools.tvm_ffi.include_dir)
    (tmp_path / "kernel.cu").write_text(EXPORT)
    return read


def test_a_light_build_reads_only_the_c_interface(dependencies: Callable[[headers.Headers], set[str]]):
    assert dependencies("light") == {"tvm/ffi/c_api.h", "dlpack/dlpack.h"}
    assert dependencies("full") > {"tvm/ffi/c_api.h", "tvm/ffi/tvm_ffi.h", "tvm/ffi/function.h", "tvm/ffi/any.h"}
