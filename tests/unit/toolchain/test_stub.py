from pathlib import Path

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.toolchain.discovery import Tools
from ptxbench.toolchain.elf import Elf
from ptxbench.toolchain.stub import declared_functions, write_stub


def test_declared_names():
    text = "CUresult cuInit(unsigned f);\nCUresult  cuMemAlloc_v2 (CUdeviceptr* p);\ntypedef int CUdevice; int cufoo();"
    assert declared_functions(text) == {"cuInit", "cuMemAlloc_v2"}


def test_the_stub_defines_the_driver(tools: Tools, tmp_path: Path):
    write_stub(tmp_path, tools.host.path, tools.compiler.include_dir)
    elf = Elf((tmp_path / "libcuda.so").read_bytes())
    defined = {symbol.name for symbol in elf.symbols(".dynsym") if symbol.defined}
    assert {"cuTensorMapEncodeTiled", "cuMemAlloc_v2", "cuStreamSynchronize", "cuStreamSynchronize_ptsz"} <= defined
    assert elf.needed() == ()
    assert b"libcuda.so.1\0" in (tmp_path / "libcuda.so").read_bytes()


def test_a_header_that_is_not_there_is_an_infrastructure_error(tools: Tools, tmp_path: Path):
    with pytest.raises(InfrastructureError, match=r"stand-in for libcuda.*cuda\.h") as caught:
        write_stub(tmp_path, tools.host.path, tmp_path)
    assert caught.value.kind == "compiler_crashed"
