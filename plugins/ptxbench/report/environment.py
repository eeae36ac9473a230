"""What turns were made with: devices, libraries, compilers, texts, code. Pure but for the hash of our own files."""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from ptxbench import __version__
from ptxbench.records import ClockSample, Evidence, TurnRecord
from ptxbench.report.document import Clocks, Code, CompilerUse, DeviceUse, Environment, PromptUse
from ptxbench.report.summary import used_evidence

PACKAGE = Path(__file__).resolve().parents[1]


def environment_of(records: Sequence[TurnRecord], suites: Mapping[str, str] | None = None) -> Environment:
    """Return the environment of these turns. ``suites`` are those that the run says it is of."""
    evidence = [found for record in records if (found := used_evidence(record)) is not None]
    libraries: dict[str, set[str]] = defaultdict(set)
    for item in evidence:
        for name, version in item.libraries.items():
            libraries[name].add(version)
    return Environment(
        devices=_devices(evidence),
        libraries={name: tuple(sorted(versions)) for name, versions in sorted(libraries.items())},
        compilers=_compilers(records),
        prompts=_prompts(records),
        harnesses=tuple(sorted({item.harness for item in evidence})),
        suites=dict(sorted((suites or {}).items())),
        reporter=code(),
    )


@cache
def code() -> Code:
    """This PTXBench: version, commit of the checkout if it is one, hash of its files."""
    whole = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            whole.update(f"{path.relative_to(PACKAGE).as_posix()} {content}\n".encode())
    return Code(version=__version__, commit=_commit(PACKAGE.parents[1]), sha256=whole.hexdigest())


def _commit(checkout: Path) -> str | None:
    """What is checked out, read from git's own files: no git is needed, and none is started in somebody's pipeline."""
    folder = checkout / ".git"
    try:
        if folder.is_file():  # a linked working tree
            folder = (checkout / folder.read_text().removeprefix("gitdir:").strip()).resolve()
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        name = head.removeprefix("ref:").strip()
        shared = folder / "commondir"
        store = (folder / shared.read_text().strip()).resolve() if shared.exists() else folder
        loose = store / name
        if loose.exists():
            return loose.read_text().strip()
        packed = [line.split() for line in (store / "packed-refs").read_text().splitlines()]
        return next((line[0] for line in packed if line[1:] == [name]), None)
    except (OSError, UnicodeDecodeError):
        return None


def _devices(evidence: Iterable[Evidence]) -> tuple[DeviceUse, ...]:
    groups: dict[str, list[Evidence]] = defaultdict(list)
    for item in evidence:
        groups[item.device.model_dump_json()].append(item)
    return tuple(
        DeviceUse(**items[0].device.model_dump(), turns=len(items), clocks=_clocks(items))
        for _, items in sorted(groups.items())
    )


def _clocks(evidence: Iterable[Evidence]) -> Clocks | None:
    readings: list[ClockSample] = [
        trial.clock for item in evidence for trial in item.run.trials if trial.clock is not None
    ]
    if not readings:
        return None
    values = [reading.sm_mhz for reading in readings]
    limits = Counter(reason for reading in readings for reason in reading.limited_by)
    return Clocks(
        readings=len(values),
        lowest_mhz=min(values),
        median_mhz=float(statistics.median(values)),
        highest_mhz=max(values),
        limited_by=dict(sorted(limits.items())),
    )


def _compilers(records: Iterable[TurnRecord]) -> tuple[CompilerUse, ...]:
    builds = [record.build for record in records if record.build is not None]
    counts = Counter(
        (tool.nvcc, tool.host_compiler, tool.disassembler, tool.flags, tool.tvm_ffi, tool.headers)
        for tool in (build.toolchain for build in builds)
    )
    return tuple(
        CompilerUse(
            nvcc=nvcc,
            host_compiler=host,
            disassembler=disassembler,
            flags=flags,
            tvm_ffi=tvm_ffi,
            headers=headers,
            builds=count,
        )
        for (nvcc, host, disassembler, flags, tvm_ffi, headers), count in sorted(counts.items())
    )


def _prompts(records: Iterable[TurnRecord]) -> tuple[PromptUse, ...]:
    prompts = [record.exchange.prompt for record in records if record.exchange is not None]
    counts = Counter((prompt.template, prompt.pack, prompt.pack_sha256, prompt.level) for prompt in prompts)
    return tuple(
        PromptUse(template=template, pack=pack, pack_sha256=sha256, level=level, calls=count)
        for (template, pack, sha256, level), count in sorted(counts.items())
    )
