"""From run folders, repairs and rationales to a dataset's folder. The same inputs give the same bytes."""

from __future__ import annotations

import hashlib
from collections import Counter as Counts
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ptxbench import __version__
from ptxbench.adapt.balance import Place, keep
from ptxbench.adapt.chat_marks import mark_in
from ptxbench.adapt.collect import Collected, Sources, collect
from ptxbench.adapt.dataset_files import dataset_files, jsonl
from ptxbench.adapt.funnel import Funnel, Step
from ptxbench.adapt.leaks import leaks_in
from ptxbench.adapt.manifest import MANIFEST, Manifest, PoolInput
from ptxbench.adapt.model import RATIONALES, REPAIRS, Correct, Failure, Rationale, Repair, TrainingRecord, read_lines
from ptxbench.adapt.rationale import subject_of
from ptxbench.adapt.recipe import Selection
from ptxbench.adapt.repair_proof import read_repairs, taught
from ptxbench.adapt.training_record import Counter, training_record
from ptxbench.errors import InputError
from ptxbench.files import write_whole

TOKEN_BOUNDS = (8_192, 16_384, 24_576, 32_768, 40_960, 49_152, 57_344, 65_536)
"""Of the histogram. A prompt has 20k to 30k tokens, a limit of training 65,536."""
NOT_STATED = "not stated"
_OURS = {
    "prompts (instructions, knowledge packs, feedback)": "Apache-2.0, as PTXBench",
    "definitions and workloads": "as the FlashInfer-Trace collections that they name",
}


class Order(NamedTuple):
    """What is to be built."""

    sources: Sources
    selection: Selection
    pools: Sequence[Path]
    """Folders that hold repairs and rationales."""
    model: str | None = None
    teacher: str | None = None
    """Only rationales of this reasoning teacher."""
    counter: Counter = "estimate"
    licences: Mapping[str, str] = {}
    """Model or teacher -> terms of what it wrote."""


class Dataset(NamedTuple):
    """A dataset, not written yet."""

    manifest: Manifest
    records: list[TrainingRecord]
    files: dict[str, bytes]
    """Name -> content; the manifest last."""


def build(order: Order) -> Dataset:
    """Collect again from the runs, join with repairs and rationales, balance, and put it into files.

    Raises InputError for inputs that cannot be read, that contradict each other, and where no record is left.
    """
    selection = order.selection
    collected = collect(order.sources, selection.recipe, order.model)
    pool = _Pool(order.pools)
    rationales = _explained(collected, pool, order)
    records = _limited(rationales, collected.funnel, order)
    if not records:
        raise EmptyDatasetError(selection.asked, collected.funnel.steps)
    manifest = _manifest(order, collected, pool, records)
    files = dataset_files(manifest, records) | {MANIFEST: manifest.model_dump_json(indent=1).encode() + b"\n"}
    return Dataset(manifest, records, files)


class EmptyDatasetError(InputError):
    """A recipe of which nothing is left; ``steps`` say where it went."""

    def __init__(self, recipe: str, steps: tuple[Step, ...]) -> None:
        last = next(step for step in steps if step.left == 0)
        super().__init__(
            f"--recipe {recipe}: expected at least one record, found none after the step {last.step!r}; "
            "add runs, repairs or rationales, or take another recipe"
        )
        self.steps = steps


def write(dataset: Dataset, folder: Path) -> None:
    """Write a dataset to a new or empty folder. A folder without a manifest is none: it comes last.

    Raises InputError where something else is, or nothing can be written.
    """
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(f"--out {folder}: expected a new or empty folder, found files in it; choose another")
        for name, data in dataset.files.items():
            write_whole(folder / name, data)
    except OSError as error:
        raise InputError(
            f"--out {folder}: expected a folder that can be written, found: {error.strerror or error}; choose another"
        ) from error


class _Pool:
    """Repairs and rationales of some folders."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.inputs: list[PoolInput] = []
        self.repairs: dict[str, list[Repair]] = {}
        """By id: as many as files hold one."""
        self.rationales: list[Rationale] = []
        places: set[Path] = set()
        for folder in folders:
            if folder.resolve() in places:
                raise InputError(f"--from {folder}: expected each folder once, found it twice; name it once")
            places.add(folder.resolve())
            found = [path for path in (folder / REPAIRS, folder / RATIONALES) if path.is_file()]
            if not found:
                raise InputError(
                    f"--from {folder}: expected a folder with {RATIONALES}, found none; name the folder that "
                    "`ptxbench fixit explain` wrote to"
                )
            for path in found:
                self._read(path)

    @property
    def repaired(self) -> set[str]:
        """Ids of what a repair or a rationale of one is known of."""
        return {*self.repairs, *(one.id for one in self.rationales)}

    def _read(self, path: Path) -> None:
        count = 0
        if path.name == REPAIRS:
            repairs = read_repairs(path)
            for one in repairs:
                self.repairs.setdefault(one.id, []).append(one)
            count = len(repairs)
        else:
            rationales = read_lines(Rationale, path)
            self.rationales += rationales
            count = len(rationales)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        self.inputs.append(PoolInput(name=f"{path.parent.resolve().name}/{path.name}", records=count, sha256=digest))


def _explained(collected: Collected, pool: _Pool, order: Order) -> list[Rationale]:
    """One rationale for each collected record that has one."""
    funnel, selection = collected.funnel, order.selection
    records = collected.records
    if selection.recipe.kind == "fixit":
        repaired = pool.repaired
        records = funnel.keep("repaired", records, lambda one: "" if one.id in repaired else "no repair")
    known = {one.id for one in pool.rationales}
    chosen = _chosen(pool.rationales, order, collected.model)
    step = (
        "explained" + {"any": "", "other": " by another model", "self": f" by {collected.model}"}[selection.reasoning]
    )

    def why_not(id: str) -> str:  # noqa: A002
        if id in chosen:
            return ""
        return "a rationale of another teacher alone" if id in known else "no rationale"

    kept = funnel.keep(step, records, lambda one: why_not(one.id))
    for one in kept:
        _refuse_another(one, chosen[one.id])
        _refuse_wrong(chosen[one.id])
        _refuse_other_repair(chosen[one.id], pool.repairs.get(one.id, []))
    return [chosen[one.id] for one in kept]


def _chosen(rationales: Iterable[Rationale], order: Order, model: str) -> dict[str, Rationale]:
    chosen: dict[str, Rationale] = {}
    for one in rationales:
        own = one.teacher == model
        if {"any": False, "other": own, "self": not own}[order.selection.reasoning]:
            continue
        if order.teacher is not None and one.teacher != order.teacher:
            continue
        before = chosen.setdefault(one.id, one)
        if before != one:
            raise InputError(
                f"--from: expected one rationale for each repair, found two for {one.id}, by {before.teacher} and "
                f"{one.teacher}; name the teacher with --teacher, or fewer folders"
            )
    return chosen


def _refuse_another(mine: Failure | Correct, rationale: Rationale) -> None:
    """A rationale must be of the very turn that the run holds. Raises InputError."""
    theirs = rationale.repair.failure if isinstance(rationale.repair, Repair) else rationale.repair
    if mine.source != theirs.source or mine.prompt != theirs.prompt:
        raise InputError(
            f"rationale {mine.id}: expected the prompt and kernel of {mine.origin.key} as the run "
            f"{mine.origin.run} holds them, found others; name the runs that it was made of"
        )
    fields = ("definition", "variant_name", *(["outcome"] if isinstance(mine, Failure) else []))
    for field in fields:
        was, now = getattr(theirs, field), getattr(mine, field)
        if was != now:
            raise InputError(
                f"rationale {mine.id}: expected {field} {now} of {mine.origin.key}, as the run {mine.origin.run} says, "
                f"found {was}; collect, repair and explain the turn again"
            )


def _refuse_wrong(rationale: Rationale) -> None:
    """Only what passes the benchmark's correctness check is taught. Raises InputError."""
    verdict = rationale.repair.verdict
    if not verdict.correct:
        raise InputError(
            f"rationale {rationale.id}: expected a kernel that was judged correct, found {verdict.outcome}; "
            "take it out of the file, or repair the failure again"
        )


def _refuse_other_repair(rationale: Rationale, repairs: Sequence[Repair]) -> None:
    """Where the repair itself is given too, the rationale must be of it. Raises InputError."""
    mine = rationale.repair
    if repairs and not any(
        one.source == mine.source and taught(one.verdict) == taught(mine.verdict) for one in repairs
    ):
        raise InputError(
            f"rationale {rationale.id}: expected the kernel and verdict that {REPAIRS} has, found others; explain the "
            "repairs again"
        )


def _marked(rationale: Rationale) -> str:
    """Such a mark ends a turn for whoever tokenizes the record, or hides half of a kernel."""
    repair = rationale.repair
    failed = (repair.failure.source, repair.failure.feedback) if isinstance(repair, Repair) else ()
    mark = mark_in(rationale.text, repair.source, *failed)
    return f"holds {mark}" if mark else ""


def _leaking(rationale: Rationale) -> str:
    """``explain`` looked for leaks with the rules of its day, and a file may have been edited since."""
    subject = subject_of(rationale.repair)
    found = leaks_in(rationale.text, kernel=subject.kernel, known=subject.known)
    return f"{found[0].kind} in the rationale" if found else ""


def _limited(rationales: Sequence[Rationale], funnel: Funnel, order: Order) -> list[TrainingRecord]:
    recipe = order.selection.recipe
    rationales = funnel.keep("without marks of chat templates", rationales, _marked)
    rationales = funnel.keep("without leaks by today's rules", rationales, _leaking)
    records = [training_record(one, order.counter) for one in rationales]
    records.sort(key=lambda one: (one.case, one.arch, one.outcome, one.turn, one.id))
    step = f"within {recipe.max_tokens:,} tokens"
    records = funnel.keep(step, records, lambda one: "longer" if one.tokens > recipe.max_tokens else "")
    if recipe.balance == "after_repair" and recipe.cap is not None:
        kept = keep(
            records,
            lambda one: Place((one.definition, one.arch), (one.outcome, one.turn), one.id),
            recipe.cap,
            recipe.seed,
        )
        step = f"balanced after repair: at most {recipe.cap} of each operator"
        records = funnel.narrowed(step, records, kept, "beyond the cap")
    return records


def _manifest(order: Order, collected: Collected, pool: _Pool, records: Sequence[TrainingRecord]) -> Manifest:
    recipe = order.selection.recipe
    tokens = [one.tokens for one in records]
    return Manifest(
        name=order.selection.asked,
        recipe=recipe.name,
        recipe_content=recipe,
        kind=recipe.kind,
        reasoning=order.selection.reasoning,
        archs=tuple(sorted({one.arch for one in records})),
        model=collected.model,
        ptxbench=__version__,
        records=len(records),
        train_sha256=hashlib.sha256(jsonl(records)).hexdigest(),
        token_counter=order.counter,
        tokens=histogram(tokens),
        tokens_most=max(tokens),
        tokens_in_all=sum(tokens),
        by_case=_counts(f"{one.case} {one.arch}" for one in records),
        by_outcome=_counts(one.outcome for one in records),
        by_turn=_counts(str(one.turn) for one in records),
        by_language=_counts(one.language for one in records),
        by_variant=_counts(one.variant for one in records),
        by_repair_teacher=_counts(one.repair_teacher for one in records),
        by_teacher=_counts(one.reasoning_teacher for one in records),
        funnel=collected.funnel.steps,
        runs=collected.inputs,
        pools=tuple(sorted(pool.inputs, key=lambda one: (one.name, one.sha256))),
        licences=_licences(order, records),
    )


def histogram(tokens: Iterable[int]) -> dict[str, int]:
    """Records by size; what is larger than every bound is under ``more``."""
    counts = dict.fromkeys((*(str(bound) for bound in TOKEN_BOUNDS), "more"), 0)
    for count in tokens:
        counts[next((str(bound) for bound in TOKEN_BOUNDS if count <= bound), "more")] += 1
    return counts


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counts(str(value) for value in values).items()))


def _licences(order: Order, records: Sequence[TrainingRecord]) -> dict[str, str]:
    writers = sorted({name for one in records for name in (one.model, one.repair_teacher, one.reasoning_teacher)})
    if unknown := sorted(set(order.licences) - set(writers)):
        raise InputError(
            f"--licence {unknown[0]}=...: expected one of {', '.join(writers)}, found {unknown[0]}; nobody of "
            "that name wrote anything here"
        )
    return _OURS | {f"written by {name}": order.licences.get(name, NOT_STATED) for name in writers}
