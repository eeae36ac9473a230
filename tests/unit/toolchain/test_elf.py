from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.toolchain import elf as elf_module
from ptxbench.toolchain.discovery import Tools
from ptxbench.toolchain.elf import Elf, ElfError

SOURCE = """
#include <cmath>
extern "C" int outside(int);
extern "C" double inside(double x) { return outside(int(x)) + std::cos(x); }
static int hidden = 3;
extern "C" int* address() { return &hidden; }
"""


@pytest.fixture(scope="module")
def relocatable(compile_host: Callable[..., bytes]) -> bytes:
    return compile_host(SOURCE)


@pytest.fixture(scope="module")
def shared(compile_host: Callable[..., bytes]) -> bytes:
    return compile_host(SOURCE, "-shared", "-lm", "-Wl,--no-as-needed")


def test_symbols_of_an_object(relocatable: bytes):
    symbols = {symbol.name: symbol for symbol in Elf(relocatable).symbols()}
    assert not symbols["outside"].defined
    assert symbols["inside"].defined
    assert symbols["inside"].global_
    assert not symbols["_ZL6hidden"].global_


def test_dynamic_symbols_and_needed_libraries(shared: bytes):
    elf = Elf(shared)
    names = {symbol.name for symbol in elf.symbols(".dynsym") if symbol.defined}
    assert {"inside", "address"} <= names
    assert "libm.so.6" in elf.needed()
    assert "libc.so.6" in elf.needed()


def test_an_object_needs_no_library(relocatable: bytes):
    assert Elf(relocatable).needed() == ()
    assert Elf(relocatable).symbols(".dynsym") == ()


def test_section_content(relocatable: bytes):
    elf = Elf(relocatable)
    section = elf.section(".text")
    assert section is not None
    assert len(elf.content(section)) == section.size > 0
    bss = elf.section(".bss")
    assert bss is None or elf.content(bss) == b""


def test_more_sections_than_the_header_can_count(compile_host: Callable[..., bytes]):
    # 0xff00 is where the count moves out of the header.
    data = "".join(f'asm(".section .pad{i},\\"a\\"\\n.byte 1");\n' for i in range(0xFF00))
    elf = Elf(compile_host(f'{data}\nextern "C" int dlopen(); int g() {{ return dlopen(); }}'))
    assert len(elf.sections) > 0xFF00
    assert any(symbol.name == "dlopen" and not symbol.defined for symbol in elf.symbols())


def test_names_that_share_their_ends_are_not_read_without_bound(monkeypatch: pytest.MonkeyPatch, relocatable: bytes):
    names = sum(len(section.name) for section in Elf(relocatable).sections)
    monkeypatch.setattr(elf_module, "_MOST_NAMES", names)
    Elf(relocatable)
    monkeypatch.setattr(elf_module, "_MOST_NAMES", names - 1)
    with pytest.raises(ElfError, match="section names of more than"):
        Elf(relocatable)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\x01\x01" + bytes(100), b"MZ" + bytes(100)])
def test_other_files_are_refused(content: bytes):
    with pytest.raises(ElfError):
        Elf(content)


def test_this_machine_s_libraries_can_be_read(tools: Tools):
    elf = Elf((tools.tvm_ffi.library_dir / "libtvm_ffi.so").read_bytes())
    assert any(symbol.name == "TVMFFIErrorCreate" and symbol.defined for symbol in elf.symbols(".dynsym"))
    assert "libc.so.6" in elf.needed()


@given(data=st.data())
def test_damage_is_an_elf_error_and_nothing_else(relocatable: bytes, data: st.DataObject):
    damaged = bytearray(relocatable)
    for _ in range(data.draw(st.integers(1, 8))):
        # Most of what is interesting lies in the header and the section table at the end.
        position = data.draw(st.one_of(st.integers(0, 63), st.integers(0, len(damaged) - 1)))
        damaged[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for content in (bytes(damaged), bytes(damaged[:cut])):
        try:
            elf = Elf(content)
            elf.symbols()
            elf.symbols(".dynsym")
            elf.needed()
            for section in elf.sections:
                elf.content(section)
        except ElfError:
            pass
