"""The base of every value that travels the road from case to report.

Records are frozen, reject unknown fields and are strict about types, so that a stored file either is
exactly what a room wrote or fails to load with the field's name. Each top-level record carries a
``schema_version``; a field is never reused or given another meaning without raising it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""Lower-case hexadecimal SHA-256."""


def read_non_finite(value: object) -> object:
    """The reading half of ``ser_json_inf_nan = "strings"``: strict pydantic writes these strings but refuses them."""
    return float(value) if isinstance(value, str) and value in ("Infinity", "-Infinity", "NaN") else value


Real = Annotated[float, BeforeValidator(read_non_finite)]
"""A float that survives JSON when it is infinite or NaN."""


class Record(BaseModel):
    """A frozen, strict pydantic model. Non-finite floats are written as strings, so the JSON stays JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, ser_json_inf_nan="strings")
