"""Values of scalars, against what the element types hold."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.trace import DType
from ptxbench.trace.scalars import expected_of


@pytest.mark.parametrize(
    ("dtype", "value", "fits"),
    [
        ("int8", -128, True),
        ("int8", 128, False),
        ("int32", 2**31 - 1, True),
        ("int32", 2**40, False),
        ("int64", -(2**63), True),
        ("int64", 10**400, False),
        ("int32", 1.5, False),
        ("int32", 1.0, False),
        ("int32", True, False),
        ("int32", math.nan, False),
        ("bool", True, True),
        ("bool", 1, False),
        ("float32", 2**70, True),
        ("float32", 1e300, False),
        ("float32", 10**400, False),
        ("float32", math.nan, False),
        ("float32", -math.inf, False),
        ("float32", False, False),
        ("float32", -0.0, True),
        ("bfloat16", 3.38e38, True),
        ("bfloat16", 3.4e38, False),
        ("float16", 65519, True),
        ("float16", 65520, False),
        ("float8_e5m2", 57344, True),
        ("float8_e5m2", 61440, False),
        ("float8_e4m3fn", 448, True),
        ("float8_e4m3fn", 480, False),
        ("float4_e2m1", 6, True),
        ("float4_e2m1", 8, False),
    ],
)
def test_what_fits(dtype: str, value: float, fits: bool) -> None:
    assert (expected_of(DType(dtype), value) == "") is fits


@pytest.mark.parametrize(("dtype", "code"), [("float32", "f"), ("float16", "e")])
@given(value=st.floats(allow_nan=False) | st.floats(6e4, 7e4) | st.floats(3.39e38, 3.42e38))
def test_floats_are_finite_after_conversion(dtype: str, code: str, value: float) -> None:
    try:
        converted = struct.unpack(code, struct.pack(code, value))[0]
    except OverflowError:
        converted = math.inf
    assert (expected_of(DType(dtype), value) == "") is math.isfinite(converted)
