"""Loaded images against a real object: what the toolchain built, as a driver could tell of it."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ptxbench.cases import load_suite
from ptxbench.profiler import loaded_code
from ptxbench.profiler.loaded_code import observe, own_code, read_image
from ptxbench.profiler.mappings import UNREADABLE, Mapped
from ptxbench.profiler.replies import WorkerError
from ptxbench.profiler.sandbox import MAX_NAMES
from ptxbench.records import Build, Candidate, LoadedCode
from ptxbench.toolchain import Toolchain
from ptxbench.toolchain.elf import Elf, ElfError
from ptxbench.toolchain.fatbin import SECTION, cubins
from tests.conftest import ROOT
from tests.unit.profiler.stand_in import CONNECT, LOADED, READY, Start
from tests.unit.toolchain.parts import shared_cache

KERNEL = "_Z8observedPi"
SOURCE = """#include <cuda_runtime.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

__device__ int table[64];

__global__ void observed(int* out) { out[threadIdx.x] = table[threadIdx.x]; }

static void run(tvm::ffi::TensorView C) { observed<<<1, 64>>>(static_cast<int*>(C.data_ptr())); }

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""
OBJECT = "the object"
"""Stands for the path at which the process finds it."""
BEFORE = Mapped(frozenset({"/usr/lib/libc.so.6"}), 4096)


class Made(NamedTuple):
    """A built object and its device images."""

    path: Path
    build: Build
    cubin: bytes
    empty: tuple[bytes, ...]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    arch = load_suite(ROOT, "primary").case("gemm_n7168_k5120", "h100").arch
    built = Toolchain.discover(shared_cache(tmp_path_factory)).build(Candidate(source=SOURCE), arch)
    assert built.so_path is not None, built.build.log
    elf = Elf(built.so_path.read_bytes())
    section = elf.section(SECTION)
    assert section is not None
    images = cubins(elf.content(section))
    (cubin,) = [image for image in images if read_image(image).code]
    return Made(built.so_path, built.build, cubin, tuple(image for image in images if image != cubin))


def answers(images: list[bytes], **told: object) -> str:
    modules = [{"sha256": hashlib.sha256(image).hexdigest(), "bytes": len(image)} for image in images]
    loaded = {"modules": modules, "entry_points": [], "lookups": [], "calls": [], "fault": "", **told}
    encoded = [base64.b64encode(image).decode() for image in images]
    return (
        f"{CONNECT}{READY}{LOADED}"
        f"answers = iter({[json.dumps(loaded), *(json.dumps({'image': image}) for image in encoded)]!r})\n"
        "for answer in answers:\n    hear()\n    say(answer.encode())\nhear()\n"
    )


def seen(
    start: Start, made: Made, images: list[bytes], *after: Mapped, before: Mapped = BEFORE, **told: Any
) -> LoadedCode:
    worker = start(answers(images, **told))
    worker.wait_ready()
    worker.load({})
    own = str(worker.object_path(str(made.path)))
    seen_at = [each._replace(files=frozenset(own if path == OBJECT else path for path in each.files)) for each in after]
    found = observe(worker, made.path, before, seen_at or [before])
    libraries = [
        library.model_copy(update={"path": OBJECT}) if library.path == Path(own).name else library
        for library in found.libraries
    ]
    return found.model_copy(update={"libraries": tuple(libraries)})


def patched(image: bytes, place: int) -> bytes:
    changed = bytearray(image)
    changed[place] ^= 0xFF
    return bytes(changed)


def code_offset(image: bytes) -> int:
    section = Elf(image).section(f".text.{KERNEL}")
    assert section is not None
    return section.offset


def test_the_object_s_images_are_those_of_the_build(made: Made) -> None:
    own = own_code(made.path)
    assert {cubin.sha256 for cubin in made.build.cubins} <= own.sha256
    (image,) = [image for image in own.images if image.code]
    assert set(image.code) == {f".text.{KERNEL}"}


def test_equal_bytes_are_the_candidate_s(start: Start, made: Made) -> None:
    found = seen(start, made, [made.cubin, *made.empty])
    assert all(module.from_candidate and module.matched_by == "bytes" for module in found.modules)
    assert found.modules[0].kernels == (KERNEL,)
    assert found.modules[0].code_sha256 == read_image(made.cubin).sha256
    assert found.unknown == ""


def test_equal_code_is_the_candidate_s_whatever_else_differs(start: Start, made: Made) -> None:
    (module,) = seen(start, made, [patched(made.cubin, 50)]).modules  # flags in the header
    assert (module.from_candidate, module.matched_by) == (True, "code")
    assert module.code_sha256 == read_image(made.cubin).sha256


def test_other_instructions_are_not_the_candidate_s(start: Start, made: Made) -> None:
    (module,) = seen(start, made, [patched(made.cubin, code_offset(made.cubin))]).modules
    assert (module.from_candidate, module.matched_by) == (False, "layout")
    assert module.code_sha256 != read_image(made.cubin).sha256


def test_another_image_is_foreign(start: Start, made: Made) -> None:
    renamed = made.cubin.replace(KERNEL.encode(), KERNEL.replace("observed", "smuggled").encode())
    found = seen(start, made, [made.cubin, renamed, b".version 9.0 // PTX"])
    assert [module.matched_by for module in found.modules] == ["bytes", "", ""]
    assert found.modules[1].kernels == (KERNEL.replace("observed", "smuggled"),)
    assert (found.modules[2].kernels, found.modules[2].code_sha256) == ((), None)


def test_an_image_without_code_is_empty(start: Start, made: Made) -> None:
    header = bytearray(made.cubin[:64])
    struct.pack_into("<Q", header, 40, 0)  # no section headers
    struct.pack_into("<HHH", header, 58, 0, 0, 0)
    (module,) = seen(start, made, [bytes(header)]).modules
    assert (module.from_candidate, module.matched_by) == (False, "empty")


def test_an_image_whose_sections_lie_over_each_other_is_not_copied_for_each_of_them(made: Made) -> None:
    """The image is the candidate's word: 3 MB of it could fill the oracle's memory a thousandfold."""
    elf = Elf(made.cubin)
    headers = int.from_bytes(made.cubin[40:48], "little")
    forged = bytearray(made.cubin)
    place = headers + 64 * next(at for at, each in enumerate(elf.sections) if each.name == f".text.{KERNEL}")
    forged[place + 24 : place + 40] = bytes(8) + len(forged).to_bytes(8, "little")
    assert read_image(bytes(forged)).code, "one that is as large as the file could be honest"
    again = bytes(forged[place : place + 64])
    with pytest.raises(ElfError, match="larger together than the file"):
        read_image(with_section(bytes(forged), again))


def with_section(image: bytes, header: bytes) -> bytes:
    """The image with one more section header; the table moves to the end."""
    begin, count = int.from_bytes(image[40:48], "little"), int.from_bytes(image[60:62], "little")
    table = image[begin : begin + 64 * count] + header
    moved = bytearray(image + table)
    moved[40:48], moved[60:62] = len(image).to_bytes(8, "little"), (count + 1).to_bytes(2, "little")
    return bytes(moved)


def test_only_names_put_together_at_run_time_are_told_of_the_lookups(start: Start, made: Made) -> None:
    """The runtime in the object looks up its own by strings that it holds."""
    found = seen(
        start,
        made,
        [made.cubin],
        lookups=["cuMemAlloc_v2", "cuLinkAddSmuggled"],
        entry_points=["cuTensorMapEncodeTiled"],
        calls=["cuLibraryLoadData"],
    )
    assert b"\0cuMemAlloc_v2\0" in made.path.read_bytes()
    assert found.entry_points == ("cuLinkAddSmuggled", "cuTensorMapEncodeTiled")
    assert found.load_calls == ("cuLibraryLoadData",)


def test_lookups_behind_which_others_could_hide_are_all_told(start: Start, made: Made) -> None:
    """Names that the object spells are no entry points, but a thousand of them are all that a sandbox tells of."""
    names = [f"cuMemAlloc_v2{number:03}" for number in range(999)]
    assert len(seen(start, made, [made.cubin], lookups=["cuMemAlloc_v2", *names[:-1]]).entry_points) == 998
    crowded = seen(start, made, [made.cubin], lookups=["cuMemAlloc_v2", *names])
    assert len(crowded.entry_points) == MAX_NAMES
    assert "cuMemAlloc_v2" in crowded.entry_points


def test_mappings_are_compared_with_those_before(start: Start, made: Made) -> None:
    grown = Mapped(BEFORE.files | {OBJECT, "/opt/libcublas.so.13"}, 12_288)
    found = seen(start, made, [made.cubin], grown, BEFORE)
    assert {library.path: library.allowed for library in found.libraries} == {
        OBJECT: True, "/opt/libcublas.so.13": False,
    }  # fmt: skip
    assert (found.anonymous_code_bytes, found.hidden) == (8_192, False)
    assert seen(start, made, [made.cubin], UNREADABLE).hidden


def test_what_is_not_known_is_said(start: Start, made: Made) -> None:
    assert seen(start, made, []).unknown == "the driver told of no module that was loaded"
    assert seen(start, made, [made.cubin], fault="cuptiSubscribe failed").unknown == "cuptiSubscribe failed"
    unread = seen(start, made, [made.cubin], before=UNREADABLE)
    assert (unread.unknown, unread.hidden) == ("what is mapped in the process could not be read", False)


@pytest.mark.parametrize(
    "told",
    [
        {"modules": [{"sha256": "x", "bytes": 1}]},
        {"modules": [{"sha256": "0" * 64, "bytes": 1}] * 65},
        {"lookups": ["n"] * 1001},
        {"entry_points": ["n" * 201]},
        {"more": 1},
    ],
)
def test_a_malformed_answer_blames_the_candidate(start: Start, made: Made, told: dict[str, Any]) -> None:
    with pytest.raises(WorkerError, match="something else than"):
        seen(start, made, [], **told)


def test_an_object_that_cannot_be_read_is_not_known(start: Start, made: Made, tmp_path: Path) -> None:
    path = tmp_path / "damaged.so"
    path.write_bytes(made.path.read_bytes()[:1000])
    found = seen(start, made._replace(path=path), [made.cubin])
    assert found.modules == ()
    assert "could not be read" in found.unknown
    loaded_code.own_code.cache_clear()
