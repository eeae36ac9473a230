"""The first two messages of a conversation: what a kernel has to be, and what it has to compute (PROTOCOL 6)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from ptxbench.cases.collection_case import CollectionCase
from ptxbench.errors import InputError
from ptxbench.records import Message, PromptIdentity
from ptxbench.trace.definition import AxisConst
from ptxbench.trace.workload import SafetensorsInput
from ptxbench.verdict.metrics import TARGET_SPEEDUP

if TYPE_CHECKING:
    from ptxbench.cases import Arch, Case
    from ptxbench.packs import Pack

TEMPLATE_VERSION = "2"
"""Of the texts in ``prompt_texts`` and of how they are put together here. Raised with every change of either."""

NO_VARIANT = "none"
"""The prompt variant that adds nothing."""

_SEQUENCES = (
    "the floating-point inputs are standard normal; the *_indptr inputs are the offsets of sequences of different "
    "lengths, from 0 to the number of all."
)
_PAGES = "kv_indices are page numbers of the cache, other ones in every call and in no order."
_DATA = {
    "normal": "every input is standard normal.",
    "attention_backward": (
        "Q, K, V and dO are standard normal; O and L come from a real forward pass over Q, K and V "
        "(L is the natural logarithm of the sum of exponentials of the scaled scores)."
    ),
    "gqa_ragged_prefill": _SEQUENCES,
    "gqa_paged_prefill": f"{_SEQUENCES} {_PAGES}",
    "gqa_paged_decode": f"{_SEQUENCES} {_PAGES}",
}


def first_messages(case: Case, variant: str, pack: Pack) -> tuple[Message, Message]:
    """System and user message of every trajectory of ``case`` under a prompt variant.

    The same arguments give the same text on every machine.

    Raises:
        InputError: the pack has no text for the variant.
    """
    fields = _fields(case)
    system = "\n\n".join(
        (
            _text("instructions").substitute(fields),
            pack.text.strip(),
            _text("abi_example").template,
            _text("target").substitute(fields),
        )
    )
    user = "\n\n".join((_definition(case), *_schedule(case.arch, variant, pack)))
    return Message(role="system", content=system + "\n"), Message(role="user", content=user + "\n")


def identity(pack: Pack) -> PromptIdentity:
    """Which texts ``first_messages`` assembles with this pack."""
    return PromptIdentity(
        template=TEMPLATE_VERSION, pack=f"{pack.name} {pack.version}", pack_sha256=pack.sha256, level=pack.level
    )


@cache
def _text(name: str) -> Template:
    return Template(files(__package__).joinpath("prompt_texts", f"{name}.md").read_text(encoding="utf-8").strip())


def _fields(case: Case) -> dict[str, str]:
    arch = case.arch
    return {
        "title": arch.title,
        "sm": arch.sm,
        "gencode": arch.gencode,
        "selected": _code(arch.selected),
        "not_selected": _code(arch.not_selected) or "nothing else",
        "target_speedup": f"{TARGET_SPEEDUP:g}",
        "trials": str(case.trials),
        "warmup": str(case.warmup),
        "iterations": str(case.iterations),
    }


def _code(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _schedule(arch: Arch, variant: str, pack: Pack) -> tuple[str, ...]:
    if variant == NO_VARIANT:
        return ()
    if variant not in pack.variants:
        raise InputError(
            f"knowledge_packs/{arch.name}/pack.yaml: expected a schedule of the prompt variant {variant!r}, "
            f"found none (there are: {', '.join(pack.variants) or 'none'}); "
            "add it, or correct the suite's variants"
        )
    return (pack.variants[variant],)


def _definition(case: Case) -> str:
    definition = case.definition
    return _text("definition").substitute(
        name=definition.name,
        description=definition.description or "(no description)",
        axes="\n".join(_axis(case, name) for name in definition.axes),
        arguments="\n".join(_arguments(case)),
        data=_data(case),
        constraints="; ".join(f"`{constraint}`" for constraint in definition.constraints) or "none",
        atol=f"{case.tolerance.atol:g}",
        rtol=f"{case.tolerance.rtol:g}",
        flops=f"{case.flops:,}" if case.flops else "an unknown number of",
        flops_formula=case.flops_formula if case.flops else "nobody stated it",
        bytes=f"{case.bytes:,}",
        bytes_formula=case.bytes_formula,
        call=case.baseline.call,
        library=case.baseline.library,
        reference=definition.reference.strip(),
    )


def _data(case: Case) -> str:
    """Where the inputs come from. Those of a collection may be captured, or made by a function of its own."""
    captured = [name for name, source in case.workload.inputs.items() if isinstance(source, SafetensorsInput)]
    made = case.made.inputs if isinstance(case, CollectionCase) and case.made is not None else ()
    if not captured and not made:
        return " ".join((_DATA[case.input_recipe], *_sequences(case)))
    tensors = [name for name, shape in case.input_shapes().items() if shape is not None]
    texts = [f"{', '.join(captured)}: captured data, the same in every call"] if captured else []
    texts += [f"{', '.join(made)}: made by a program of the workload's, other data in every call"] if made else []
    if len(captured) + len(made) < len(tensors):
        texts.append("other floating-point tensors are standard normal, other integers random")
    return f"{'; '.join(texts)}."


def _sequences(case: Case) -> Iterator[str]:
    """How long the sequences of a ragged or paged workload are, and what ``pairs`` is in its formulas."""
    structure = case.structure()
    if structure is None:
        return
    least, most, count = min(structure.kv_lengths), max(structure.kv_lengths), len(structure.kv_lengths)
    keys = f"{least} keys" if least == most else f"{least} to {most} keys"
    sequences = "1 sequence" if count == 1 else f"{count} sequences"
    yield f"This workload has {sequences} of {keys}; pairs = {structure.pairs:,} (query, key) pairs of one head."


def _axis(case: Case, name: str) -> str:
    axis = case.definition.axes[name]
    note = f": {axis.description}" if axis.description else ""
    if isinstance(axis, AxisConst):
        return f"- {name} = {axis.value}, const{note}"
    small = case.shrunk_axes.get(name)
    also = f", and {small} when tools run it on a small workload" if small else ""
    return f"- {name} = {case.axes[name]} in this workload{also}, var{note}"


def _arguments(case: Case) -> list[str]:
    definition = case.definition
    sizes = {**case.input_shapes(), **case.output_shapes()}
    rows: list[str] = []
    for name, tensor in (*definition.inputs.items(), *definition.outputs.items()):
        role = "input" if name in definition.inputs else "output"
        shape = "null (a scalar, by value)" if tensor.shape is None else f"[{', '.join(tensor.shape)}]"
        size = sizes[name]
        value = "" if size is None else f"[{', '.join(map(str, size))}]"
        note = (tensor.description or "").replace("|", "\\|")
        rows.append(f"| {len(rows)} | {name} | {role} | {tensor.dtype.value} | {shape} | {value} | {note} |")
    return rows
