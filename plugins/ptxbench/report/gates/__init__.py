"""Gates: conditions on a report that decide the exit status of a session (docs/ci.md)."""

from ptxbench.report.gates.expression import AllOf, AnyOf, Comparison, Gate, Metric, Number
from ptxbench.report.gates.judgement import Answer, Finding, Judged, judge_gate
from ptxbench.report.gates.parser import parse
from ptxbench.report.gates.regression import Drop, Held, judge_regression

__all__ = [
    "AllOf",
    "Answer",
    "AnyOf",
    "Comparison",
    "Drop",
    "Finding",
    "Gate",
    "Held",
    "Judged",
    "Metric",
    "Number",
    "judge_gate",
    "judge_regression",
    "parse",
]
