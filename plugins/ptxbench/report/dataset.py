"""What an adapted model was trained on, as a report knows it: the manifest of the dataset, and nothing of its texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ptxbench.errors import InputError
from ptxbench.records.base import MOST_COUNT, first_fault

MANIFEST = "manifest.json"
Name = Annotated[str, Field(min_length=1, max_length=300)]
Counts = Annotated[dict[Name, Annotated[int, Field(ge=1, le=MOST_COUNT)]], Field(min_length=1, max_length=1000)]


class Manifest(BaseModel):
    """A dataset: its recipe, and how many records of what it has. What else stands there is others' business."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    schema_version: Literal[1]
    name: Name
    recipe: Name
    kind: Literal["fixit", "kernelgen"]
    records: Annotated[int, Field(ge=1, le=MOST_COUNT)]
    by_case: Counts
    """Records by workload and architecture: ``CASE ARCH``."""
    by_outcome: Counts
    """By what the repaired kernel did; ``correct`` where there was none to repair."""
    by_turn: Counts
    """By the turn in which that kernel was written."""
    by_repair_teacher: Counts
    """By who wrote the kernel that is learned."""
    by_teacher: Counts
    """By who wrote the reasoning before it."""
    by_language: Counts

    @property
    def cases(self) -> frozenset[str]:
        """Workloads with a record."""
        return frozenset(name.rpartition(" ")[0] for name in self.by_case)

    @property
    def archs(self) -> frozenset[str]:
        """Architectures with a record."""
        return frozenset(name.rpartition(" ")[2] for name in self.by_case)

    def archs_of(self, case: str) -> frozenset[str]:
        """Architectures with a record of this workload."""
        pairs = (name.rpartition(" ") for name in self.by_case)
        return frozenset(arch for known, _, arch in pairs if known == case)

    @property
    def languages(self) -> frozenset[str]:
        """Source languages with a record."""
        return frozenset(self.by_language)


def load_manifests(folders: Sequence[Path], sources: int) -> tuple[Manifest, ...]:
    """The manifest of each adapted model: of all ``sources`` but the first, which is the base model.

    One folder stands for all of them. Raises InputError for another number, or what is no manifest.
    """
    adapted = sources - 1
    if adapted < 1 or len(folders) not in (1, adapted):
        raise InputError(
            "--dataset: expected the base model's run, then those of adapted models, and one dataset for all or one "
            f"for each, found {sources} runs and {len(folders)} datasets; name them in this order"
        )
    found = tuple(read_manifest(folder) for folder in folders)
    return found if len(found) == adapted else found * adapted


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a dataset's folder, or that file. Raises InputError for what is none."""
    path = folder / MANIFEST if folder.is_dir() else folder
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"--dataset {folder}: expected a dataset's folder with {MANIFEST}, found: {error.strerror}; build one with "
            "ptxbench fixit build"
        ) from error
    except ValidationError as error:
        raise InputError(
            f"{path}: expected a dataset's manifest, found {first_fault(error)}; build the dataset again"
        ) from error
