"""Under what conditions a candidate ran: what code was loaded, what contained it, what disturbed its measurement."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from ptxbench.records.base import Count, Record, Sha256


class LoadedModule(Record):
    """One device image that the CUDA driver loaded in the candidate's process while it had the candidate."""

    sha256: Sha256
    """Of the bytes as the driver got or finalized them."""
    bytes: Count
    from_candidate: bool
    """The image is one of the candidate's object: equal bytes, or the same machine code."""
    code_sha256: Sha256 | None = None
    """Of its machine code sections with their names; None where it is no ELF file or holds no code."""
    matched_by: Literal["bytes", "code", ""] = ""
    """What was equal. Empty where nothing was."""
    kernels: tuple[str, ...] = ()
    """Mangled names of the functions in it, the first of them."""


class LoadedLibrary(Record):
    """A file that was mapped with execute permission behind the candidate's load and not before."""

    path: str
    allowed: bool
    """The candidate's own object, or a library that the driver or runtime loads by itself."""


class LoadedCode(Record):
    """Code that got into the candidate's process beside its own object."""

    modules: tuple[LoadedModule, ...] = ()
    libraries: tuple[LoadedLibrary, ...] = ()
    """As the kernel of the operating system tells the oracle, not as the process itself does."""
    entry_points: tuple[str, ...] = ()
    """Names that were asked of ``cuGetProcAddress`` or ``cudaGetDriverEntryPoint`` by the candidate."""
    load_calls: tuple[str, ...] = ()
    """Calls of the CUDA driver or runtime that load or link code, made by the candidate itself."""
    anonymous_code_bytes: Count = 0
    """Executable memory without a file behind it that appeared with the candidate: copied or generated host code."""
    unknown: str = ""
    """Why device code or calls could not be observed; empty where they were."""


class Containment(Record):
    """Layers around the candidate's process."""

    active: tuple[str, ...] = ()
    missing: dict[str, str] = Field(default_factory=dict)
    """Layer -> why this machine does not have it."""


class DisturbanceKind(StrEnum):
    """What can disturb a measurement from outside of it."""

    THROTTLED = "throttled"
    """The hardware slowed the clock down: heat, power brake. The power limit alone is normal under full load."""
    FOREIGN_PROCESS = "foreign_process"
    """Another process computed on the device."""
    ECC = "ecc"
    """New uncorrectable memory errors."""
    CLOCK_CHANGED = "clock_changed"
    """The SM clock differed between trials by more than the power limit explains."""
    TEMPERATURE = "temperature"
    """The device reached the temperature at which it slows down."""


class Disturbance(Record):
    """One thing that disturbed an evaluation, as the driver told the oracle."""

    kind: DisturbanceKind
    message: str
    when: Literal["before", "during", "after"]
    """Against the candidate's calls."""
