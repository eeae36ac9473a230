"""The kernel in a model's answer: the last whole file that exports ``run``, or a reason why there is none.

The rules are listed in docs/prompts.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ptxbench.agent.cuda_text import EXPORT_MACRO, CudaText, examine, export_end
from ptxbench.agent.fences import CUDA_TAGS, Block, parse
from ptxbench.records import Reply

EXPECTED = (
    f"Expected: one ```cuda block with the whole file, which ends with {EXPORT_MACRO}(run, FUNCTION); "
    "Send the whole file again, complete, in one block."
)
"""What every error ends with."""

_MAX_QUOTE = 80

_REASONING = r"think|thinking|thoughts?|reasoning|analysis|scratchpad|reflection"
_REASONING_START = re.compile(rf"^[ \t]*[<\[](?:{_REASONING})[>\]]", re.MULTILINE | re.IGNORECASE)
_REASONING_END = re.compile(rf"[<\[]/(?:{_REASONING})[>\]]", re.IGNORECASE)
REASONING_MARK = re.compile(rf"[<\[]/?(?:{_REASONING})[>\]]", re.IGNORECASE)
"""Begin or end of reasoning, as models that reason in their answers mark it."""

_MAX_NESTING = 3
"""Fences within fences; an answer needs two at most."""

# Tags of what is never the kernel, even where a kernel's text stands in it as a string.
_OTHER_TAGS = frozenset(
    {
        *("python", "py", "python3", "triton", "bash", "sh", "shell", "console", "zsh", "powershell", "cmake"),
        *("makefile", "make", "dockerfile", "json", "yaml", "yml", "toml", "ini", "xml", "html", "css", "javascript"),
        *("js", "go", "typescript", "ts", "rust", "java", "sql", "ptx", "sass", "asm", "nasm", "llvm", "latex", "tex"),
        "mermaid",
    }
)
_PATCH_TAGS = frozenset({"diff", "patch", "udiff"})
_PATCH = re.compile(
    r"^(?:@@ .*@@|--- \S.*\n\+\+\+ \S|\*\*\* (?:Begin Patch|(?:Add|Update|Delete) File: |End Patch)"
    r"|<{5,7} ?(?:SEARCH|ORIGINAL|HEAD)\b|>{5,7} ?(?:REPLACE|UPDATED)\b)",
    re.MULTILINE,
)

_CODE_START = re.compile(
    r"^\s*(?:#\s*(?:include|pragma|define|if|ifdef|ifndef)\b|//|/\*|(?:namespace|template|extern|using|static|constexpr"
    r"|typedef|struct|__global__|__device__)\b)"
)
_INCLUDE = re.compile(r"^\s*#\s*(?:include|pragma\s+once)\b")
_COMMENT = re.compile(r"^\s*(?://|/\*|\*)|^\s*$")
_CODE_END = re.compile(r"^\s*(?:[})]|#\s*(?:endif|undef)\b|;)")


class Extraction(NamedTuple):
    """Either a source or an error."""

    source: str | None
    error: str
    """What was found instead of a kernel, what was expected and what to do: written for the model."""
    how: str
    """Where in the answer the source was found, or nothing."""


class _Found(NamedTuple):
    """A block and what it holds."""

    block: Block
    text: CudaText
    patch: bool

    @property
    def whole(self) -> bool:
        return self.text.whole and not self.patch and self.block.tag not in _OTHER_TAGS | _PATCH_TAGS


def extract(reply: Reply) -> Extraction:
    """The kernel of an answer.

    Line ends become ``\\n``; nothing else of a source is changed. Total: every reply gives a source or an error.
    """
    if reply.source is not None:
        if reply.source.strip():
            return Extraction(reply.source, "", "file")
        return Extraction(None, f"The file that was handed over is empty. {EXPECTED}", "")
    text, thinking = without_reasoning(reply.text.replace("\r\n", "\n").replace("\r", "\n"))
    answer = parse(text)
    found = [entry for block in answer.blocks for entry in _nested(block)]
    cut = reply.ended == "output_limit"
    usable = found[:-1] if cut and found and not found[-1].block.closed else found
    whole = [entry for entry in usable if entry.whole]
    if whole:
        return Extraction(whole[-1].block.content, "", _how(whole, found, usable))
    source = _unfenced(answer.outside, cut)
    if source is not None:
        return Extraction(source, "", "unfenced")
    # Balanced braces are our guess at wholeness. What the model closed itself, the compiler judges better.
    closed = [entry for entry in usable if entry.block.closed and entry._replace(text=_balanced(entry.text)).whole]
    if closed:
        return Extraction(closed[-1].block.content, "", "fenced, with braces that do not balance")
    host = [entry for entry in usable if entry.block.closed and _exports_without_kernel(entry)]
    if host and not any(entry.text.kernels for entry in found):
        # Calls of a library, say: whether that is allowed is the screen's to tell, not ours.
        return Extraction(host[-1].block.content, "", "fenced, host code only")
    return Extraction(None, f"{_reason(reply, text, thinking, found)} {EXPECTED}", "")


def without_reasoning(text: str) -> tuple[str, bool]:
    """The answer without reasoning that the provider left in it, and whether there was any."""
    kept: list[str] = []
    position = 0
    start = _REASONING_START.search(text)
    while end := _REASONING_END.search(text, position):
        # An end without a start: that was part of the prompt, as in some chat templates.
        inside = start is None or end.start() < start.start()
        kept = [] if inside or start is None else [*kept, text[position : start.start()]]
        position = end.end()
        if start is not None and start.start() < position:
            start = _REASONING_START.search(text, position)
    kept.append(text[position : start.start() if start else len(text)])  # what is never closed is not kept
    return "".join(kept), position > 0 or start is not None


def _look(block: Block) -> _Found:
    patch = block.tag in _PATCH_TAGS or _PATCH.search(block.content) is not None
    return _Found(block, examine(block.content), patch)


def _nested(block: Block, depth: int = 0) -> tuple[_Found, ...]:
    """The block, or the blocks inside it where it is a fenced text that holds fenced code."""
    outer = _look(block)
    if depth == _MAX_NESTING or (outer.whole and block.tag in CUDA_TAGS - {""}):
        return (outer,)
    inner = tuple(
        entry
        for nested in parse(block.content).blocks
        for entry in _nested(nested._replace(closed=nested.closed or block.closed), depth + 1)
    )
    # A source may hold fences in its comments; a text has its code under a tag.
    if outer.whole and not any(entry.whole and entry.block.tag for entry in inner):
        return (outer,)
    return inner or (outer,)


def _balanced(text: CudaText) -> CudaText:
    return text._replace(open_braces=0, open_text=False)


def _exports_without_kernel(entry: _Found) -> bool:
    text = entry.text
    code = not entry.patch and entry.block.tag not in _OTHER_TAGS | _PATCH_TAGS
    return code and text.exports_run and not text.elided and not text.open_braces and not text.open_text


def _how(whole: Sequence[_Found], found: Sequence[_Found], usable: Sequence[_Found]) -> str:
    notes = ["fenced"]
    if len(whole) > 1:
        notes.append(f"last of {len(whole)} complete files")
    if not whole[-1].block.closed:
        notes.append("never closed")
    if len(usable) < len(found):
        notes.append("before a block that was cut at the output limit")
    return ", ".join(notes)


def _unfenced(outside: str, cut: bool) -> str | None:
    """A whole file that stands in the answer without a fence, with text before and after it."""
    lines = outside.split("\n")
    first = next((i for i, line in enumerate(lines) if _INCLUDE.match(line)), None)
    if first is None:
        first = next((i for i, line in enumerate(lines) if _CODE_START.match(line)), None)
    if first is None:
        return None
    while first > 0 and _COMMENT.match(lines[first - 1]):
        first -= 1
    end = export_end("\n".join(lines[first:]))
    if end is None:
        return None
    last = first + end
    while last + 1 < len(lines) and _CODE_END.match(lines[last + 1]):
        last += 1
    if cut and not any(line.strip() for line in lines[last + 1 :]):
        return None
    source = "\n".join(lines[first : last + 1]).strip("\n") + "\n"
    return source if examine(source).whole and not _PATCH.search(source) else None


def _reason(reply: Reply, text: str, thinking: bool, found: Sequence[_Found]) -> str:
    """What was found, when it was no kernel: the most telling fact first."""
    if reply.ended == "output_limit":
        where = ""
        if not text.strip():
            where = " while reasoning, before anything was answered"
        elif found and not found[-1].block.closed:
            where = f" inside a code block, after {_lines(found[-1].block)}"
        return (
            f"The answer was cut at the output limit{where}, so the file is not complete: think and write less around "
            "the file, and keep the file itself short enough."
        )
    if reply.ended == "filtered":
        return "The answer was ended by the provider's filter before the file was complete."
    if not text.strip():
        only = " (only reasoning came, which is not looked at for code)" if thinking or reply.reasoning.strip() else ""
        return f"The answer is empty{only}."
    for entry in reversed(found):
        if entry.block.tag in _OTHER_TAGS:
            continue
        if entry.patch:
            return "Found a patch (a diff, or pieces to search and replace) in place of a file: it is not applied."
        if entry.text.elided:
            return f"Found a file with parts left out ({_quoted(entry.text.elided)}): they are not filled in."
    return _reason_of_code(found)


def _reason_of_code(found: Sequence[_Found]) -> str:
    code = [entry for entry in found if entry.block.tag not in _OTHER_TAGS]
    kernels = [entry for entry in code if entry.text.kernels]
    exporting = [entry for entry in code if entry.text.exports_run]
    if kernels and exporting:
        count = len({id(entry) for entry in (*kernels, *exporting)})
        if count > 1:
            return f"Found a file that is spread over {count} code blocks: they are not put together."
        return f"Found a code block of {_lines(exporting[-1].block)} that ends inside a comment or braces."
    if exporting:
        return "Found only host code that is not whole: a block exports `run` but has no __global__ function."
    others = [name for entry in kernels for name in entry.text.exports]
    if others:
        return f"Found kernels that are exported as {_quoted(', '.join(others))}, not as `run`."
    if kernels:
        block = kernels[-1].block
        unfinished = "" if block.closed else ", which is never closed,"
        return f"Found a code block of {_lines(block)}{unfinished} with kernels that exports no function."
    if code:
        blocks = "a code block" if len(code) == 1 else f"{len(code)} code blocks"
        return f"Found {blocks} without a __global__ function and without an export."
    if found:
        tags = ", ".join(sorted({entry.block.tag for entry in found}))
        return f"Found only code blocks in other languages ({_quoted(tags)})."
    return "Found no code block and no source."


def _lines(block: Block) -> str:
    count = block.content.rstrip("\n").count("\n") + 1
    return f"{count} line{'s' if count != 1 else ''}"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _MAX_QUOTE else f"{text[: _MAX_QUOTE - 3]}...")
