"""``reference.yaml``: the speedup that each reference solution promises."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ptxbench.cases.yaml_file import read_yaml
from ptxbench.records import Record

FLOORS_FILE = "reference.yaml"


class Floors(Record):
    """The reference solutions' own floors on one architecture."""

    schema_version: Literal[1]
    arch: str
    min_speedup: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]]
    """Definition name -> baseline latency over the solution's, which ``test_speedup`` must see exceeded."""


def load_floors(path: Path, arch: str) -> Floors:
    """Read the floors that lie beside an architecture's solutions.

    Raises InputError that names file, line, field, what was expected and what was found; a floor of a definition that
    has no solution beside the file is a mistake too.
    """
    document = read_yaml(path)
    floors = document.parse(Floors)
    if floors.arch != arch:
        raise document.error(("arch",), f"{arch!r}, the name of its folder", repr(floors.arch))
    solved = sorted(kernel.parent.name for kernel in path.parent.glob("*/kernel.cu"))
    for name in floors.min_speedup:
        if name not in solved:
            expected = f"one of the solutions beside it ({', '.join(solved) or 'none'})"
            raise document.error(("min_speedup", name), expected, repr(name))
    return floors
