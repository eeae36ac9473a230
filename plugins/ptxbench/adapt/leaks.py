"""What a rationale must not hold: the final kernel, signs that it was given, places of a machine. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from ptxbench.agent.cuda_text import advance

LINE_CHARS = 20
"""A line of the kernel with so many characters beside blanks is a quotation. Ours: shorter ones, such as
``__syncthreads();``, are how one speaks of a step."""
RUN_TOKENS = 12
"""So many tokens of the kernel in a row are a quotation, however they are laid out; an instruction with its qualifiers
is one token. Ours: a call with three arguments has 8."""
_SHOWN = 80

_TOKEN = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::)\w+)*|\d\w*|[^\s\w]")
_OWN = r"(?<!\bmy )(?<!\bour )"
_GIVEN = r"fixed|corrected|repaired|reference|final|working|target|golden|ground[- ]truth"
_WORK = r"kernel|code|version|source|solution|implementation|answer|file|fix"
_DOES = (
    r"shows?|does|uses?|has|adds?|changes?|replaces?|removes?|moves?|waits?|sets?|calls?|is (?:given|provided|shown)"
    r"|was (?:given|provided|shown)"
)
_MARKERS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:given|provided|supplied|attached)\s+(?:(?:{_GIVEN})\s+)?(?:solution|fix|repair|answer)\b",
        rf"{_OWN}\b(?:given|provided|supplied)\s+(?:{_GIVEN})\s+(?:{_WORK})\b",
        rf"{_OWN}\bthe\s+(?:{_GIVEN})\s+(?:{_WORK})\s+(?:{_DOES})\b",
        rf"\b(?:according\s+to|compar(?:ed|ing)\s+(?:to|with|against)|looking\s+at|as\s+(?:seen|shown|done)\s+in)\s+the\s+"
        rf"(?:{_GIVEN})\s+(?:{_WORK})\b",
        r"\bthe\s+(?:diff|patch)\s+(?:shows?|changes?|between)\b",
        r"\bk\s?\+(?=\W|$)|\bk_plus\b",
        r"\bteacher\b|\bground[- ]truth\b|\bin\s+hindsight\b|\bas\s+an\s+(?:ai|language\s+model)\b",
        r"\b(?:the|this|my)\s+rationale\b|\bthe\s+(?:student|instructions?)\s+(?:asks?|says?|wants?|should)\b",
        r"\b(?:I|we)\s+(?:was|were|am|are|have\s+been)\s+(?:given|shown|told|provided|asked\s+to\s+(?:explain|write))\b",
        r"\bI\s+(?:must|should|may)\s+not\s+(?:quote|mention|reveal)\b",
    )
)
_PATHS = re.compile(
    r"(?<![\w.:/])(?:/(?:home|root|tmp|usr|opt|work|mnt|data|var|etc|proc|srv|scratch|workspace|Users|private)/[\w.-]"
    r"|~/[\w.-]|[A-Za-z]:\\[\w.-])[^\s`'\")]*|\b(?:file|https?)://\S+"
)

_CREDENTIAL = re.compile(r"\b(?:sk|gsk|xai|hf|nvapi)[-_](?=\S*\d)[\w-]{16,}|\bBearer\s+[\w.~+/-]{16,}")


class Leak(NamedTuple):
    """One thing that a rationale holds and must not."""

    kind: Literal["code", "marker", "path", "credential"]
    quote: str
    """What was found; empty for a credential."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.quote!r}" if self.quote else self.kind


def leaks_in(text: str, *, kernel: str, known: Sequence[str]) -> tuple[Leak, ...]:
    """Everything of the kind in a rationale.

    ``kernel`` is the final source. What also stands in one of the ``known`` texts, as the failed kernel, its feedback
    and the prompt do, may be quoted: whoever reasons has them before their eyes.
    """
    return (*_code(text, kernel, known), *_markers(text), *_paths(text), *_credentials(text))


def without_comments(source: str) -> str:
    """A CUDA source without its comments; strings, which hold the PTX, stay."""
    state, lines = "", []
    for line in source.split("\n"):
        state, code = advance(state, line)
        lines.append(code)
    return "\n".join(lines)


def _code(text: str, kernel: str, known: Sequence[str]) -> Iterator[Leak]:
    code = without_comments(kernel)
    seen = {_squeezed(line).rstrip(";{}") for other in known for line in without_comments(other).split("\n")}
    squeezed = _squeezed(text)
    for line in dict.fromkeys(code.split("\n")):
        bare = _squeezed(line).rstrip(";{}")
        if len(bare) >= LINE_CHARS and bare not in seen and bare in squeezed:
            yield Leak("code", _short(" ".join(line.split())))
            return
    new = _runs(code) - {run for other in known for run in _runs(without_comments(other)) | _runs(other)}
    tokens = _TOKEN.findall(text)
    for at in range(len(tokens) - RUN_TOKENS + 1):
        if tuple(tokens[at : at + RUN_TOKENS]) in new:
            yield Leak("code", _short(" ".join(tokens[at : at + RUN_TOKENS])))
            return


def _runs(text: str) -> set[tuple[str, ...]]:
    tokens = _TOKEN.findall(text)
    return {tuple(tokens[at : at + RUN_TOKENS]) for at in range(len(tokens) - RUN_TOKENS + 1)}


def _markers(text: str) -> Iterator[Leak]:
    for pattern in _MARKERS:
        if found := pattern.search(text):
            yield Leak("marker", _short(" ".join(found[0].split())))


def _paths(text: str) -> Iterator[Leak]:
    if found := _PATHS.search(text):
        yield Leak("path", _short(found[0]))


def _credentials(text: str) -> Iterator[Leak]:
    if _CREDENTIAL.search(text):
        yield Leak("credential", "")


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
