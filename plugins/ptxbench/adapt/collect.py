"""Collecting failures, and for KernelGen correct kernels, from run folders (PROTOCOL 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ptxbench.adapt.balance import Place, keep
from ptxbench.adapt.feedback_alone import feedback_alone
from ptxbench.adapt.funnel import Funnel
from ptxbench.adapt.kernel_code import code_sha256
from ptxbench.adapt.model import Correct, Failure, Provenance, ToldTurn
from ptxbench.adapt.recipe import Recipe
from ptxbench.adapt.run_turns import FoundTurns, RunInput, SeenTurn, find_turns
from ptxbench.agent.run_cases import RunCases
from ptxbench.agent.turn_files import StoredTurn, read_turn
from ptxbench.errors import InputError
from ptxbench.models import PastTurn
from ptxbench.records import Exchange, Message, Outcome, TurnRecord

_Read = Callable[[Path], StoredTurn]
_KEPT_FILES = 16
"""Turns of one trajectory follow each other, and each is looked at for itself and for its neighbours."""


class Collected(NamedTuple):
    """What a recipe takes from some runs."""

    records: list[Failure | Correct]
    """Sorted by id."""
    inputs: tuple[RunInput, ...]
    model: str
    """Whose turns they are."""
    funnel: Funnel
    """From the turns of the runs to these records."""


class Sources(NamedTuple):
    """Where turns are looked for."""

    root: Path
    """Of the checkout."""
    runs: Sequence[str]
    """Names or paths."""
    trace_sets: Sequence[Path] = ()
    """Collections that some of them are of."""


def collect(sources: Sources, recipe: Recipe, model: str | None = None) -> Collected:
    """The failures, or correct turns, that a recipe is made of. The same runs give the same records.

    ``model`` is the model under adaptation, for KernelGen whoever wrote the kernels; None: the only one in the runs.
    Raises InputError where that is not one, for runs that cannot be read, and for cases that no suite knows.
    """
    found = find_turns(sources.root, sources.runs)
    name = _model(found, model)
    funnel = Funnel("turns of the runs", len(found.turns))
    turns = _usable(found.turns, name, funnel)
    turns = _of_recipe(turns, recipe, funnel)
    turns = _once(turns, [turn for turn in found.turns if turn.key.model == name], recipe, funnel)
    if recipe.balance == "before_repair" and recipe.cap is not None:
        kept = keep(turns, _place, recipe.cap, recipe.seed)
        step = f"balanced before repair: at most {recipe.cap} of each operator"
        turns = funnel.narrowed(step, turns, kept, "beyond the cap")
    cases = RunCases(sources.root, sources.trace_sets)
    read = lru_cache(maxsize=_KEPT_FILES)(_read)
    records = [_record(turn, recipe, cases, read) for turn in turns]
    return Collected(sorted(records, key=lambda one: one.id), found.inputs, name, funnel)


def _model(found: FoundTurns, model: str | None) -> str:
    names = sorted({turn.key.model for turn in found.turns})
    if model is None and len(names) == 1:
        return names[0]
    if model not in names:
        wanted = f"turns of {model}" if model is not None else "turns of one model"
        raise InputError(
            f"--model: expected {wanted} in the runs, found those of {', '.join(names)}; name one of these"
        )
    return model


def _usable(turns: list[SeenTurn], model: str, funnel: Funnel) -> list[SeenTurn]:
    """Turns of the model with a verdict and a conversation."""
    turns = funnel.keep(f"of {model}", turns, lambda turn: "" if turn.key.model == model else "of another model")
    turns = funnel.keep("judged", turns, lambda turn: _UNJUDGED.get(turn.outcome, ""))
    return funnel.keep("asked for, from the first message on", turns, _conversation)


_UNJUDGED = {
    Outcome.INFRASTRUCTURE_ERROR: "infrastructure fault or damaged record",
    Outcome.UNKNOWN: "never measured",
}


def _conversation(turn: SeenTurn) -> str:
    if not turn.asked:
        return "not of a language model"
    return "" if turn.opening_turn is not None else "beginning of the conversation not stored"


def _of_recipe(turns: list[SeenTurn], recipe: Recipe, funnel: Funnel) -> list[SeenTurn]:
    turns = funnel.keep("holds a kernel that may be judged", turns, _forbidden)
    if recipe.kind == "fixit":
        turns = funnel.keep("failed", turns, lambda turn: "correct" if turn.outcome is Outcome.CORRECT else "")
        turns = funnel.keep(
            "with an outcome of the recipe", turns, lambda turn: "" if turn.outcome in recipe.outcomes else turn.outcome
        )
    else:
        turns = funnel.keep("correct", turns, lambda turn: "" if turn.outcome is Outcome.CORRECT else turn.outcome)

    def elsewhere(turn: SeenTurn) -> str:
        if turn.definition not in recipe.definitions:
            return "another operator"
        if turn.key.arch not in recipe.archs:
            return "another architecture"
        return "another prompt variant" if recipe.variants and turn.variant_name not in recipe.variants else ""

    turns = funnel.keep("of the recipe's operators", turns, elsewhere)
    first = f"of the first {recipe.turns} turns"
    return funnel.keep(first, turns, lambda turn: "a later turn" if turn.key.turn >= recipe.turns else "")


def _forbidden(turn: SeenTurn) -> str:
    """No repair teaches anything where there is no kernel, or one that leaves its work to a library."""
    if turn.outcome is Outcome.EXTRACTION_ERROR or turn.source_sha256 is None:
        return "no kernel in the answer"
    return f"screened ({turn.rule})" if turn.outcome is Outcome.SCREENED else ""


def _once(turns: list[SeenTurn], everything: list[SeenTurn], recipe: Recipe, funnel: Funnel) -> list[SeenTurn]:
    """Each kernel of an operator once; failures that another judging found correct are failures of nobody."""
    code = _Codes()
    if recipe.kind == "fixit":
        operators = {(turn.definition, turn.key.arch) for turn in turns}
        correct = {
            code(turn)
            for turn in everything
            if turn.outcome is Outcome.CORRECT and (turn.definition, turn.key.arch) in operators
        }
        turns = funnel.keep(
            "never found correct",
            turns,
            lambda turn: "the same kernel was correct elsewhere" * (code(turn) in correct),
        )
    return funnel.keep("each kernel once", turns, _first_of_its_code(code))


def _first_of_its_code(code_of: _Codes) -> Callable[[SeenTurn], str]:
    seen: set[tuple[str, str, str]] = set()

    def why_not(turn: SeenTurn) -> str:
        code = code_of(turn)
        if code in seen:
            return "the same kernel again"
        seen.add(code)
        return ""

    return why_not


class _Codes:
    """Kernels as code (``code_sha256``), each with its operator; a source is read once."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, turn: SeenTurn) -> tuple[str, str, str]:
        source = turn.source_sha256
        assert source is not None
        if source not in self._known:
            candidate = _read(_path(turn, turn.key.turn)).candidate
            assert candidate is not None
            self._known[source] = code_sha256(candidate.source)
        return turn.definition, turn.key.arch, self._known[source]


def _place(turn: SeenTurn) -> Place:
    assert turn.source_sha256 is not None
    return Place((turn.definition, turn.key.arch), (turn.outcome, turn.key.turn), _origin(turn).id(turn.source_sha256))


def _origin(turn: SeenTurn) -> Provenance:
    identity = turn.store.identity
    return Provenance(
        run=turn.store.name, run_created_at=identity.created_at, suites=tuple(identity.suites), key=turn.key
    )


def _record(turn: SeenTurn, recipe: Recipe, cases: RunCases, read: _Read) -> Failure | Correct:
    """The turn with its texts, read again from its files."""
    stored = read(_path(turn, turn.key.turn))
    assert turn.opening_turn is not None
    opening = _exchange(read(_path(turn, turn.opening_turn)).record)
    assert stored.candidate is not None
    source = stored.candidate.source
    told = ToldTurn(
        origin=_origin(turn),
        definition=turn.definition,
        variant_name=turn.variant_name,
        prompt=opening.added,
        prompt_identity=opening.prompt,
        source=source,
    )
    if recipe.kind == "kernelgen":
        return Correct(**dict(told), verdict=stored.record.verdict)
    case = cases.find(tuple(turn.store.identity.suites), stored.record)
    given = turn.store.turns_given(turn.key.model) or recipe.turns
    feedback = feedback_alone(case, PastTurn(stored.record, source), _told(turn, read), given - turn.key.turn - 1)
    return Failure(**dict(told), outcome=turn.outcome, feedback=feedback)


def _told(turn: SeenTurn, read: _Read) -> str | None:
    """What the model was told of the turn, if it had another one."""
    if turn.next_turn is None:
        return None
    added = _exchange(read(_path(turn, turn.next_turn)).record).added
    return next(_texts(added), None)


def _texts(added: Sequence[Message]) -> Iterator[str]:
    return (message.content for message in added if message.role == "user")


def _path(turn: SeenTurn, number: int) -> Path:
    return turn.store.turn_path(turn.key.model_copy(update={"turn": number}))


def _read(path: Path) -> StoredTurn:
    stored = read_turn(path)
    if not isinstance(stored, StoredTurn):
        raise InputError(f"{path}: expected the turn that was there a moment ago, found {stored}; collect again")
    return stored


def _exchange(record: TurnRecord) -> Exchange:
    assert record.exchange is not None
    return record.exchange
