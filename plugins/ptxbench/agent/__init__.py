"""Trajectories: the loop from model to verdict, and the run folder that keeps every turn."""

from ptxbench.agent.engine import Engine
from ptxbench.agent.evaluation import Evaluation, Evaluator
from ptxbench.agent.identity import RunIdentity, suite_identity
from ptxbench.agent.plan import Skipped, TrajectoryPlan
from ptxbench.agent.profilers import Profilers
from ptxbench.agent.run_names import fresh_run_name, resolve_run
from ptxbench.agent.store import RunStore
from ptxbench.agent.turn_files import StoredTurn

__all__ = [
    "Engine",
    "Evaluation",
    "Evaluator",
    "Profilers",
    "RunIdentity",
    "RunStore",
    "Skipped",
    "StoredTurn",
    "TrajectoryPlan",
    "fresh_run_name",
    "resolve_run",
    "suite_identity",
]
