"""From turns to what people and programs read: terminal table, JSON, JUnit properties."""

from ptxbench.report.calls import Calls, calls_of, describe_calls
from ptxbench.report.cell import Cell, CellKey, CellPlan
from ptxbench.report.document import RunReport
from ptxbench.report.json_report import build_report, write_report
from ptxbench.report.junit import turn_properties
from ptxbench.report.summary import plans_of, summarize
from ptxbench.report.terminal import render

__all__ = [
    "Calls",
    "Cell",
    "CellKey",
    "CellPlan",
    "RunReport",
    "build_report",
    "calls_of",
    "describe_calls",
    "plans_of",
    "render",
    "summarize",
    "turn_properties",
    "write_report",
]
