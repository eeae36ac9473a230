"""What a service can evaluate: the cases of its checkout and of the collections that it was given."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from ptxbench.cases import Case, load_suite
from ptxbench.cases.trace_sets import load_collections
from ptxbench.client.shapes import Submission
from ptxbench.errors import InputError
from ptxbench.profiler.wire import case_digest

_WORD = re.compile(r"[a-z0-9]+")


class UnknownDefinitionError(InputError):
    """A definition that the service does not have."""


class Catalog:
    """Cases by definition, workload and architecture. Immutable after construction."""

    def __init__(self, cases: Iterable[Case], arch: str | None = None, left_out: Iterable[str] = ()) -> None:
        """``arch`` is that of solutions that name none; ``left_out`` says what of a collection cannot be evaluated.

        Raises InputError where no case is for ``arch``, and for two definitions of one name.
        """
        self.left_out = tuple(left_out)
        self._cases: dict[str, dict[str, dict[str, Case]]] = {}
        for case in cases:
            workloads = self._cases.setdefault(case.definition.name, {})
            if workloads and _first(workloads).definition != case.definition:
                raise InputError(
                    f"--trace-set: expected one definition named {case.definition.name}, found another one in suite "
                    f"{_first(workloads).suite}; serve the collection with a --suite that has none of that name"
                )
            workloads.setdefault(case.workload.uuid, {})[case.arch.name] = case
        self.archs = tuple(dict.fromkeys(case.arch.name for case in self._all()))
        if arch is not None and arch not in self.archs:
            raise InputError(f"--arch: expected one of {', '.join(self.archs)}; found {arch!r}")
        self._arch = arch
        self._digests = {_key(case): case_digest(case) for case in self._all()}

    @classmethod
    def load(cls, root: Path, suite: str, trace_sets: Sequence[Path], arch: str | None = None) -> Catalog:
        """The cases of a suite and of collections. Raises InputError as the loaders of these do."""
        cases = list(load_suite(root, suite).table)
        if not trace_sets:
            return cls(cases, arch)
        collections = load_collections(root, trace_sets)
        return cls([*cases, *collections.suite.table], arch, collections.left_out)

    def _all(self) -> Iterable[Case]:
        for workloads in self._cases.values():
            for archs in workloads.values():
                yield from archs.values()

    @cached_property
    def dataset_id(self) -> str:
        """Fingerprint of everything that can be evaluated: two services with the same one judge the same problems."""
        digests = sorted(f"{case.definition.name} {case.arch.name} {self.digest(case)}" for case in self._all())
        return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16]

    @cached_property
    def definitions(self) -> bytes:
        """JSON of ``GET /definitions``."""
        found = [
            {"name": name, "description": _first(workloads).definition.description}
            for name, workloads in self._cases.items()
        ]
        return json.dumps(found).encode()

    def definition(self, name: str) -> bytes | None:
        """JSON of a definition; None: there is none."""
        workloads = self._cases.get(name)
        return _first(workloads).definition.model_dump_json().encode() if workloads else None

    def workloads(self, definition: str) -> bytes | None:
        """JSON of a definition's workloads; None: there is no such definition."""
        workloads = self._cases.get(definition)
        if workloads is None:
            return None
        texts = [next(iter(archs.values())).workload.model_dump_json() for archs in workloads.values()]
        return f"[{','.join(texts)}]".encode()

    def workload(self, uuid: str) -> bytes | None:
        """JSON of a workload; None: there is none."""
        for workloads in self._cases.values():
            if uuid in workloads:
                return next(iter(workloads[uuid].values())).workload.model_dump_json().encode()
        return None

    def digest(self, case: Case) -> str:
        """``case_digest`` of one of these cases."""
        return self._digests[_key(case)]

    def arch_of_device(self, compute_capability: tuple[int, int]) -> str | None:
        """The architecture that a device is; None: no case is for it."""
        return next(
            (case.arch.name for case in self._all() if case.arch.compute_capability == compute_capability), None
        )

    def select(self, submission: Submission, device_arch: str | None = None) -> tuple[Case, ...]:
        """The cases that a submission is about, in the order of the suite.

        Raises:
            UnknownDefinitionError: the definition is not here.
            InputError: a workload or the architecture is not, no workload is left, or the submission wants another
                case or other tolerances than the service has.
        """
        name = submission.solution.definition
        workloads = self._cases.get(name)
        if workloads is None:
            raise UnknownDefinitionError(f"Definition not found: {name}")
        uuids = submission.workload_uuids
        if uuids is not None and not uuids:
            raise InputError(
                f"{name}: expected workload_uuids out of {', '.join(workloads)}, or none for all; found []"
            )
        unknown = [uuid for uuid in uuids or () if uuid not in workloads]
        if unknown:
            raise InputError(f"Workload not found: {unknown[0]} of {name}; expected one of {', '.join(workloads)}")
        arch = self.named_arch(submission) or self._arch or device_arch or self.archs[0]
        cases = tuple(
            archs[arch] for uuid, archs in workloads.items() if arch in archs and (uuids is None or uuid in uuids)
        )
        if not cases:
            known = dict.fromkeys(arch for archs in workloads.values() for arch in archs)
            raise InputError(f"{name}: expected an architecture out of {', '.join(known)}, found {arch!r}")
        self._expect_same(submission, cases)
        return cases

    def named_arch(self, submission: Submission) -> str | None:
        """The architecture that a submission names, by itself or as its target hardware; None: none, or several."""
        if submission.arch is not None:
            return submission.arch
        words = {word for target in submission.solution.spec.target_hardware for word in _WORD.findall(target.lower())}
        named = [arch for arch in self.archs if arch in words]
        return named[0] if len(named) == 1 else None

    def _expect_same(self, submission: Submission, cases: Sequence[Case]) -> None:
        for case in cases:
            for field in ("atol", "rtol"):
                wanted, own = getattr(submission, field), getattr(case.tolerance, field)
                if wanted is not None and wanted != own:
                    raise InputError(
                        f"{case.name}: expected no {field}, or the case's own {own:g}, found {wanted:g}; verdicts are "
                        "by the protocol's tolerance alone: leave it out"
                    )
            if submission.case_sha256 is not None and submission.case_sha256 != self.digest(case):
                raise InputError(
                    f"{case.name}: expected the case of the service's checkout, found another definition, workload or "
                    "setting of that name; use the same checkout at both ends"
                )


def _first(workloads: dict[str, dict[str, Case]]) -> Case:
    return next(iter(next(iter(workloads.values())).values()))


def _key(case: Case) -> tuple[str, str, str]:
    return case.definition.name, case.workload.uuid, case.arch.name
