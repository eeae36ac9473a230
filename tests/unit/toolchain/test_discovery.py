import importlib.util
import os
import sys
from pathlib import Path

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.toolchain.discovery import Tools, discover, find_compiler, find_disassembler, find_tvm_ffi


@pytest.fixture
def bare(tools: Tools, tmp_path: Path) -> dict[str, str]:
    """A PATH with the host compiler and nothing of CUDA."""
    (tmp_path / "bin").mkdir()
    for tool in ("g++", "gcc", "as", "ld", "sh"):
        for folder in os.environ["PATH"].split(os.pathsep):
            if (Path(folder) / tool).exists():
                (tmp_path / "bin" / tool).symlink_to(Path(folder) / tool)
                break
    return {"PATH": str(tmp_path / "bin")}


@pytest.fixture
def no_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python without the pip toolkit."""
    kept = [entry for entry in sys.path if not (Path(entry) / "nvidia/cu13").exists()]
    monkeypatch.setattr(sys, "path", kept)


def link_toolkit(tools: Tools, home: Path) -> Path:
    (home / "bin").mkdir(parents=True)
    script = home / "bin/nvcc"
    script.write_text(f'#!/bin/sh\nexec "{tools.compiler.nvcc}" "$@"\n')
    script.chmod(0o755)
    return script


def test_what_is_found_is_complete(tools: Tools):
    compiler = tools.compiler
    assert (compiler.include_dir / "cuda.h").is_file()
    assert (compiler.library_dir / "libcudart_static.a").is_file()
    assert compiler.version.count(".") == 2
    assert tools.host.version[0].isdigit()
    assert Path("/usr/include") in tools.host.include_dirs


def test_path_comes_before_cuda_home_and_that_before_the_wheels(tools: Tools, bare: dict[str, str], tmp_path: Path):
    first, second = link_toolkit(tools, tmp_path / "first"), link_toolkit(tools, tmp_path / "second")
    homes = bare | {"CUDA_HOME": str(first.parents[1]), "CUDA_PATH": str(second.parents[1])}
    both = homes | {"PATH": f"{second.parent}{os.pathsep}{bare['PATH']}"}
    assert find_compiler(both, tools.host)[:2] == (second, "PATH")
    assert find_compiler(homes, tools.host)[:2] == (first, "CUDA_HOME")
    assert find_compiler(bare | {"CUDA_PATH": str(second.parents[1])}, tools.host)[:2] == (second, "CUDA_HOME")


def test_a_broken_compiler_is_passed_over(tools: Tools, bare: dict[str, str], tmp_path: Path):
    broken, good = link_toolkit(tools, tmp_path / "broken"), link_toolkit(tools, tmp_path / "good")
    broken.write_text("#!/bin/sh\nexit 1\n")
    environ = bare | {"CUDA_HOME": str(broken.parents[1]), "CUDA_PATH": str(good.parents[1])}
    assert find_compiler(environ, tools.host).nvcc == good


@pytest.mark.usefixtures("no_wheels")
def test_no_nvcc_says_where_it_was_looked_for_and_how_to_get_one(tools: Tools, bare: dict[str, str], tmp_path: Path):
    broken = link_toolkit(tools, tmp_path / "broken")
    broken.write_text("#!/bin/sh\necho 'nvcc fatal   : sad' >&2; exit 1\n")
    with pytest.raises(InfrastructureError) as caught:
        find_compiler(bare | {"CUDA_HOME": str(broken.parents[1])}, tools.host)
    message = str(caught.value)
    assert caught.value.kind == "compiler_missing"
    assert "PATH: not there" in message
    assert "unusable, `nvcc --dryrun` fails for arch=compute_90a,code=sm_90a: nvcc fatal   : sad" in message
    assert "CUDA_PATH (not set): not there" in message
    assert "pip wheels (nvidia/cu13 in site-packages): not there" in message
    assert "pip install 'ptxbench[toolchain]'" in message
    assert "pip install -e '.[toolchain]'" in message


def test_no_host_compiler(tmp_path: Path):
    with pytest.raises(InfrastructureError, match=r"expected a working g\+\+ on PATH.*found none") as caught:
        discover({"PATH": str(tmp_path)})
    assert caught.value.kind == "compiler_missing"


@pytest.mark.usefixtures("no_wheels")
def test_the_disassembler_is_found_independently_of_the_compiler(bare: dict[str, str], tmp_path: Path):
    assert find_disassembler(bare) is None
    (tmp_path / "home/bin").mkdir(parents=True)
    script = tmp_path / "home/bin/nvdisasm"
    script.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.2, V13.2.86'\n")
    script.chmod(0o755)
    found = find_disassembler(bare | {"CUDA_PATH": str(tmp_path / "home")})
    assert found == (script, "13.2.86")


def test_no_tvm_ffi(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InfrastructureError, match="expected the package apache-tvm-ffi"):
        find_tvm_ffi()


def test_tvm_ffi_is_found_without_being_imported():
    before = "tvm_ffi" in sys.modules
    assert find_tvm_ffi().version.startswith("0.1.")
    assert ("tvm_ffi" in sys.modules) == before
