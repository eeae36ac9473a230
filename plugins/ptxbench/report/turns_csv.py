"""``ptxbench import-turns``: somebody else's results, turn by turn, as a run folder that can be reported.

They are results without evidence of ours: the labels are taken as they stand, nothing is built, measured or judged.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ptxbench import __version__
from ptxbench.agent import RunStore, resolve_run, suite_identity
from ptxbench.agent.files import write_record
from ptxbench.agent.identity import RunIdentity
from ptxbench.agent.run_file import RUN_FILE, refuse_foreign
from ptxbench.agent.store import IMPORTED
from ptxbench.agent.turn_files import to_json
from ptxbench.cases import Case, find_root, load_suite
from ptxbench.errors import InputError
from ptxbench.models.base import slug
from ptxbench.records import Outcome, Safe, Target, TurnKey, TurnRecord, Verdict
from ptxbench.records.base import MOST_SPEEDUP
from ptxbench.verdict.rules import Rule, TargetRule

COLUMNS = (
    "model",
    "arch",
    "workload",
    "run_and_variant",
    "trajectory",
    "turn",
    "correctness",
    "speedup",
    "target_executed",
)

ARCHS = {"hopper": "h100", "blackwell": "b200"}
"""The paper's names of architectures -> ours; ours are taken as well."""

WORKLOADS = {
    "GEMM": "gemm_n7168_k5120",
    "MHA-Fwd": "mha_with_lse_d128",
    "MHA-Fwd-Causal": "mha_with_lse_d128_causal",
    "MHA-Bwd": "mha_bwd_d128",
    "MHA-Bwd-Causal": "mha_bwd_d128_causal",
}
"""The paper's names of workloads -> definitions; names of definitions are taken as well."""

LABELS = {
    "Correct": Outcome.CORRECT,
    "Extraction error": Outcome.EXTRACTION_ERROR,
    "Compilation error": Outcome.COMPILE_ERROR,
    "Runtime error": Outcome.RUNTIME_ERROR,
    "Kernel Execution Timeout": Outcome.TIMEOUT,
    "Numerical error": Outcome.NUMERICAL_ERROR,
    # The paper counts these in N as not correct, so neither is an infrastructure fault here, which would leave N.
    "Profiling Service Timeout": Outcome.TIMEOUT,
    "Other error": Outcome.RUNTIME_ERROR,
}
"""The paper's labels -> outcomes; names of outcomes are taken as well. The label itself is in the verdict's message."""

TARGETS = {"1": Target.EXECUTED, "0": Target.NOT_EXECUTED, "": Target.UNKNOWN, "unknown": Target.UNKNOWN}

_TURN = re.compile(r"[0-9]{1,4}")
_SHOWN = 80
"""Characters of a wrong value that a message quotes."""
_VARIANT = re.compile(r"(?P<run>.*)#p(?P<variant>\d{1,4})")


class Imported(NamedTuple):
    """What was written."""

    folder: Path
    turns: int
    cells: int


class _Row(NamedTuple):
    """One line of the file, understood."""

    model: str
    case: Case
    variant: int
    run: str
    trajectory: str
    turn: int
    verdict: Verdict
    line: int

    @property
    def place(self) -> tuple[str, str, str, int]:
        """What trajectories are numbered within."""
        return (self.model, self.case.name, self.case.arch.name, self.variant)


def run(options: argparse.Namespace) -> list[str]:
    """Carry out ``ptxbench import-turns``; returns the lines to print."""
    done = import_turns(find_root(Path.cwd()), options.source, options.run)
    return [
        f"{done.folder}: {done.turns} turns in {done.cells} cells, imported as somebody else's results: nothing of "
        "them was built, measured or judged here"
    ]


def import_turns(root: Path, source: Path, name: str) -> Imported:
    """Write the turns of a CSV file to the new run ``name`` of the checkout ``root``.

    Raises InputError for a file that cannot be read or has another form, with the line, and for a run that exists.
    """
    target = resolve_run(root, name)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"--run {name}: expected a new run, found {target}; choose another name")
    rows = list(_rows(source, {(case.name, case.arch.name): case for case in load_suite(root, "primary").table}))
    if not rows:
        raise InputError(f"{source}: expected turns, found a file without any; check the path")
    records = _records(source, rows)
    suites = {"primary": suite_identity(load_suite(root, "primary").table)}
    turns: dict[str, int] = {}
    for row in rows:
        turns[row.model] = max(turns.get(row.model, 0), row.turn + 1)
    identity = RunIdentity(
        created_at=_written_at(source), ptxbench=__version__, suites=suites, turns=turns, imported=source.name
    )
    try:
        _write(RunStore(target, identity), records)
    except OSError as error:
        raise InputError(
            f"--run {name}: expected a folder that can be written, found: {error.strerror or error}; choose another"
        ) from error
    return Imported(target, len(records), len({(row.model, row.case.name, row.case.arch.name) for row in rows}))


def _write(store: RunStore, records: Iterable[TurnRecord]) -> None:
    """Turns first: without ``run.json``, which comes last and whole, an interrupted import is no run."""
    store.folder.mkdir(parents=True, exist_ok=True)
    refuse_foreign(store.folder)
    for record in records:
        path = store.turn_path(record.key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_json(record))
    write_record(store.folder / RUN_FILE, to_json(store.identity))


def _written_at(source: Path) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(int(source.stat().st_mtime), UTC).isoformat(timespec="seconds")


def _rows(source: Path, cases: Mapping[tuple[str, str], Case]) -> Iterator[_Row]:
    try:
        with source.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError(
                    f"{source}: expected the columns {', '.join(COLUMNS)}, found none named {', '.join(missing)}; "
                    "add them"
                )
            names: dict[str, str] = {}
            for row in reader:
                found = _Reader(source, reader.line_num, row)
                found.expect_apart(names)
                yield found.row(cases)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{source}: expected a CSV file in UTF-8, found: {error}; check the path") from error


class _Reader:
    """One line of the file; every refusal names it."""

    def __init__(self, source: Path, line: int, row: Mapping[str, str | None]) -> None:
        self._source = source
        self._line = line
        self._values = {name: (row.get(name) or "").strip() for name in COLUMNS}

    def row(self, cases: Mapping[tuple[str, str], Case]) -> _Row:
        """The line, understood. Raises InputError."""
        values = self._values
        variant = _VARIANT.fullmatch(values["run_and_variant"])
        if variant is None:
            raise self._error("run_and_variant", "RUN#pK with K the prompt variant's number")
        case = self._case(cases)
        turn = values["turn"]
        if not _TURN.fullmatch(turn):
            raise self._error("turn", "the number of a turn, from 0")
        if not values["model"]:
            raise self._error("model", "the name of a model")
        return _Row(
            model=slug(values["model"]),
            case=case,
            variant=int(variant["variant"]),
            run=variant["run"],
            trajectory=values["trajectory"],
            turn=int(turn),
            verdict=self._verdict(),
            line=self._line,
        )

    def expect_apart(self, names: dict[str, str]) -> None:
        """Remember the model's name by what stands for it in a run. Raises InputError for another one's."""
        name = self._values["model"]
        known = names.setdefault(slug(name), name)
        if known != name:
            raise InputError(
                f"{self._source}, line {self._line}: expected model names that stay apart where all but letters and "
                f"digits is replaced, found {known!r} and {name!r}, which are both {slug(name)!r}; rename one"
            )

    def _case(self, cases: Mapping[tuple[str, str], Case]) -> Case:
        arch = ARCHS.get(self._values["arch"], self._values["arch"])
        if arch not in {known for _, known in cases}:
            raise self._error("arch", f"one of {', '.join((*ARCHS, *sorted({known for _, known in cases})))}")
        name = WORKLOADS.get(self._values["workload"], self._values["workload"])
        if (name, arch) not in cases:
            raise self._error("workload", f"one of {', '.join(WORKLOADS)}, or a definition of the primary suite")
        return cases[name, arch]

    def _verdict(self) -> Verdict:
        label, mark = self._values["correctness"], self._values["target_executed"]
        outcome = LABELS.get(label) or next((known for known in Outcome if known.value == label), None)
        if outcome is None:
            raise self._error("correctness", f"one of {', '.join((*LABELS, *(known.value for known in Outcome)))}")
        if mark not in TARGETS:
            raise self._error("target_executed", "1, 0, or nothing where it is not known")
        speedup = self._speedup() if outcome is Outcome.CORRECT else None
        where = f"{self._source.name}, line {self._line}"
        return Verdict(
            outcome=outcome,
            rule=Rule.IMPORTED,
            message=f"imported ({where}): {label}",
            target=TARGETS[mark],
            target_rule=TargetRule.IMPORTED,
            target_message=f"imported ({where}): {mark or 'not stated'}",
            safe=Safe.NOT_RUN,
            speedup=speedup,
        )

    def _speedup(self) -> float | None:
        text = self._values["speedup"]
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (value == 0 or 1 / MOST_SPEEDUP <= value <= MOST_SPEEDUP):
            raise self._error(
                "speedup", f"a number of at least 0 and at most {MOST_SPEEDUP:g}, or nothing where there is none"
            )
        return value or None

    def _error(self, column: str, expected: str) -> InputError:
        found = (self._values[column] or "nothing")[:_SHOWN]
        return InputError(f"{self._source}, line {self._line}: expected {column} to be {expected}, found {found!r}")


def _records(source: Path, rows: Iterable[_Row]) -> list[TurnRecord]:
    """Records with trajectories numbered from 0 within their variant, in order of their names."""
    rows = list(rows)
    names: dict[tuple[str, str, str, int], set[tuple[str, str]]] = {}
    for row in rows:
        names.setdefault(row.place, set()).add((row.run, row.trajectory))
    numbers = {place: {name: index for index, name in enumerate(sorted(found))} for place, found in names.items()}
    lines: dict[str, int] = {}
    records = []
    for row in rows:
        record = _record(row, numbers[row.place][row.run, row.trajectory])
        earlier = lines.setdefault(str(record.key), row.line)
        if earlier != row.line:
            raise InputError(
                f"{source}, line {row.line}: expected each turn once, found turn {row.turn} of {row.run}#p"
                f"{row.variant}/{row.trajectory} on line {earlier} too; remove one"
            )
        records.append(record)
    return records


def _record(row: _Row, trajectory: int) -> TurnRecord:
    case = row.case
    variants = case.variants
    return TurnRecord(
        key=TurnKey(
            model=row.model,
            case=case.name,
            arch=case.arch.name,
            variant=row.variant,
            trajectory=trajectory,
            turn=row.turn,
        ),
        definition=case.definition.name,
        workload_uuid=case.workload.uuid,
        variant_name=variants[row.variant] if row.variant < len(variants) else f"p{row.variant}",
        origin=IMPORTED,
        source_sha256=None,
        build=None,
        evidence=None,
        evidence_origin="none",
        verdict=row.verdict,
    )
