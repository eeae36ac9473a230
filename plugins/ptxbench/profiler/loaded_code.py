"""Loaded-code proof: device code of the candidate's process against the candidate's own object.

The sandbox tells what CUPTI told it; images that are not byte for byte the object's are read and compared here. The
object's file is read by the oracle, so a candidate can only claim to have loaded less, not that something is its own
which is not, unless it forges the image of its own object for another's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, StringConstraints, ValidationError

from ptxbench.profiler import mappings
from ptxbench.profiler.mappings import Mapped
from ptxbench.profiler.replies import failure_of
from ptxbench.profiler.sandbox import MAX_IMAGE_BYTES, MAX_MODULES, MAX_NAMES
from ptxbench.profiler.worker import Worker
from ptxbench.records import LoadedCode, LoadedModule, Record, RunStatus, Sha256
from ptxbench.toolchain import fatbin
from ptxbench.toolchain.elf import Elf, ElfError

_TEXT = ".text."
"""Sections of machine code in a cubin, one per kernel or function that was not inlined, by its name."""
MAX_KERNELS = 64
"""Names that a module's record holds."""
MAX_NAME_CHARS = 4_096

_Name = Annotated[str, StringConstraints(max_length=200)]
_Names = Annotated[tuple[_Name, ...], Field(max_length=MAX_NAMES)]


class _Told(Record):
    """A module in the answer to ``loaded``."""

    sha256: Sha256
    bytes: Annotated[int, Field(gt=0, lt=1 << 40)]


class _Loaded(Record):
    """The answer to ``loaded``."""

    modules: Annotated[tuple[_Told, ...], Field(max_length=MAX_MODULES)]
    entry_points: _Names
    lookups: _Names
    calls: _Names
    fault: Annotated[str, StringConstraints(max_length=1_000)]


class _Image(Record):
    """The answer to ``image``."""

    image: Annotated[str, StringConstraints(max_length=2 * MAX_IMAGE_BYTES)]


_STRING = re.compile(rb"(?<=\0)[!-~]{2,200}(?=\0)")
"""Read once for each object: searching it for each of the 400 names took 0.1 s of every evaluation."""


class Image(NamedTuple):
    """One cubin, read."""

    code: dict[str, bytes]
    """Section of machine code -> its bytes."""

    @property
    def layout(self) -> dict[str, int]:
        """Sections and sizes: what stays when the driver finalizes code."""
        return {name: len(code) for name, code in self.code.items()}

    @property
    def sha256(self) -> str | None:
        """Hash of the machine code, None where there is none."""
        if not self.code:
            return None
        digest = hashlib.sha256()
        for name, code in sorted(self.code.items()):
            digest.update(f"{name}\0{len(code)}\0".encode() + code)
        return digest.hexdigest()


class Own(NamedTuple):
    """Device code of a shared object."""

    sha256: frozenset[str]
    """Of its cubins, whole."""
    images: tuple[Image, ...]
    strings: frozenset[bytes]
    """What stands in the file between two zero bytes and can be a name."""


def read_image(data: bytes) -> Image:
    """Read a cubin. Raises ElfError."""
    elf = Elf(data)
    # Sections that lie over each other would be copied each: those of one image fill the memory of this process.
    code = [section for section in elf.sections if section.name.startswith(_TEXT)]
    if sum(section.size for section in code) > len(data):
        raise ElfError("its sections of machine code are larger together than the file")
    return Image({section.name: elf.content(section) for section in code})


@lru_cache(maxsize=4)
def own_code(so_path: Path) -> Own:
    """Device code of an object that the toolchain built. Raises OSError, ElfError or FatbinError."""
    data = so_path.read_bytes()
    elf = Elf(data)
    section = elf.section(fatbin.SECTION)
    cubins = fatbin.cubins(elf.content(section)) if section is not None else ()
    hashes = frozenset(hashlib.sha256(cubin).hexdigest() for cubin in cubins)
    return Own(hashes, tuple(map(read_image, cubins)), frozenset(_STRING.findall(data)))


def observe(worker: Worker, so_path: Path, before: Mapped, after: list[Mapped]) -> LoadedCode:
    """What was loaded in the candidate's process, by its own word and by the kernel's. Raises WorkerError."""
    told = _ask(worker)
    host = LoadedCode(
        libraries=mappings.new_libraries(before, after, str(worker.object_path(str(so_path))), str(worker.folder)),
        anonymous_code_bytes=max(0, max((each.anonymous_bytes for each in after), default=0) - before.anonymous_bytes),
        hidden=before.readable and not all(each.readable for each in after),
        load_calls=told.calls,
    )
    try:
        own = own_code(so_path)
    except (OSError, ElfError, fatbin.FatbinError) as error:
        return host.model_copy(update={"unknown": f"the candidate's object could not be read: {error}"})
    modules = tuple(_module(worker, module, own) for module in told.modules)
    unread = "" if before.readable else "what is mapped in the process could not be read"
    device = {
        "modules": modules,
        "entry_points": tuple(sorted({*told.entry_points, *_assembled(told.lookups, own.strings)})),
        "unknown": told.fault or unread or ("" if modules else "the driver told of no module that was loaded"),
    }
    return host.model_copy(update=device)


def _ask(worker: Worker) -> _Loaded:
    reply = worker.request("loaded")
    try:
        return _Loaded.model_validate_json(reply)
    except ValidationError:
        raise failure_of(reply, RunStatus.RUNTIME_ERROR) from None


def _assembled(lookups: tuple[str, ...], strings: frozenset[bytes]) -> list[str]:
    """Lookups of names that no string of the object is: put together at run time.

    The CUDA runtime, which is linked into every object, looks up some 400 driver functions when it starts, all of them
    by strings that it holds. What the source spells out is the screen's to read.
    """
    if len(lookups) >= MAX_NAMES:
        return list(lookups)  # no more are told of, and whoever asks for so many may have asked for others behind them
    return [name for name in lookups if name.encode() not in strings]


def _module(worker: Worker, told: _Told, own: Own) -> LoadedModule:
    image = _fetch(worker)
    if told.sha256 in own.sha256:
        matched: Literal["bytes", "code", "layout", "empty", ""] = "bytes"
    else:
        matched = _match(image, own) if image is not None else ""
    names = [name.removeprefix(_TEXT)[:MAX_NAME_CHARS] for name in sorted(image.code)] if image else []
    return LoadedModule(
        sha256=told.sha256,
        bytes=told.bytes,
        from_candidate=matched in ("bytes", "code"),
        code_sha256=image.sha256 if image is not None else None,
        matched_by=matched,
        kernels=tuple(names[:MAX_KERNELS]),
    )


def _fetch(worker: Worker) -> Image | None:
    """The next module's image, None where it is no cubin or was too large to be told."""
    reply = worker.request("image")
    try:
        return read_image(base64.b64decode(_Image.model_validate_json(reply).image, validate=True))
    except ValidationError:
        raise failure_of(reply, RunStatus.RUNTIME_ERROR) from None
    except (binascii.Error, ElfError):
        return None


def _match(image: Image, own: Own) -> Literal["code", "layout", "empty", ""]:
    """How an image is one of the object's, where its bytes are none of them."""
    if not image.code:
        return "empty"
    # ptxas leaves nothing in the code of a whole program to be filled in at loading: addresses are in constant banks.
    if any(mine.code == image.code for mine in own.images):
        return "code"
    return "layout" if any(mine.layout == image.layout for mine in own.images) else ""
