"""What a turn takes, stage by stage: as measured on the project's devices, or as a run's own turns say."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from ptxbench.errors import InputError
from ptxbench.records import Evidence, TurnRecord

GPU_STAGES = ("evaluate", "sanitize", "instructions")
"""Stages of ``TurnRecord.stages_ms`` that have the device to themselves."""
LEAST_TURNS = 20
"""Fewer say little of a mean that one turn in ten decides."""

Draw = Callable[[random.Random], float]


@dataclass(frozen=True)
class Stage:
    """One stage of a turn: its mean in seconds, and how the simulation draws it."""

    mean_s: float
    draw: Draw


@dataclass(frozen=True)
class TurnTimes:
    """One turn: the model answers, a processor builds, a GPU measures."""

    model: Stage
    build: Stage
    gpu: Stage
    source: str

    @property
    def unhindered_s(self) -> float:
        """A turn that waits for nothing."""
        return self.model.mean_s + self.build.mean_s + self.gpu.mean_s


def log_normal(mean_s: float, sigma: float) -> Stage:
    """Times around a median, with a long end, as answers of language models come."""
    mu = math.log(mean_s) - sigma * sigma / 2
    return Stage(mean_s, lambda chance: chance.lognormvariate(mu, sigma))


def exponential(mean_s: float) -> Stage:
    """What the queueing model assumes of processors and GPUs."""
    return Stage(mean_s, lambda chance: chance.expovariate(1 / mean_s))


def seldom(mean_s: float, rare_s: float, share: float) -> Stage:
    """A fixed time, or with probability ``share`` another; together of the given mean."""
    usual_s = (mean_s - share * rare_s) / (1 - share)
    return Stage(mean_s, lambda chance: rare_s if chance.random() < share else usual_s)


def observed(values: Sequence[float]) -> Stage:
    """As it was seen."""
    kept = tuple(values)
    return Stage(fmean(kept), lambda chance: chance.choice(kept))


def measured(model_s: float | None = None) -> TurnTimes:
    """As docs/performance.md has them; ``model_s`` replaces the mean time that a model takes to answer.

    Model: median 30 s, sigma 0.5 (its part e). Build: the GEMM of part c. GPU: 2.65 s on average over the mix of part
    e, of which 11.3% are kernels without an end, 14 s each.
    """
    answer_s = 30.0 * math.exp(0.5**2 / 2) if model_s is None else model_s
    return TurnTimes(
        model=log_normal(answer_s, 0.5),
        build=log_normal(3.054, 0.2),
        gpu=seldom(2.65, 14.0, 0.113),
        source="docs/performance.md",
    )


def of_turns(turns: Sequence[TurnRecord], source: str, model_s: float | None = None) -> TurnTimes:
    """As a run measured them. Raises InputError for one that measured or asked too little."""
    ran = [turn for turn in turns if turn.evidence_origin == "measured"]
    # A turn that was not built has a place in the mean: it costs no GPU.
    gpu = [_gpu_s(turn) for turn in turns]
    build = [turn.stages_ms["build"] / 1e3 for turn in turns if "build" in turn.stages_ms]
    answers = [
        turn.exchange.reply.latency_s for turn in turns if turn.exchange is not None and turn.exchange.reply is not None
    ]
    if len(ran) < LEAST_TURNS:
        raise InputError(f"{source}: expected at least {LEAST_TURNS} turns that a GPU measured, found {len(ran)}")
    if not build:
        raise InputError(f"{source}: expected turns that were built, found none; size another run")
    if model_s is None and not any(answers):
        raise InputError(f"{source}: expected answers of a language model, found none; say --model-seconds")
    model = log_normal(model_s, 0.5) if model_s is not None else observed(answers)
    return TurnTimes(model=model, build=observed(build), gpu=observed(gpu), source=source)


def _gpu_s(turn: TurnRecord) -> float:
    """The GPU's time of a turn. Its stages are walls, which hold the wait for the device: the evidence knows better."""
    walls = {stage: turn.stages_ms.get(stage, 0.0) for stage in GPU_STAGES}
    own = _without_waits(turn.evidence) if turn.evidence is not None else {}
    return sum(min(wall, own.get(stage, wall)) for stage, wall in walls.items()) / 1e3


def _without_waits(evidence: Evidence) -> dict[str, float]:
    """What the device took, ms, by stage; without those of which the evidence does not tell, as older one does not."""
    found: dict[str, float] = {}
    if evidence.run.stages_ms:
        found["evaluate"] = sum(evidence.run.stages_ms.values())
    checks = [safety.wall_ms for safety in evidence.safety if not safety.checked_before]
    known = [wall for wall in checks if wall is not None]
    if len(known) == len(checks):
        found["sanitize"] = sum(known)
    if evidence.instructions.wall_ms is not None:
        found["instructions"] = evidence.instructions.wall_ms
    return found
