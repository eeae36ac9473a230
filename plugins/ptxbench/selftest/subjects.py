"""What a self-test measures: each entry of the corpora with its source and case."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from ptxbench.cases import Case, load_suite
from ptxbench.errors import InputError
from ptxbench.profiler.protocol import SafetyTool
from ptxbench.records import Candidate, Verdict
from ptxbench.selftest import corpus
from ptxbench.selftest.corpus import Attack, Honest
from ptxbench.selftest.weakened import OTHER_SANITIZERS

SUITE = "primary"
TIMEOUT_RULE = "run.timeout"


class Subject:
    """One kernel of a corpus."""

    def __init__(self, entry: Attack | Honest, folder: Path, case: Case) -> None:
        self.entry = entry
        self.name = f"{'attacks' if isinstance(entry, Attack) else 'honest'}/{entry.name}"
        """``attacks/CLASS/NAME`` or ``honest/PATH``."""
        self.case = case
        self._folder = folder

    @cached_property
    def candidate(self) -> Candidate:
        """Its source. Raises InputError for a text that is not there."""
        try:
            return Candidate(source=corpus.read_source(self.entry.name, self._folder))
        except OSError as error:
            raise InputError(f"{self.name}: expected its source and what it includes: {error}") from error

    @property
    def attack(self) -> Attack | None:
        """The entry, if it is an attack."""
        return self.entry if isinstance(self.entry, Attack) else None

    @property
    def group(self) -> str:
        """Its row of the table: an attack's class, or the folder of an honest kernel."""
        folder, inside, _ = self.entry.name.partition("/")
        return folder if inside else "."

    def escaped(self, verdict: Verdict) -> bool:
        """Whether the benchmark failed on it: an attack that scores, or an honest kernel that is rejected."""
        if isinstance(self.entry, Attack):
            return self.entry.scores(verdict)
        return bool(self.entry.differences(verdict))

    @property
    def tools(self) -> tuple[SafetyTool, ...]:
        """Sanitizers that its expectation needs; the quick ones first. Whatever finds something ends the series."""
        if not isinstance(self.entry, Attack):
            return ()
        asked: list[SafetyTool] = []
        if self.entry.safe is not None or {"memcheck", "sanitizers"} & set(self.entry.defences):
            asked.append("memcheck")
        if "sanitizers" in self.entry.defences:
            asked += self.entry.tools or OTHER_SANITIZERS
        return tuple(asked)

    @property
    def counts(self) -> bool:
        """Whether its expectation needs executed instructions, which take seconds to count."""
        if isinstance(self.entry, Attack):
            return self.entry.decoy or any(rule.startswith("target.") for rule in self.entry.rule)
        return self.entry.target != "any"

    @property
    def cost(self) -> int:
        """In which wave it is measured: what nothing runs of, quick ones, tools, and last what has to time out."""
        if self.attack is None:
            return 1
        if self.attack.stage != "device":
            return 0
        if TIMEOUT_RULE in self.attack.rule:
            return 4
        return 1 + min(len(self.tools), 2)


def load_subjects(root: Path, arch: str, folders: Sequence[Path] = ()) -> tuple[Subject, ...]:
    """The subjects of the checkout's two corpora, or of the given folders, in the order to measure them.

    A folder is of honest kernels if it is called ``honest``. Raises InputError for a folder that holds no corpus, and
    for an entry that is not as it must be.
    """
    cases = {case.name: case for case in load_suite(root, SUITE).cases(arch)}
    found: list[Subject] = []
    for folder in folders or (root / "tests" / "attacks", root / "tests" / "honest"):
        found += _subjects_of(folder, cases)
    # Candidates of one case follow each other, so that its inputs and references are built once.
    return tuple(sorted(found, key=lambda subject: (subject.cost, subject.case.name, subject.name)))


def _subjects_of(folder: Path, cases: dict[str, Case]) -> Iterable[Subject]:
    if not any(folder.rglob(corpus.EXPECTED)):
        raise InputError(
            f"expected a corpus (kernels beside {corpus.EXPECTED}) in {folder}, found none; the corpora are part of a "
            "checkout, not of the installed package: run in one, or name a folder with --corpus DIR"
        )
    try:
        entries = corpus.honest(folder) if folder.name == "honest" else corpus.attacks(folder)
    except ValueError as error:
        raise InputError(str(error)) from error
    for entry in entries.values():
        if entry.case not in cases:
            raise InputError(f"{folder / entry.name}: expected a case of suite {SUITE}, found {entry.case!r}")
        yield Subject(entry, folder, cases[entry.case])


def selected(subjects: Iterable[Subject], pattern: str | None) -> tuple[Subject, ...]:
    """Those whose name holds the pattern, in which ``*`` and ``?`` stand for anything. Raises InputError for none."""
    kept = tuple(one for one in subjects if pattern is None or fnmatch.fnmatch(one.name, f"*{pattern}*"))
    if not kept:
        raise InputError(
            f"-k: expected a part of a name such as attacks/decoy/*, found {pattern!r}, which matches none"
        )
    return kept
