"""Which values a scalar input of an element type can have."""

from __future__ import annotations

from ptxbench.trace.definition import DType

_INTEGERS = (DType.INT64, DType.INT32, DType.INT16, DType.INT8)
_FIRST_NOT_FINITE = {
    DType.FLOAT32: 2.0**128 - 2.0**103,
    DType.FLOAT16: 2.0**16 - 2.0**4,
    DType.BFLOAT16: 2.0**128 - 2.0**119,
    DType.FLOAT8_E5M2: 2.0**16 - 2.0**12,
    DType.FLOAT8_E4M3FN: 464.0,
    DType.FLOAT4_E2M1: 7.0,
}
"""The largest finite value and half a unit of its last place: what is as large rounds to no finite value."""


def expected_of(dtype: DType, value: bool | int | float) -> str:
    """What a scalar of ``dtype`` must be, where ``value`` is not that; empty where it is."""
    if dtype is DType.BOOL:
        return "" if isinstance(value, bool) else "true or false, as for bool"
    if dtype in _INTEGERS:
        least, most = -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return "" if fits else f"an integer from {least} to {most}, as for {dtype.value}"
    # NaN is below nothing.
    fits = not isinstance(value, bool) and abs(value) < _FIRST_NOT_FINITE[dtype]
    return "" if fits else f"a number that is finite in {dtype.value}"
