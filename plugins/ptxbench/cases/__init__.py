"""Suites and architectures: from the files under ``cases`` and ``knowledge_packs`` to ``Case`` records."""

from ptxbench.cases.arch import Arch, SassFamilies, available_archs, load_arch, opcode_base
from ptxbench.cases.case import Baseline, Case, InputRecipe, Op, Tolerance
from ptxbench.cases.formula import FormulaError, evaluate
from ptxbench.cases.root import find_root
from ptxbench.cases.structure import Layout, Structure
from ptxbench.cases.suite import Suite, available_suites, load_suite, select_cases

__all__ = [
    "Arch",
    "Baseline",
    "Case",
    "FormulaError",
    "InputRecipe",
    "Layout",
    "Op",
    "SassFamilies",
    "Structure",
    "Suite",
    "Tolerance",
    "available_archs",
    "available_suites",
    "evaluate",
    "find_root",
    "load_arch",
    "load_suite",
    "opcode_base",
    "select_cases",
]
