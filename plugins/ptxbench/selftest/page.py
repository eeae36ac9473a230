"""The tables of docs/trust.md, written from committed evidence: what nobody measured is ``unknown`` there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ptxbench.errors import InputError
from ptxbench.profiler.defences import DEFENCES
from ptxbench.selftest import corpus, switching, tables
from ptxbench.selftest.kept import FOLDER, Kept, Store, stem_of
from ptxbench.selftest.measuring import judged_of
from ptxbench.selftest.subjects import Subject, load_subjects
from ptxbench.selftest.tables import UNKNOWN
from ptxbench.trace.document import read_text

DOCUMENT = Path("docs", "trust.md")
ARCH = "h100"
BEGIN = "<!-- tables: written by `ptxbench selftest --table --write` -->"
END = "<!-- end of tables -->"
NEVER_OFF = "never off: without it nothing could be measured"


def tables_of(root: Path, subjects: Sequence[Subject], normal: Store, weakened: Store) -> Iterator[str]:
    """Lines of Markdown: where it was measured, both corpora, threats, defences."""
    results = [judged_of(subject, normal.current(subject)) for subject in subjects]
    yield f"Measured by: {origin([one.kept for one in results if one.kept is not None])}."
    yield ""
    yield from tables.markdown_confusion(results)
    yield from _threats(root, subjects)
    yield from _defences(root, subjects, normal, weakened)


def tables_in(root: Path) -> list[str]:
    """The tables as they are today. Raises InputError outside a checkout with corpora."""
    folder = root / FOLDER
    stores = Store(folder, stem_of(ARCH), ARCH), Store(folder, stem_of(ARCH, without=True), ARCH)
    return list(tables_of(root, load_subjects(root, ARCH), *stores))


def _threats(root: Path, subjects: Sequence[Subject]) -> Iterator[str]:
    yield "| threat | mechanism | what catches it | attacks |"
    yield "|---|---|---|---|"
    for key, threat in corpus.threats(root / "tests" / "attacks").items():
        number = sum(one.attack is not None and one.attack.threat == key for one in subjects)
        yield f"| `{key}` | {threat.mechanism} | {threat.caught_by} | {number} |"
    yield ""


def _defences(root: Path, subjects: Sequence[Subject], normal: Store, weakened: Store) -> Iterator[str]:
    yield "| defence | what it does | attacks that name it first | of them pass without it |"
    yield "|---|---|---|---|"
    for name, does in corpus.defences(root / "tests" / "attacks").items():
        named = switching.concerned(subjects, (name,), chosen=False)
        if name not in DEFENCES:
            yield f"| `{name}` | {does} | {len(named)} | {NEVER_OFF} |"
            continue
        found = switching.from_stores(subjects, name, normal, weakened)
        beside = "".join(f" (`{other}` off as well)" for other in switching.BESIDE.get(name, ()))
        yield f"| `{name}` | {does} | {len(named)} | {_passing(found)}{beside} |"
    yield ""


def _passing(found: switching.Passing) -> str:
    if not found.results:
        return "-"
    if len(found.unknown) == len(found.results):
        return UNKNOWN
    names = ", ".join(found.passing) or "none"
    return f"{names}; {len(found.unknown)} {UNKNOWN}" if found.unknown else names


def origin(entries: Sequence[Kept]) -> str:
    """Device, driver, days and commits of the harness behind what was kept; ``unknown`` where nothing ran."""
    ran = [(entry, entry.evidence) for entry in entries if entry.evidence is not None]
    if not ran:
        return UNKNOWN
    devices = sorted({f"{evidence.device.name}, driver {evidence.device.driver}" for _, evidence in ran})
    days = sorted({evidence.measured_at[:10] for _, evidence in ran})
    commits = sorted({entry.commit[:12] + ("+" if entry.commit.endswith("+") else "") for entry, _ in ran})
    between = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{'; '.join(devices)}; {between}; harness {', '.join(commits)}; {len(ran)} kernels ran"


def with_tables(root: Path, text: str) -> str:
    """The document with its tables as they are today. Raises InputError when it lacks the marks around them."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"{DOCUMENT}: expected the lines {BEGIN!r} and {END!r}; put them around the tables")
    return "\n".join((f"{before}{BEGIN}", "", *tables_in(root), f"{END}{after}"))


def write(root: Path) -> list[str]:
    """Bring the tables of the document up to date. Returns what to print."""
    path = root / DOCUMENT
    path.write_text(with_tables(root, read_text(path)), encoding="utf-8")
    return [f"wrote {DOCUMENT}"]
