"""Judging and metrics: pure functions that need neither a GPU nor a compiler."""

from ptxbench.verdict.judge import judge, judge_extraction_error, judge_infrastructure
from ptxbench.verdict.rules import Flag, Rule, TargetRule

__all__ = ["Flag", "Rule", "TargetRule", "judge", "judge_extraction_error", "judge_infrastructure"]
