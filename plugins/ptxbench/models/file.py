"""``file:PATH``: one source file, proposed once for whichever cases are selected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ptxbench.errors import InputError
from ptxbench.models.base import End, PastTurn, Proposal, no_further_turn, slug
from ptxbench.records import Candidate

if TYPE_CHECKING:
    from ptxbench.cases import Case


def read_source(path: Path) -> str:
    """The text of a kernel file. Raises InputError for a file that is missing, not text, or not a ``.cu``."""
    if path.suffix != ".cu":
        raise InputError(f"--model file:{path}: expected one CUDA source ending in .cu, found {path.name!r}")
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise InputError(f"--model file:{path}: no such file; give the path of one .cu file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"--model file:{path}: expected UTF-8 text, found byte {error.start} that is not") from error
    except OSError as error:
        raise InputError(f"--model file:{path}: cannot be read: {error.strerror}") from error


def file_model_name(path: Path) -> str:
    """``file.STEM``; a file called ``kernel.cu`` is named by its folder, since all of them are called so."""
    return f"file.{slug(path.resolve().parent.name if path.stem == 'kernel' else path.stem)}"


class FileModel:
    """Proposes the text of one file. The file is read once, so all turns of a run judge the same bytes.

    Raises InputError where the file cannot be read.
    """

    turns: int | None = 1

    def __init__(self, path: Path) -> None:
        self.name = file_model_name(path)
        self._candidate = Candidate(source=read_source(path))

    def min_speedup(self, case: Case) -> float | None:
        """A file declares no floor."""
        del case
        return None

    def known_source(self, case: Case, variant: int, trajectory: int, turn: int) -> str | None:
        """The file's hash."""
        del case, variant, trajectory, turn
        return self._candidate.sha256

    def propose(
        self, case: Case, variant: int, trajectory: int, turn: int, history: Sequence[PastTurn]
    ) -> Proposal | End:
        """The file in the first turn of every trajectory."""
        del case, variant, trajectory, history
        return Proposal(candidate=self._candidate, origin="file") if turn == 0 else no_further_turn(turn)
