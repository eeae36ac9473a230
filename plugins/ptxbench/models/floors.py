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

    Raises InputError that names file, line, field, what was expected and what was found.
    """
    document = read_yaml(path)
    floors = document.parse(Floors)
    if floors.arch != arch:
        raise document.error(("arch",), f"{arch!r}, the name of its folder", repr(floors.arch))
    return floors
