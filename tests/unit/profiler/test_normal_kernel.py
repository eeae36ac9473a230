"""The arithmetic of the generator's elements, compiled for the host; what the device makes of it is in tests/gpu."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

COMPILER = shutil.which("g++") or shutil.which("c++")
PROLOGUE = """
#include <cmath>
#include <cstdint>
#include <cstring>
#define __device__
#define __forceinline__ inline
typedef uint32_t u32;
struct float2 { float x, y; };
static float2 make_float2(float x, float y) { return {x, y}; }
static float __uint_as_float(u32 bits) { float value; std::memcpy(&value, &bits, 4); return value; }
static u32 __float_as_uint(float value) { u32 bits; std::memcpy(&bits, &value, 4); return bits; }
static u32 __byte_perm(u32 a, u32 b, u32 selector) {
  const uint64_t bytes = (uint64_t)b << 32 | a;
  u32 result = 0;
  for (int i = 0; i < 4; ++i) result |= (u32)(bytes >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
  return result;
}
static float device_lg2(float x) { return std::log2(x); }
static float device_sqrt(float x) { return std::sqrt(x); }
static float device_sin(float x) { return (float)std::sin((double)x); }
static float device_cos(float x) { return (float)std::cos((double)x); }
"""
# Of all words whose radius is the largest 2^-12 of all: [function][x or y][sign][bound].
EPILOGUE = """
extern "C" void count_tails(uint64_t counts[2][2][2][3]) {
  const float bounds[3] = {4.4f, 4.7f, 5.0f};
  for (uint64_t word = 0xfff00000u; word <= 0xffffffffu; ++word) {
    const float2 pairs[2] = {normal_pair_special((u32)word), normal_pair_polynomial((u32)word)};
    for (int f = 0; f < 2; ++f)
      for (int c = 0; c < 2; ++c) {
        const float value = c ? pairs[f].y : pairs[f].x;
        for (int b = 0; b < 3; ++b) counts[f][c][value < 0][b] += std::fabs(value) > bounds[b];
      }
  }
}
"""
TAILS = (1.0825e-5 / 2, 2.6016e-6 / 2, 5.7330e-7 / 2)
"""Probability of a standard normal element beyond each bound, one side."""


@pytest.fixture(scope="module")
def tails(tmp_path_factory: pytest.TempPathFactory) -> list[list[list[list[int]]]]:
    if COMPILER is None:
        pytest.skip("no host compiler")
    text = files("ptxbench.profiler").joinpath("normal_kernel.cu").read_text()
    body = text[text.index("// Box-Muller") : text.index("struct alignas(16) Group")]
    pattern = r'asm\("(\w+)\.approx\.ftz\.f32 %0, %1;" : "=f"\((\w+)\) : "f"\((.+)\)\);'
    body, replaced = re.subn(pattern, r"\2 = device_\1(\3);", body)
    assert replaced == 4
    folder: Path = tmp_path_factory.mktemp("normal")
    (folder / "host.cpp").write_text(PROLOGUE + body.replace("fmaf", "std::fma") + EPILOGUE)
    command = [COMPILER, "-O2", "-shared", "-fPIC", "-o", str(folder / "host.so"), str(folder / "host.cpp")]
    subprocess.run(command, check=True, capture_output=True)
    counts = (ctypes.c_uint64 * 3 * 2 * 2 * 2)()
    ctypes.CDLL(str(folder / "host.so")).count_tails(counts)
    return [[[list(sign) for sign in c] for c in f] for f in counts]


@pytest.mark.parametrize("bound", [0, 1, 2])
@pytest.mark.parametrize("negative", [0, 1])
@pytest.mark.parametrize("component", [0, 1])
@pytest.mark.parametrize("function", [0, 1])
def test_both_tails_of_every_element_are_normal(
    tails: list[list[list[list[int]]]], function: int, component: int, negative: int, bound: int
) -> None:
    """A large radius is known by its low bits alone: an angle that shares them is known with it."""
    share = tails[function][component][negative][bound] / 2**32
    assert share == pytest.approx(TAILS[bound], rel=0.1)
