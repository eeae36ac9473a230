"""What a dataset is of: ``manifest.json`` beside its records. Needs none of the packages that made it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import ValidationError

from ptxbench.adapt.funnel import Step
from ptxbench.adapt.recipe import Kind, Reasoning, Recipe
from ptxbench.adapt.run_turns import RunInput
from ptxbench.errors import InputError
from ptxbench.records import Record, Sha256
from ptxbench.records.base import Count, first_fault

MANIFEST = "manifest.json"
TRAIN = "train.jsonl"
PARQUET = "train.parquet"
PROMPT_COMPLETION = "prompt_completion.parquet"
CARD = "README.md"


class PoolInput(Record):
    """A file of repairs or rationales that a dataset was made of."""

    name: str
    records: Count
    sha256: Sha256


class Manifest(Record):
    """The content of ``manifest.json``. Nothing in it depends on when or where the dataset was built."""

    schema_version: Literal[1] = 1
    name: str
    """As the recipe was asked for: its name, also where it is a user's file, or that of one of the paper's seven."""
    recipe: str
    """Name of the recipe."""
    recipe_content: Recipe
    kind: Kind
    reasoning: Reasoning
    archs: tuple[str, ...]
    model: str
    """The model under adaptation; for KernelGen the one whose kernels these are."""
    ptxbench: str
    """Version that built it."""
    records: Count
    train_sha256: Sha256
    """Of ``train.jsonl``: identity of the content, which the other files repeat."""
    token_counter: Literal["estimate", "qwen"]
    tokens: dict[str, Count]
    """Records by size: upper bound in tokens -> how many are within it and beyond the one before."""
    tokens_most: Count
    """Of the largest record."""
    tokens_in_all: Count
    by_case: dict[str, Count]
    """``CASE ARCH`` -> records."""
    by_outcome: dict[str, Count]
    """Of k-."""
    by_turn: dict[str, Count]
    """Of the turn that x and k- are of, from 0."""
    by_language: dict[str, Count]
    by_variant: dict[str, Count]
    by_repair_teacher: dict[str, Count]
    by_teacher: dict[str, Count]
    """Of whoever wrote the rationales."""
    funnel: tuple[Step, ...]
    """From the turns of the runs to the records."""
    runs: tuple[RunInput, ...]
    pools: tuple[PoolInput, ...]
    licences: dict[str, str]
    """Input -> under which terms it is."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Of a dataset's folder. Raises InputError where there is none, or one that cannot be read."""
        path = folder / MANIFEST
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise InputError(
                f"{folder}: expected a dataset's folder with a {MANIFEST}, found: {error.strerror}; "
                "build one with ptxbench fixit build"
            ) from error
        except ValidationError as error:
            raise InputError(
                f"{path}: expected the manifest of a dataset, found {first_fault(error)}; build the dataset again"
            ) from error
