"""Which attacks pass without a defence: measured again where the harness has to leave it out, else judged again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ptxbench.profiler.defences import DEFENCES, known
from ptxbench.selftest.kept import Kept, Store
from ptxbench.selftest.measuring import Judged, judged_of
from ptxbench.selftest.subjects import Subject

EVERY = "all"
"""As a name: each defence in turn."""
BESIDE = {"physical_floor": ("timed_checks",)}
"""What has to be off as well, since it stops the same attacks before: as long as timed iterations are compared, nothing
is right and faster than the device."""


class Passing(NamedTuple):
    """What happens without some defences."""

    without: tuple[str, ...]
    results: tuple[Judged, ...]

    @property
    def passing(self) -> tuple[str, ...]:
        """Attacks that score now, less ``attacks/``."""
        return tuple(one.subject.entry.name for one in self.results if one.escaped)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Attacks that nobody measured so."""
        return tuple(one.subject.entry.name for one in self.results if one.verdict is None)


class Asked(NamedTuple):
    """Defences to switch off together."""

    heads: tuple[str, ...]
    """Those that it is about: attacks that name one of them first are tried."""
    without: tuple[str, ...]


def asked_for(names: Sequence[str]) -> tuple[Asked, ...]:
    """What ``--without`` asks for: the named ones together, or each of all. Raises InputError for unknown names."""
    if EVERY in names:
        return tuple(Asked((name,), set_of(name)) for name in DEFENCES)
    return (Asked(known(names), known(names)),)


def set_of(name: str) -> tuple[str, ...]:
    """The defence, with what must be off beside it."""
    return known((name, *BESIDE.get(name, ())))


def needs_measuring(without: Collection[str]) -> bool:
    """Whether evidence that was measured with all defences cannot tell."""
    return any(DEFENCES[name] != "judge" for name in without)


def concerned(subjects: Iterable[Subject], without: Sequence[str], *, chosen: bool) -> tuple[Subject, ...]:
    """The attacks to try: those that name one of the defences first, or, where some were chosen, all of these."""
    attacks = [subject for subject in subjects if subject.attack is not None]
    if chosen:
        return tuple(attacks)
    return tuple(one for one in attacks if one.attack is not None and one.attack.defences[0] in without)


def from_stores(subjects: Iterable[Subject], name: str, normal: Store, weakened: Store) -> Passing:
    """What the stores tell of the attacks that name the defence first."""
    without = set_of(name)
    results: list[Judged] = []
    for subject in concerned(subjects, (name,), chosen=False):
        if needs_measuring(without):
            results.append(judged_of(subject, weakened.current(subject, without)))
        else:
            results.append(rejudged(subject, normal.current(subject), without))
    return Passing(without, tuple(results))


def rejudged(subject: Subject, kept: Kept | None, without: tuple[str, ...]) -> Judged:
    """What was measured with all defences, judged without some."""
    return judged_of(subject, None if kept is None else kept.model_copy(update={"without": without}))


def line(found: Passing) -> str:
    """One line: which attacks pass without these defences."""
    tried = len(found.results) - len(found.unknown)
    names = ", ".join(found.passing) or "none"
    unknown = f"; not measured: {', '.join(found.unknown)}" if found.unknown else ""
    return f"without {', '.join(found.without)}: {len(found.passing)} of {tried} attacks pass: {names}{unknown}"
