"""Under what conditions a candidate ran: what code was loaded, what contained it, what disturbed its measurement."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from ptxbench.records.base import Count, Record, Sha256


class LoadedModule(Record):
    """One device image that the CUDA driver loaded in the candidate's process while it had the candidate."""

    sha256: Sha256
    """Of the bytes that the driver told of."""
    bytes: Count
    from_candidate: bool
    """The image is one of the candidate's object: equal bytes, or the same machine code."""
    code_sha256: Sha256 | None = None
    """Of its machine code with the names of its sections; None where it holds none or could not be read."""
    matched_by: Literal["bytes", "code", "layout", "empty", ""] = ""
    """How it is one of the object's images: ``bytes``, all are equal; ``code``, the machine code is; ``layout``,
    its sections have the names and sizes of one, which is no proof. ``empty``: it holds no machine code. Empty text: it
    is another."""
    kernels: tuple[str, ...] = ()
    """Mangled names of the functions in it, at most 64."""


class LoadedLibrary(Record):
    """A file that was mapped with execute permission behind the candidate's load and not before."""

    path: str
    allowed: bool
    """The candidate's own object, or a library that the driver or the C library loads by itself."""


class LoadedCode(Record):
    """Code that got into the candidate's process beside its own object."""

    modules: tuple[LoadedModule, ...] = ()
    libraries: tuple[LoadedLibrary, ...] = ()
    """As the kernel of the operating system tells the oracle, not as the process itself does."""
    entry_points: tuple[str, ...] = ()
    """Driver functions that were asked of ``cudaGetDriverEntryPoint``, or of ``cuGetProcAddress`` by a name that is no
    string of the object. Those that the CUDA runtime in the object looks up for itself are none of them."""
    load_calls: tuple[str, ...] = ()
    """Functions of the CUDA driver or runtime that loaded or linked code, called by the candidate or by the runtime on
    its behalf; what they loaded is in ``modules``."""
    anonymous_code_bytes: Count = 0
    """Executable memory without a file behind it that appeared with the candidate: copied or generated host code, or
    the driver's own."""
    hidden: bool = False
    """The process kept the system from telling what is mapped in it."""
    unknown: str = ""
    """Why code could not be observed, or not all of it; empty where it was."""


class Containment(Record):
    """Layers around the candidate's process."""

    active: tuple[str, ...] = ()
    missing: dict[str, str] = Field(default_factory=dict)
    """Layer -> why this machine does not have it."""


class DisturbanceKind(StrEnum):
    """What can disturb a measurement from outside of it."""

    THROTTLED = "throttled"
    """The hardware slowed its clock down to protect itself: heat, power brake. The power limit alone is normal under
    full load."""
    FOREIGN_PROCESS = "foreign_process"
    """Another process computed on the device."""
    ECC = "ecc"
    """New uncorrectable memory errors."""
    CLOCK_CHANGED = "clock_changed"
    """The SM clock differed between trials, and not for the power limit."""
    TEMPERATURE = "temperature"
    """The driver lowered the clock to keep below the highest operating temperature."""


class Disturbance(Record):
    """One thing that disturbed an evaluation, as the driver told the oracle."""

    kind: DisturbanceKind
    message: str
    when: Literal["before", "during", "after"]
    """Against the candidate's calls."""

    @property
    def disturbing(self) -> bool:
        """Whether a latency measured meanwhile means nothing. The others are remarks."""
        return self.kind in _DISTURBING


_DISTURBING = {DisturbanceKind.THROTTLED, DisturbanceKind.FOREIGN_PROCESS, DisturbanceKind.ECC}
