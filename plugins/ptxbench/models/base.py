"""The seam between the trajectory loop and whatever writes kernels."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from ptxbench.records import Candidate, Exchange, Record, TurnRecord

if TYPE_CHECKING:
    from ptxbench.cases import Case


class Proposal(Record):
    """What a model answered: a candidate, or the reason why its answer holds none."""

    candidate: Candidate | None
    extraction_error: str = ""
    origin: str
    """Where the source came from, as the turn's record keeps it."""
    exchange: Exchange | None = None
    """The call of a language model that brought it."""


class End(Record):
    """The model has nothing to propose for this turn or any later one of the trajectory."""

    message: str
    """Why, for the user."""
    reason: Literal["no_further_turn", "context_exhausted", "budget"] = "no_further_turn"
    exchange: Exchange | None = None
    """The call that found the context exhausted."""


class PastTurn(NamedTuple):
    """An earlier turn of the same trajectory."""

    record: TurnRecord
    source: str | None
    """None where the answer held no kernel."""


class Model(Protocol):
    """Writes kernels. Implementations are safe to call from several threads, one trajectory per thread."""

    @property
    def name(self) -> str:
        """First part of every turn id; matches ``NAME_PATTERN``."""

    @property
    def turns(self) -> int | None:
        """Turns that the model has by nature; None where the protocol alone limits them."""

    def min_speedup(self, case: Case) -> float | None:
        """The floor that the model declares for itself on this case, baseline latency over its own."""

    def known_source(self, case: Case, variant: int, trajectory: int, turn: int) -> str | None:
        """Hash of the candidate that ``propose`` will return, where that is known without asking.

        A stored turn of another hash is stale and is not reused. None: the stored turn stands, since asking
        again would be another answer.
        """

    def propose(
        self, case: Case, variant: int, trajectory: int, turn: int, history: Sequence[PastTurn]
    ) -> Proposal | End:
        """The kernel of one turn, given the trajectory's earlier turns in order.

        Raises InfrastructureError where the answer could not be had.
        """


NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
"""Model names are part of pytest ids and of file names."""


def slug(text: str) -> str:
    """``text`` with everything that does not belong in a name replaced, at most 60 characters, never empty.

    Where letters are lost, by their script or by length, a short hash of the whole keeps different texts apart: under
    one name, a run would take the turns of one for those of the other.
    """
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._-")
    if cleaned and len(cleaned) <= 60 and not any(char.isalnum() and not char.isascii() for char in text):
        return cleaned
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{cleaned[:51] or 'unnamed'}-{digest}"


def no_further_turn(turn: int) -> End:
    """The end that a model of fixed sources gives beyond its last one."""
    return End(message=f"the model has no further turn (asked for turn {turn})")
