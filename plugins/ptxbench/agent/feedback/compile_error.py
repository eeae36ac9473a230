"""A source that the compiler rejects."""

from __future__ import annotations

from ptxbench.agent.feedback.compiler_log import read_messages
from ptxbench.agent.feedback.parts import Parts, Turn
from ptxbench.agent.feedback.wording import count, safe

SHOWN_ERRORS = 6
_LAST_LINES = 8
_FULL_QUOTES = 3
"""Errors with lines around the one they point at; later ones are quoted with that line alone."""


def describe(turn: Turn) -> Parts:
    """The first errors with the lines that they point at, how many more there are, and the numbered remarks."""
    build = turn.build
    if build.timed_out:
        return _timed_out(turn)
    messages = read_messages(build.log)
    errors = [message for message in messages if message.kind == "error"]
    facts = [
        message.quoted(turn.source) if position < _FULL_QUOTES else message.quoted(turn.source, 0)
        for position, message in enumerate(errors[:SHOWN_ERRORS])
    ]
    more = [count(len(errors) - len(facts), "more error")] if len(errors) > len(facts) else []
    more += ["a log too long to keep"] if build.log_truncated else []
    if more:
        facts.append(", and ".join(more))
    if not errors:
        facts.append(f"The compiler's last words: {_last_words(build.log) or '(nothing)'}")
    facts += [message.quoted(turn.source, 0) for message in messages if message.kind == "remark"][:2]
    found = f": {count(len(errors), 'error')}" if errors else ""
    return Parts(
        f"Your kernel does not compile for {turn.case.arch.sm}{found}.",
        tuple(facts),
        tuple(_advice(errors_text="\n".join(message.text for message in errors), turn=turn)),
    )


def _advice(errors_text: str, turn: Turn) -> list[str]:
    found = ["Mend the first error first: later ones often follow from it."]
    hints = (
        (
            "ptxas: ",
            "Messages of ptxas are about inline PTX: check the instruction's spelling, its order of modifiers, "
            'the number and kinds of operands and the constraints ("r" 32-bit, "l" 64-bit, "f" float).',
        ),
        ("exports no function", "The source must export its entry: TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);"),
        ("undefined reference", "A function is declared and not defined: everything must be in this one source."),
        (
            "too much shared data",
            "Static shared memory ends at 48 KB: use extern __shared__ and raise the limit with "
            "cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes).",
        ),
        ("No such file", f"Only headers of CUDA and TVM-FFI are there for {turn.case.arch.sm}."),
    )
    found += [hint for sign, hint in hints if sign in errors_text]
    return found


def _last_words(log: str) -> str:
    """The end of a log, from the beginning of a line: half a path would not be known as one."""
    return safe("\n".join(log.splitlines()[-_LAST_LINES:]), 800)


def _timed_out(turn: Turn) -> Parts:
    return Parts(
        "The compiler ran into its time limit, so nothing ran.",
        (_last_words(turn.build.log),),
        (
            "Compile less code: unroll less, use fewer template instances, keep large loops as loops "
            "(#pragma unroll 1 or a small factor).",
        ),
    )
