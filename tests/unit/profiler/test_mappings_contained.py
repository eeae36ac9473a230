"""What the oracle sees of native code in the real program of the sandbox, with its layers and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxbench.profiler.containment import OPTIONAL
from ptxbench.profiler.loaded_code import observe
from ptxbench.profiler.mappings import mapped
from ptxbench.records import LoadedCode
from tests.support import contained

MAPS = """
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
extern "C" int quiet() { return 0; }
extern "C" int maps() {
  const int file = open("LIBRARY", O_RDONLY);
  if (file < 0 || mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED) return 1;
  return mmap(nullptr, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
}
"""


def library() -> Path:
    """A shared object that is neither of the driver nor of the interpreter, at a path that a sandbox sees."""
    found = [path for name in ("libgomp", "libgdbm", "libasan") for path in Path("/usr/lib").glob(f"*/{name}.so.*")]
    if not found:
        pytest.skip("this machine has none of the libraries that the test maps")
    return found[0].resolve()


@pytest.fixture(scope="module")
def candidate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("mapping")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(contained.install_stubs(folder)))
        yield contained.build_text(MAPS.replace("LIBRARY", str(library())), folder / "maps.so")


def looked_at(candidate: Path, symbol: str, layers: tuple[str, ...]) -> LoadedCode:
    worker = contained.start(layers)
    try:
        before = mapped(worker.pid)
        worker.load(contained.job(candidate, symbol))
        worker.call()
        return observe(worker, candidate, before, [mapped(worker.pid)])
    finally:
        worker.close()


@pytest.mark.parametrize("layers", [OPTIONAL, ()], ids=["contained", "plain"])
def test_a_quiet_candidate_has_its_object_alone(candidate: Path, layers: tuple[str, ...]) -> None:
    found = looked_at(candidate, "quiet", layers)
    assert not found.hidden
    assert [Path(each.path).name for each in found.libraries if each.allowed] == [candidate.name]
    assert [each.path for each in found.libraries if not each.allowed] == []
    assert found.anonymous_code_bytes == 0


@pytest.mark.parametrize("layers", [OPTIONAL, ()], ids=["contained", "plain"])
def test_what_native_code_maps_is_seen(candidate: Path, layers: tuple[str, ...]) -> None:
    found = looked_at(candidate, "maps", layers)
    assert [each.path for each in found.libraries if not each.allowed] == [str(library())]
    assert found.anonymous_code_bytes == 8192
