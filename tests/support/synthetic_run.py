"""A run that nobody made: real records of seeded, made-up conversations, judged by the real rules.

Prompts, feedback and verdicts are what the benchmark itself writes. Kernels are the reference solutions with edits that
mean nothing; what was measured on them is drawn at random so that it deserves the outcome that was drawn for the turn.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count, product
from pathlib import Path
from typing import Any, NamedTuple

from ptxbench.agent.dialogue import said
from ptxbench.agent.fault_record import fault_record
from ptxbench.agent.feedback import feedback
from ptxbench.agent.identity import RunIdentity, suite_identity
from ptxbench.agent.prompt import first_messages, identity
from ptxbench.agent.turn_files import to_json
from ptxbench.cases import Case, Suite, load_suite
from ptxbench.models import PastTurn
from ptxbench.packs import Level, Pack, load_pack
from ptxbench.records import (
    Build,
    BuildStatus,
    Candidate,
    Evidence,
    Exchange,
    InfrastructureFault,
    Message,
    Outcome,
    Record,
    Reply,
    TrajectoryEnd,
    TurnKey,
    TurnRecord,
    Usage,
    prompt_sha256,
)
from ptxbench.verdict import judge, judge_extraction_error
from ptxbench.verdict.metrics import TARGET_SPEEDUP
from tests.support.synthetic_evidence import synthetic_build, synthetic_evidence

ROOT = Path(__file__).parents[2]
ARCH = "h100"
MODELS = ("claude", "gpt", "gemini", "qwen-coder", "deepseek")
BEGUN = "2026-11-29T16:00:00+00:00"
GIVEN = 8
"""Turns of each trajectory."""
_FAILURES = (
    (Outcome.COMPILE_ERROR, 10.0),
    (Outcome.NUMERICAL_ERROR, 8.0),
    (Outcome.TIMEOUT, 4.0),
    (Outcome.RUNTIME_ERROR, 4.0),
    (Outcome.MEMORY_ERROR, 2.0),
    (Outcome.EXTRACTION_ERROR, 1.0),
    (Outcome.SCREENED, 1.0),
    (Outcome.WRONG_SHAPE_OR_DTYPE, 0.5),
    (Outcome.UNKNOWN, 0.4),
    (Outcome.INFRASTRUCTURE_ERROR, 0.3),
)
_WORDS = [
    "the",
    "tile",
    "barrier",
    "phase",
    "descriptor",
    "swizzle",
    "warpgroup",
    "accumulator",
    "register",
    "pipeline",
    "stage",
    "producer",
    "consumer",
    "bank",
    "conflict",
    "tensor",
    "map",
    "coordinate",
    "epilogue",
    "softmax",
    "row",
    "maximum",
    "rescale",
    "fence",
    "commit",
    "wait",
    "parity",
    "shared",
    "memory",
    "bytes",
    "stride",
    "leading",
    "dimension",
    "so",
    "that",
    "because",
    "then",
    "if",
    "we",
    "should",
    "keep",
    "move",
    "split",
    "double",
    "buffer",
    "overlap",
    "latency",
    "hides",
    "which",
    "means",
    "two",
    "four",
    "eight",
    "sixteen",
    "64x256x16",
    "128B",
    "kernel",
    "launch",
    "cluster",
    "multicast",
]


class Scene(NamedTuple):
    """One trajectory to be told."""

    case: Case
    model: str
    variant: int
    trajectory: int
    level: Level = "full"
    """Of the knowledge in its prompt."""
    lines: int | None = None
    """Of the reference solution that its first kernel begins with; None: all."""


def write_run(folder: Path, turns: int = 5000, *, seed: int = 0, words: int = 900) -> Path:
    """Write a run of exactly ``turns`` turns, faults included, with reasoning of about ``words`` words a turn.

    The same arguments write the same bytes.
    """
    left = turns
    for scene in _scenes(load_suite(ROOT, "primary").cases(ARCH)):
        left -= _Teller(folder, scene, seed, words).tell(min(GIVEN, left))
        if left == 0:
            break
    _write_identity(folder, ["primary"], BEGUN)
    return folder


def write_scenes(folder: Path, scenes: Sequence[Scene], *, seed: int = 0, words: int = 900, begun: str = BEGUN) -> Path:
    """Write a run of exactly these trajectories, as ``write_run`` does."""
    for scene in scenes:
        _Teller(folder, scene, seed, words).tell(GIVEN)
    _write_identity(folder, sorted({scene.case.suite for scene in scenes}), begun)
    return folder


def _write_identity(folder: Path, suites: Sequence[str], begun: str) -> None:
    run = RunIdentity(
        created_at=begun,
        ptxbench="0.1.0",
        suites={name: suite_identity(load_suite(ROOT, name).table) for name in suites},
        turns=dict.fromkeys(MODELS, GIVEN),
    )
    _write(folder / "run.json", run)


def _scenes(cases: Sequence[Case]) -> Iterator[Scene]:
    """Every model on every case with every variant, once more for every trajectory, without end."""
    for trajectory in count():
        for case, model in product(cases, MODELS):
            for variant in range(len(case.variants)):
                yield Scene(case, model, variant, trajectory)


def _write(path: Path, record: Record) -> None:
    # Not through the store, which has the disk confirm every file.
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_json(record))


@cache
def _reference(case: str) -> tuple[str, ...]:
    # The other head dimensions have no reference solution. Nobody compiles these kernels.
    name = case.replace("_d64", "_d128").replace("_d96", "_d128")
    folder = ROOT / "generated" / "reference" / ARCH / name
    return tuple((folder / "kernel.cu").read_text(encoding="utf-8").splitlines())


@cache
def _suite(name: str) -> Suite:
    return load_suite(ROOT, name)


@cache
def _opening(suite: str, case: str, variant: int, level: Level) -> tuple[Message, ...]:
    found = _suite(suite).case(case, ARCH)
    return first_messages(found, found.variants[variant], _pack(level))


class _Teller:
    """Makes up one trajectory, turn by turn."""

    def __init__(self, folder: Path, scene: Scene, seed: int, words: int) -> None:
        self._folder = folder
        self._scene = scene
        self._words = words
        self._random = random.Random(f"{seed} {scene.model} {scene.case.name} {scene.variant} {scene.trajectory}")
        self._lines = list(_reference(scene.case.name)[: scene.lines])
        self._history: list[PastTurn] = []
        model, case = MODELS.index(scene.model), scene.case
        self._skill = 0.75 - 0.11 * model - 0.10 * (case.op == "attention") - 0.12 * ("bwd" in case.name)
        self._speed = 0.45 + 0.9 * self._skill * self._random.uniform(0.4, 1.0)

    def tell(self, given: int) -> int:
        """Write the trajectory; at most ``given`` turns. Returns how many there are."""
        for turn in range(given):
            past = self._turn(turn)
            speedup = past.record.verdict.speedup
            if speedup is not None and speedup >= TARGET_SPEEDUP and turn + 1 < GIVEN:
                self._end(turn + 1, "target_reached", f"turn {turn} reached {speedup:.3f}x")
                return turn + 1
            if self._random.random() < 0.006 and turn + 1 < GIVEN:
                self._end(turn + 1, "context_exhausted", "the conversation no longer fits the model's context")
                return turn + 1
        if given < GIVEN:
            self._end(given, "budget", "the budget of the session was spent")
        return given

    def _key(self, turn: int) -> TurnKey:
        scene = self._scene
        return TurnKey(
            model=scene.model,
            case=scene.case.name,
            arch=ARCH,
            variant=scene.variant,
            trajectory=scene.trajectory,
            turn=turn,
        )

    def _end(self, turn: int, reason: Any, message: str) -> None:
        end = TrajectoryEnd(key=self._key(turn), reason=reason, message=message)
        _write(self._folder / "turns" / end.key.trajectory_id / "end.json", end)

    def _turn(self, turn: int) -> PastTurn:
        outcome = self._draw(turn)
        self._edit(turn)
        source = "\n".join(self._lines) + "\n"
        exchange = self._exchange(turn, None if outcome is Outcome.EXTRACTION_ERROR else source)
        record = self._record(turn, outcome, source, exchange)
        folder = self._folder / "turns" / record.key.trajectory_id
        if record.fault is not None:
            _write(self._folder / "faults" / f"{record.key}.json", record)
            return PastTurn(record, None)
        _write(folder / f"turn{turn}.json", record)
        past = PastTurn(record, source if record.source_sha256 else None)
        if past.source is not None:
            (folder / f"turn{turn}.cu").write_text(past.source, encoding="utf-8")
        self._history.append(past)
        return past

    def _draw(self, turn: int) -> Outcome:
        if self._random.random() < min(0.95, self._skill * (0.35 + 0.1 * turn)):
            return Outcome.CORRECT
        # What does not compile is mended first; what is wrong or slow stays for longer.
        weights = [weight * (0.8**turn if outcome is Outcome.COMPILE_ERROR else 1.0) for outcome, weight in _FAILURES]
        return self._random.choices([outcome for outcome, _ in _FAILURES], weights)[0]

    def _edit(self, turn: int) -> None:
        for _ in range(self._random.randint(2, 9)):
            place = self._random.randrange(len(self._lines))
            edit = self._random.random()
            if edit < 0.4:
                self._lines.insert(place, f"  note({turn});  // {' '.join(self._random.choices(_WORDS, k=7))}")
            elif edit < 0.8 or len(self._lines) < 50:
                self._lines[place] += f"  note({place});  // turn {turn}: {self._random.choice(_WORDS)}"
            else:
                del self._lines[place]

    def _says(self, count: int) -> str:
        words = self._random.choices(_WORDS, k=count)
        sentences = [" ".join(words[at : at + 17]).capitalize() + "." for at in range(0, len(words), 17)]
        return "\n\n".join(" ".join(sentences[at : at + 5]) for at in range(0, len(sentences), 5))

    def _exchange(self, turn: int, source: str | None) -> Exchange:
        scene = self._scene
        opening = _opening(scene.case.suite, scene.case.name, scene.variant, scene.level)
        before: tuple[Message, ...] = ()
        added: tuple[Message, ...] = opening
        if self._history:
            last = self._history[-1]
            text = feedback(scene.case, last, turns_left=GIVEN - turn, toolchain=None, history=self._history[:-1])
            before, added = said(last, self._history, ()), (Message(role="user", content=text),)
        words = max(20, int(self._random.lognormvariate(math.log(self._words), 0.5)))
        fence = "" if source is None else f"\n\n```cuda\n{source}```"
        tokens = words * 2 + (0 if source is None else len(source) // 3)
        prompt = sum(len(message.content) for message in (*before, *added)) // 4
        model = MODELS.index(scene.model)
        return Exchange(
            added=added,
            prompt_sha256=prompt_sha256([*before, *added]),
            prompt=identity(_pack(scene.level)),
            sent={"provider": "synthetic", "model": scene.model},
            asked_at=BEGUN,
            reply=Reply(
                text=f"{self._says(60)}{fence}",
                reasoning=self._says(words),
                ended="stop" if self._random.random() < 0.98 else "output_limit",
                finish_reason="stop",
                usage=Usage(
                    input_tokens=prompt,
                    cached_input_tokens=prompt // 2,
                    output_tokens=tokens,
                    reasoning_tokens=words * 2,
                ),
                cost_usd=(prompt * 1e-6 + tokens * 8e-6) * (5 - model),
                cost_source="models_file",
                latency_s=round(tokens / self._random.uniform(60, 140), 3),
                model=f"{scene.model}-2026",
            ),
        )

    def _record(self, turn: int, outcome: Outcome, source: str, exchange: Exchange) -> TurnRecord:
        case = self._scene.case
        names: dict[str, Any] = {"definition": case.definition.name, "workload_uuid": case.workload.uuid}
        names["variant_name"] = case.variants[self._scene.variant]
        if outcome is Outcome.INFRASTRUCTURE_ERROR:
            fault = InfrastructureFault(kind="device_lost", message="the device fell off the bus")
            return fault_record(self._key(turn), fault, **names)
        follows = self._history[-1].record.key.turn if self._history else None
        common: dict[str, Any] = {"key": self._key(turn), "origin": "model", "exchange": exchange, "follows": follows}
        if outcome is Outcome.EXTRACTION_ERROR:
            return TurnRecord(
                **names,
                **common,
                source_sha256=None,
                build=None,
                evidence=None,
                evidence_origin="none",
                verdict=judge_extraction_error("expected one CUDA code block, found none"),
            )
        sha256 = Candidate(source=source).sha256
        build = synthetic_build(outcome, sha256, self._random)
        runs = build.status is BuildStatus.OK and outcome is not Outcome.UNKNOWN
        evidence = self._evidence(outcome, build) if runs else None
        slow = self._random.uniform
        stages = {"build": slow(2e3, 9e3), "judge": 2.0} | (
            {"evaluate": slow(1e3, 6e3), "sanitize": slow(2e3, 7e3), "instructions": slow(3e3, 8e3)} if runs else {}
        )
        return TurnRecord(
            **names,
            **common,
            source_sha256=sha256,
            build=build,
            evidence=evidence,
            evidence_origin="none" if evidence is None else "measured",
            verdict=judge(case, build, evidence),
            stages_ms={stage: round(ms, 3) for stage, ms in stages.items()},
        )

    def _evidence(self, outcome: Outcome, build: Build) -> Evidence:
        self._speed = min(1.3, self._speed * self._random.uniform(0.97, 1.1))
        speedup = self._speed * self._random.uniform(0.85, 1.03)
        return synthetic_evidence(self._scene.case, outcome, build, speedup, self._random)


@cache
def _pack(level: Level) -> Pack:
    return load_pack(ROOT, ARCH, level)
