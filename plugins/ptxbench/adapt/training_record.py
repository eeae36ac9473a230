"""From a rationale to a training record: the conversation that the student is trained on, with its loss mask."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from ptxbench.adapt.model import Correct, Rationale, Repair, TrainingMessage, TrainingRecord
from ptxbench.agent.dialogue import fenced
from ptxbench.packs import count_tokens, estimate_tokens
from ptxbench.records import Language, Message, Outcome

Counter = Literal["estimate", "qwen"]
COUNTERS: dict[Counter, Callable[[str], int]] = {"estimate": estimate_tokens, "qwen": count_tokens}
"""How tokens are counted: by a rule that needs no tokenizer, or in the vocabulary of Qwen3.6."""


def training_record(rationale: Rationale, counter: Counter) -> TrainingRecord:
    """One line of a dataset (PROTOCOL 7).

    Fixit: system, user, assistant(k-), user(e), assistant(r, k+). KernelGen: system, user, assistant(r, k+). Loss on
    the last message alone. Raises InputError where the counter's package is missing.
    """
    repair = rationale.repair
    messages = _messages(rationale)
    origin, verdict = rationale.origin, repair.verdict
    failure = repair.failure if isinstance(repair, Repair) else None
    prompt = failure.prompt_identity if failure is not None else _correct(rationale).prompt_identity
    return TrainingRecord(
        id=rationale.id,
        messages=messages,
        kind="kernelgen" if failure is None else "fixit",
        definition=(failure or _correct(rationale)).definition,
        case=origin.key.case,
        arch=origin.key.arch,
        language=Language.CUDA,
        variant=(failure or _correct(rationale)).variant_name,
        outcome=failure.outcome if failure is not None else Outcome.CORRECT,
        turn=origin.key.turn,
        trajectory=origin.key.trajectory,
        model=origin.key.model,
        run=origin.run,
        run_created_at=origin.run_created_at,
        repair_teacher=repair.teacher if isinstance(repair, Repair) else origin.key.model,
        repair_turns=repair.turns if isinstance(repair, Repair) else 0,
        reasoning_teacher=rationale.teacher,
        reasoning_attempts=rationale.attempts,
        target=verdict.target,
        speedup=verdict.speedup,
        failed_sha256=failure.source_sha256 if failure is not None else "",
        kernel_sha256=repair.source_sha256,
        template=prompt.template,
        pack=prompt.pack,
        pack_sha256=prompt.pack_sha256,
        tokens=sum(_tokens(counter, message.content) for message in messages),
    )


@lru_cache(maxsize=1024)
def _tokens(counter: Counter, text: str) -> int:
    """Records of one operator begin with the same prompt, which is most of them."""
    return COUNTERS[counter](text)


def _correct(rationale: Rationale) -> Correct:
    assert isinstance(rationale.repair, Correct)
    return rationale.repair


def _messages(rationale: Rationale) -> tuple[TrainingMessage, ...]:
    repair = rationale.repair
    answer = TrainingMessage(
        role="assistant", content=f"{thought(rationale.text)}\n\n{fenced(repair.source)}", training=True
    )
    if isinstance(repair, Correct):
        return (*(_unsupervised(message) for message in repair.prompt), answer)
    failure = repair.failure
    before = (
        *failure.prompt,
        Message(role="assistant", content=fenced(failure.source)),
        Message(role="user", content=failure.feedback),
    )
    return (*(_unsupervised(message) for message in before), answer)


def _unsupervised(message: Message) -> TrainingMessage:
    return TrainingMessage(role=message.role, content=message.content, training=False)


def thought(text: str) -> str:
    """A rationale as the student says it: between the marks that reasoning models put around their thinking."""
    return f"<think>\n{text.strip()}\n</think>"
