"""From a candidate's source to a shared object and the facts about it: nvcc, cache, disassembly, screen."""

from ptxbench.toolchain.cache import CACHE_VARIABLE, DEFAULT_MAX_BYTES, Built, default_cache_dir
from ptxbench.toolchain.discovery import Tools
from ptxbench.toolchain.process import Limits
from ptxbench.toolchain.rules import ScreenRule
from ptxbench.toolchain.toolchain import Arch, Toolchain

__all__ = [
    "CACHE_VARIABLE",
    "DEFAULT_MAX_BYTES",
    "Arch",
    "Built",
    "Limits",
    "ScreenRule",
    "Toolchain",
    "Tools",
    "default_cache_dir",
]
