"""Where the threads of a call that did not end were: kernel, line of the candidate, instruction, how many."""

from __future__ import annotations

from collections.abc import Sequence

from ptxbench.agent.feedback.parts import Turn
from ptxbench.agent.feedback.places import place
from ptxbench.agent.feedback.wording import count, safe, short_name
from ptxbench.records import NO_KERNEL_RAN, WaitingPlace

SHOWN_PLACES = 4

_Place = tuple[str, tuple[int, ...], int | None]
"""Kernel and lines; where no line is known, kernel and offset."""


def waiting_facts(turn: Turn) -> list[str]:
    """One fact per place, those with the most threads first; empty where nothing is known of it."""
    run = turn.evidence.run
    if run.waiting_unknown == NO_KERNEL_RAN:
        return ["When its calls were made once more, no kernel was running: your host code did not return."]
    places: dict[_Place, list[WaitingPlace]] = {}
    for found in run.waiting:
        lines = turn.locate(found.kernel, found.offset) if found.offset is not None else ()
        places.setdefault((found.kernel, lines, None if lines else found.offset), []).append(found)
    ordered = sorted(places.items(), key=lambda item: -_threads(item[1]))
    facts = [_fact(turn, at, here) for at, here in ordered[:SHOWN_PLACES]]
    others = [found for _, here in ordered[SHOWN_PLACES:] for found in here]
    if others:
        facts.append(f"{count(_threads(others), 'thread')} more were at {count(len(ordered[SHOWN_PLACES:]), 'place')}.")
    return facts


def _threads(places: Sequence[WaitingPlace]) -> int:
    return sum(found.threads for found in places)


def _fact(turn: Turn, at: _Place, places: Sequence[WaitingPlace]) -> str:
    kernel, lines, _ = at
    first = max(places, key=lambda found: found.threads)
    # Threads of one block can be at several instructions of a line, so its blocks cannot be added up.
    blocks = ("at least " if len(places) > 1 else "") + count(max(found.blocks for found in places), "block")
    threads = _threads(places)
    text = [
        f"When its calls were made once more: {count(threads, 'thread')} of kernel {short_name(kernel)}, in {blocks}, "
        f"{'namely' if threads == 1 else 'among them'} thread {_index(first.thread)} of block {_index(first.block)}."
    ]
    if quoted := place(turn.source, lines):
        text.append(f"At line {lines[0]}" + (f", inlined at line {lines[1]}:" if len(lines) > 1 else ":"))
        text.append(quoted)
    elif first.offset is not None:
        text.append(f"At byte 0x{first.offset:x} of the kernel's code.")
    else:
        text.append("In a function that the kernel calls.")
    if first.instruction:
        text.append(f"Instruction: {safe(first.instruction)}")
    return "\n".join(text)


def _index(values: tuple[int, int, int]) -> str:
    return "({},{},{})".format(*values)
