"""Recipes: which turns become training records, and how they are balanced. YAML files in ``recipes``, or the user's."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ptxbench.adapt.defaults import RECORD_TOKENS
from ptxbench.cases.yaml_file import read_yaml
from ptxbench.errors import InputError
from ptxbench.records import Outcome, Record
from ptxbench.records.base import Count, Turns

FAILED = (
    Outcome.COMPILE_ERROR,
    Outcome.MEMORY_ERROR,
    Outcome.RUNTIME_ERROR,
    Outcome.TIMEOUT,
    Outcome.WRONG_SHAPE_OR_DTYPE,
    Outcome.NUMERICAL_ERROR,
)
"""Outcomes that a repair can be written for. The paper's labels are compilation, runtime, timeout and numerical errors;
what it has no label of its own for (memory errors that only a sanitizer sees, wrong shapes) is ours. No kernel, no
verdict, a fault of the machinery and forbidden code are nothing to repair."""

Kind = Literal["fixit", "kernelgen"]
Reasoning = Literal["any", "other", "self"]
"""Who must have written the rationales: anybody, another model than the turn's, or that model itself."""
_Names = Annotated[tuple[str, ...], Field(min_length=1)]


class Recipe(Record):
    """The content of a recipe file."""

    schema_version: Literal[1]
    name: str
    kind: Kind
    title: str
    definitions: _Names
    archs: _Names
    turns: Turns
    """Only turns below this one, of those counted from 0."""
    variants: tuple[str, ...] = ()
    """Names of prompt variants; empty: all."""
    outcomes: tuple[Outcome, ...] = FAILED
    """Of k-. Nothing to say for KernelGen."""
    balance: Literal["none", "before_repair", "after_repair"]
    cap: Annotated[int, Field(ge=1)] | None = None
    """Records of each definition and architecture at most; the rest leaves in proportion to (outcome, turn)."""
    seed: Count = 0
    """Of which ones leave."""
    max_tokens: Annotated[int, Field(ge=1)] = RECORD_TOKENS

    @model_validator(mode="after")
    def _cap_where_balanced(self) -> Self:
        if (self.balance == "none") is not (self.cap is None):
            raise ValueError("expected a cap where there is a balance, and none elsewhere")
        if bad := sorted(set(self.outcomes) - set(FAILED)):
            raise ValueError(f"expected outcomes of {', '.join(FAILED)}, found {bad[0]}")
        if self.kind == "kernelgen" and self.balance == "before_repair":
            raise ValueError("kernelgen has no repair: expected balance none or after_repair")
        return self


class Adapter(Record):
    """One of the paper's seven."""

    recipe: str
    reasoning: Reasoning
    published_teacher: str
    published_records: Count


class Series(Record):
    """The content of ``recipes/series.yaml``."""

    schema_version: Literal[1]
    series: dict[str, Adapter]


class Selection(Record):
    """A recipe as it was asked for."""

    asked: str
    """Name on the command line: of a recipe or of one of the paper's seven; of a file the name that it gives itself."""
    recipe: Recipe
    reasoning: Reasoning = "any"


def recipe_names() -> tuple[str, ...]:
    """Names of the recipes that are part of the package."""
    return tuple(sorted(path.stem for path in _folder().glob("*.yaml") if path.stem != "series"))


@cache
def series() -> dict[str, Adapter]:
    """The paper's seven, by name."""
    return read_yaml(_folder() / "series.yaml").parse(Series).series


def find_recipe(name: str) -> Selection:
    """A recipe by its name, by the name of one of the paper's seven, or from the user's file.

    Raises InputError for a name that is none, and a file that is no recipe.
    """
    if name.endswith((".yaml", ".yml")):
        recipe = read_yaml(Path(name)).parse(Recipe)
        return Selection(asked=recipe.name, recipe=recipe)
    adapter = series().get(name)
    path = _folder() / f"{adapter.recipe if adapter is not None else name}.yaml"
    if adapter is None and name not in recipe_names():
        raise InputError(
            f"--recipe {name}: expected one of {', '.join((*recipe_names(), *sorted(series())))}, or a file "
            "NAME.yaml; see docs/adaptation.md"
        )
    reasoning: Reasoning = adapter.reasoning if adapter is not None else "any"
    return Selection(asked=name, recipe=read_yaml(path).parse(Recipe), reasoning=reasoning)


def _folder() -> Path:
    return Path(str(files(__package__).joinpath("recipes")))
