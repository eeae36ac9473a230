"""The base of every value that travels the road from case to report.

Records are frozen, reject unknown fields and are strict about types, so that a stored file either is
exactly what a room wrote or fails to load with the field's name. Each top-level record carries a
``schema_version``; a field is never reused or given another meaning without raising it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from ptxbench.plain import visible

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""Lower-case hexadecimal SHA-256."""


def read_non_finite(value: object) -> object:
    """The reading half of ``ser_json_inf_nan = "strings"``: strict pydantic writes these strings but refuses them."""
    return float(value) if isinstance(value, str) and value in ("Infinity", "-Infinity", "NaN") else value


Real = Annotated[float, Field(allow_inf_nan=True), BeforeValidator(read_non_finite)]
"""A float that survives JSON when it is infinite or NaN. All other floats of records are finite."""

MOST_COUNT = 2**53
"""No count is larger; beyond it a float no longer holds each number, and readers of JSON and Parquet differ."""
Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]
"""How many there are of something."""
MOST_TURNS = 10_000
"""Turns of a trajectory, and the numbers of turns, trajectories and variants: ten times what a session can be asked
for. Whoever reads a report makes a list of all turns that could have been."""
Number = Annotated[int, Field(ge=0, lt=MOST_TURNS)]
"""The number of a turn, a trajectory or a variant, from 0."""
Turns = Annotated[int, Field(ge=1, le=MOST_TURNS)]
"""Turns of a trajectory, or a turn limit."""
MOST_NS = 10**15
"""Twelve days. No call that is timed takes so long: time limits are minutes."""
Nanoseconds = Annotated[int, Field(ge=0, le=MOST_NS)]
Amount = Annotated[float, Field(ge=0, le=1e18)]
"""A size, a duration or a price: finite, and so bounded that sums and products of some are finite too."""
MOST_SPEEDUP = 1e16
"""``MOST_NS`` over less than a nanosecond; a speedup is at least its inverse. Within these, speedups print in full."""
Speedup = Annotated[float, Field(ge=1 / MOST_SPEEDUP, le=MOST_SPEEDUP)]
"""Baseline over latency. What has none has no zero."""


class Record(BaseModel):
    """A frozen, strict pydantic model. Floats are finite but in ``Real``, where others are written as strings, so that
    the JSON stays JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, ser_json_inf_nan="strings", allow_inf_nan=False)


def first_fault(error: ValidationError) -> str:
    """What is wrong with a record, and in which field: the first finding of pydantic, as ``WHAT at FIELD``."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if not where and first["type"] == "value_error":  # of several fields, which it names
        return visible(first["msg"].removeprefix("Value error, "))
    return visible(f"{first['msg'].removeprefix('Value error, ')} at {where or 'the document'}")
