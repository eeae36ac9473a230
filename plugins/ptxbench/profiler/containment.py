"""Which layers stand around a candidate's process: chosen once for a machine, by trying them, and remembered.

What the kernel refuses to set up is left out by the sandbox's program itself, which says so. Whether CUDA works inside
of what it did set up is for a probe on the device to tell (``containment_probe``).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import Field, ValidationError

from ptxbench.errors import InfrastructureError
from ptxbench.files import write_whole
from ptxbench.profiler import defences, sandbox
from ptxbench.profiler.sandbox.layers import ALL, BASE, OPTIONAL, TOOL
from ptxbench.records import Containment, Record
from ptxbench.toolchain.cache import default_cache_dir

__all__ = ["ALL", "BASE", "OPTIONAL", "TOOL", "Choice", "choose", "describe_here", "hidden_folders", "settled"]

WITHOUT = "PTXBENCH_CONTAINMENT_WITHOUT"
"""Environment variable: layers, comma-separated, that the operator of a machine does not want."""
DESCRIBE_TIMEOUT_S = 30.0
_MAX_REASON_CHARS = 200
_PROGRAM = Path(sandbox.__file__).resolve().parent


class Choice(Record):
    """Layers to ask for."""

    layers: tuple[str, ...]
    dropped: dict[str, str] = Field(default_factory=dict)
    """Layers not to ask for -> why."""


Probe = Callable[[tuple[str, ...]], str]
"""Tries a candidate's process on the device inside of these layers. Returns what went wrong, empty for nothing."""


def wanted() -> Choice:
    """All layers, less those that the operator or a self-test has switched off."""
    if not defences.active("containment"):
        return Choice(layers=(), dropped=dict.fromkeys(OPTIONAL, "switched off for a self-test"))
    unwanted = {name.strip() for name in os.environ.get(WITHOUT, "").split(",")}
    layers = tuple(name for name in OPTIONAL if name not in unwanted)
    return Choice(layers=layers, dropped={name: f"switched off by {WITHOUT}" for name in OPTIONAL if name in unwanted})


def choose(probe: Probe, wish: Choice) -> Choice:
    """The widest set of layers that works: all, or else what can be added one by one.

    Raises InfrastructureError("sandbox_failed") where nothing works.
    """
    fault = probe(wish.layers)
    if not fault:
        return wish
    if nothing := probe(()):
        raise InfrastructureError(
            "sandbox_failed", f"no sandbox works on this machine, with layers or without: {nothing}"
        )
    kept: list[str] = []
    dropped = dict(wish.dropped)
    for layer in wish.layers:
        if fault := probe((*kept, layer)):
            dropped[layer] = f"CUDA did not work inside: {fault}"[:_MAX_REASON_CHARS]
        else:
            kept.append(layer)
    return Choice(layers=tuple(kept), dropped=dropped)


def settled(probe: Probe, driver: str, *, again: bool = False) -> Choice:
    """What was chosen since this machine was started, or is chosen now. ``again`` forgets an earlier choice."""
    wish = wanted()
    path = default_cache_dir() / "containment" / f"{_machine_key(driver, wish)}.json"
    if not again and (known := _remembered(path)):
        return known
    choice = choose(probe, wish)
    # Without a cache it is found out again by the next oracle.
    with contextlib.suppress(OSError):
        write_whole(path, (choice.model_dump_json(indent=1) + "\n").encode())
    return choice


def _remembered(path: Path) -> Choice | None:
    try:
        return Choice.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _machine_key(driver: str, wish: Choice) -> str:
    """Hash of all that the answer depends on: kernel and its start, driver, whose process this is, our own program."""
    digest = hashlib.sha256()
    for part in (driver, platform.release(), sys.executable, wish.model_dump_json(), *_kernel_facts()):
        digest.update(part.encode() + b"\0")
    for path in sorted(_PROGRAM.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def _kernel_facts() -> Iterator[str]:
    yield str(os.getuid())
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/uid_map"):
        try:
            yield Path(path).read_text()
        except OSError:
            yield ""
    lines = Path("/proc/self/status").read_text().splitlines()
    yield from (line for line in lines if line.startswith(("Cap", "Seccomp", "NoNewPrivs")))


def hidden_folders() -> tuple[str, ...]:
    """Folders of ours that a candidate shall not see: objects of other candidates."""
    return (str(default_cache_dir()),)


def describe_here() -> Containment:
    """Layers that this machine's kernel gives to a process of this user. Needs no device.

    Raises InfrastructureError("sandbox_failed") where the program cannot be run.
    """
    with tempfile.TemporaryDirectory(prefix="ptxbench-layers-") as folder:
        work = Path(folder) / "work"
        work.mkdir()
        hidden = [f"--hide={each}" for each in hidden_folders()]
        command = [sys.executable, "-P", "-s", str(_PROGRAM / "__main__.py"), "--describe", *hidden]
        try:
            done = subprocess.run(
                [*command, f"--layers={','.join(OPTIONAL)}"],
                cwd=work,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=DESCRIBE_TIMEOUT_S,
                check=True,
            )
            return Containment.model_validate_json(done.stdout)
        except (OSError, subprocess.SubprocessError, ValidationError) as error:
            said = getattr(error, "stderr", None) or b""
            text = f"the sandbox's program did not tell its layers: {error}: {said[-300:].decode(errors='replace')}"
            raise InfrastructureError("sandbox_failed", text) from error
