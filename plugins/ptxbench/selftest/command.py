"""``ptxbench selftest``: what it does, and what it prints."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ptxbench.errors import InfrastructureError, InputError
from ptxbench.files import write_whole
from ptxbench.profiler.device import device_present
from ptxbench.selftest import kept, measuring, page, spread, switching, tables
from ptxbench.selftest.kept import Store, stem_of
from ptxbench.selftest.measuring import Bench, Judged, Plan
from ptxbench.selftest.spread import Spread
from ptxbench.selftest.subjects import Subject, load_subjects, selected
from ptxbench.toolchain import Toolchain

Print = Callable[[str], None]


def run(options: argparse.Namespace, root: Path, say: Print) -> int:
    """Run the self-test. Returns 0 only if nothing escaped and nothing is unknown.

    Raises InputError for what the user must mend, InfrastructureError("no_device") without a GPU.
    """
    if options.write and not options.table:
        raise InputError("--write: expected --table beside it, which it writes into docs/trust.md; found none")
    if options.table:
        _expect_nothing_beside_table(options)
        for line in page.write(root) if options.write else page.tables_in(root):
            say(line)
        return 0
    if options.repeat:
        _expect_nothing_beside_repeat(options)
        return _repeat(options, root, say)
    subjects = selected(load_subjects(root, options.arch, options.corpora), options.pattern)
    return _without(options, root, subjects, say) if options.without else _normal(options, root, subjects, say)


def _given_for_the_corpora(options: argparse.Namespace) -> list[str]:
    """Options that were given and say what is measured of the corpora, or how."""
    given = {
        "-k": options.pattern is not None,
        "--corpus": bool(options.corpora),
        "--jobs": options.jobs is not None,
        "--memcheck": options.memcheck,
        "--missing": options.missing,
        "--time-limit": options.time_limit is not None,
        "--without": bool(options.without),
    }
    return [name for name, is_given in given.items() if is_given]


def _expect_nothing_beside_repeat(options: argparse.Namespace) -> None:
    if beside := _given_for_the_corpora(options):
        raise InputError(
            f"--repeat: expected no {beside[0]} beside it; it measures the reference solutions, and no corpus"
        )


def _expect_nothing_beside_table(options: argparse.Namespace) -> None:
    given = {
        "--arch": options.arch != page.ARCH,
        "--record": options.record is not None,
        "--repeat": options.repeat is not None,
    }
    beside = _given_for_the_corpora(options) + [name for name, is_given in given.items() if is_given]
    if beside:
        raise InputError(
            f"--table: expected no {beside[0]} beside it; the tables are of all committed evidence of {page.ARCH}"
        )


def _plan(options: argparse.Namespace, root: Path, without: tuple[str, ...] = ()) -> Plan:
    return Plan(
        jobs=options.jobs or measuring.default_jobs(),
        commit=measuring.harness_commit(root),
        without=without,
        deadline=time.monotonic() + (options.time_limit or float("inf")),
        all_safety=options.memcheck,
    )


def _normal(options: argparse.Namespace, root: Path, subjects: Sequence[Subject], say: Print) -> int:
    store = _store(options, root)
    if options.missing:
        committed = _committed(root, options.arch)
        store.add(committed)
    if options.pattern is None and not options.corpora:
        store.prune({subject.name for subject in subjects})
    if options.missing:
        subjects = [subject for subject in subjects if committed.current(subject) is None]
        if not subjects:
            say("nothing is missing: the committed evidence has every kernel of the corpora")
            return 0
    results = _measure(options, root, subjects, store, (), say)
    say("")
    for line in tables.confusion(results):
        say(line)
    return _end(results, say)


def _measure(
    options: argparse.Namespace,
    root: Path,
    subjects: Sequence[Subject],
    store: Store,
    without: tuple[str, ...],
    say: Print,
) -> list[Judged]:
    """Measure and print one line for each, in the order of measuring. Raises InfrastructureError("no_device")."""
    # Said before compilers have run for minutes.
    if not device_present() and ("screen" in without or any(subject.cost for subject in subjects)):
        raise InfrastructureError(
            "no_device",
            "expected a CUDA device and driver, found none; without one only attacks that the screen stops can be "
            "tried, for example with -k library/cublas",
        )
    store.expect_writable()
    plan = _plan(options, root, without)
    toolchain = Toolchain.discover(screened="screen" not in without)
    bench = Bench(toolchain, lambda: measuring.open_local(root, without), store, plan)
    results: list[Judged] = []
    try:
        for one in bench.run(subjects):
            say(tables.verdict_line(one))
            results.append(one)
    finally:
        bench.close()
    return results


def _end(results: Sequence[Judged], say: Print) -> int:
    escaped = {kind: sum(one.escaped for one in results if tables.kind_of(one) == kind) for kind in tables.KINDS}
    unknown = sum(one.verdict is None for one in results)
    differ = sum(bool(one.differences) and not one.escaped for one in results)
    say(
        f"{escaped['attacks']} attacks valid, {escaped['honest']} honest rejected, {differ} caught by another rule "
        f"than expected, {unknown} unknown, of {len(results)}"
    )
    say(f"measured by: {page.origin([one.kept for one in results if one.kept is not None])}")
    return 1 if any(escaped.values()) or unknown else 0


def _without(options: argparse.Namespace, root: Path, subjects: Sequence[Subject], say: Print) -> int:
    """Exit status 0: what passes without a defence is the answer and no failure; 1 where something stayed unknown."""
    normal, weakened = _store(options, root), _store(options, root, without=True)
    recorded = list(normal)
    normal.add(_committed(root, options.arch))
    normal.add(recorded)
    unknown = 0
    for heads, without in switching.asked_for(options.without):
        concerned = switching.concerned(subjects, heads, chosen=options.pattern is not None)
        if switching.needs_measuring(without):
            results = _measure(options, root, concerned, weakened, without, say) if concerned else []
        else:
            with_all = _measure(options, root, concerned, normal, (), say) if concerned else []
            results = [switching.rejudged(one.subject, one.kept, without) for one in with_all]
        found = switching.Passing(without, tuple(results))
        unknown += len(found.unknown)
        say(switching.line(found))
    return 1 if unknown else 0


def _repeat(options: argparse.Namespace, root: Path, say: Print) -> int:
    if options.record is not None:
        kept.expect_writable(options.record)

    def keep(found: Sequence[Spread]) -> None:
        if options.record is None:
            return
        document = [one.model_dump(mode="json") for one in found]
        path = options.record / f"repeat_{options.arch}.json"
        try:
            write_whole(path, f"{json.dumps(document, indent=1)}\n".encode())
        except OSError as error:
            # The table is still to come, and another round may find room.
            say(f"{path}: cannot be written: {error.strerror}")

    profiler = measuring.open_local(root, ())
    try:
        commit, toolchain = measuring.harness_commit(root), Toolchain.discover()
        spreads = spread.repeat(root, options.arch, options.repeat, toolchain, profiler, commit, say, keep)
    finally:
        profiler.close()
    for line in spread.lines(spreads):
        say(line)
    return 0


def _store(options: argparse.Namespace, root: Path, *, without: bool = False) -> Store:
    folder = options.record
    return Store(folder, stem_of(options.arch, without=without), options.arch)


def _committed(root: Path, arch: str) -> Store:
    return Store(root / kept.FOLDER, stem_of(arch), arch)
