"""What a rationale must not hold: the final kernel, signs that it was given, places of a machine. Pure."""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Literal, NamedTuple

from ptxbench.adapt.kernel_code import tokens_of, without_comments

LINE_CHARS = 20
"""A line of the kernel with so many characters beside blanks is a quotation. Ours: shorter ones, such as
``__syncthreads();``, are how one speaks of a step."""
RUN_TOKENS = 12
"""So many tokens of the kernel in a row are a quotation, however they are laid out; an instruction with its qualifiers
is one token. Ours: a call with three arguments has 8."""
RENAMED_TOKENS, RENAMED_SIGNS = 16, 6
"""So many tokens in a row that differ from the kernel's in their names alone, and how many of them are signs other than
those of prose. Ours: longer than a quotation, since short expressions of one form are common."""
ENCODED_BYTES = 16
"""A word that stands for so many printable characters in base64 or hexadecimal is no name. Ours: no long name of the
example kernels does (tested)."""
_SHOWN = 80
_KEPT_TEXTS = 32
"""Prompts, which are long and of which many records have the same."""

_PROSE_SIGNS = frozenset(",.;:!?'\"")
_QUOTED_LINE = re.compile(r"^[ \t]*(?:\d+[ \t]*[:|.)]|[>+|-])[ \t]?", re.MULTILINE)
"""What stands before a line of code that is listed, or of a diff."""
_EMPHASIS = re.compile(r"[*_]+(?=\w)|(?<=\w)[*_]+(?!\w)")
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_OWN = r"(?<!\bmy )(?<!\bour )"
_GIVEN = r"fixed|corrected|repaired|reference|final|working|correct|passing|known|target|golden|ground[- ]truth"
_MENDED = r"fixed|corrected|repaired|mended"
_WORK = r"kernel|code|version|source|solution|implementation|answer|file|fix"
_DOES = (
    r"shows?|does|uses?|has|adds?|changes?|replaces?|removes?|moves?|waits?|sets?|calls?|is (?:given|provided|shown)"
    r"|was (?:given|provided|shown)"
)
_YET = r"(?:simply|just|only|now|also|instead|then)\s+"
_MARKERS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:given|provided|supplied|attached)\s+(?:(?:{_GIVEN})\s+)?(?:solution|fix|repair|answer)\b",
        rf"{_OWN}\b(?:given|provided|supplied)\s+(?:{_GIVEN})\s+(?:{_WORK})\b",
        rf"{_OWN}\bthe\s+(?:{_GIVEN})\s+(?:{_WORK})\s+(?:{_YET})?(?:{_DOES})\b",
        # What is mended is spoken of as being there, unless it is told what it will have to be.
        rf"\bthe\s+(?:{_MENDED})\s+(?:{_WORK})\b(?!\s+(?:should|must|will|would|needs?|ha[sv]e?\s+to|can|could|may)\b)",
        r"\bthe\s+(?:new|later)\s+(?:kernel|code|version|source)\s+"
        r"(?:shows?|does|uses?|adds?|changes?|replaces?|removes?|moves?)\b",
        rf"\b(?:according\s+to|compar(?:ed|ing)\s+(?:to|with|against)|looking\s+at|as\s+(?:seen|shown|done)\s+in)\s+the\s+"
        rf"(?:{_GIVEN}|new|next|later)\s+(?:{_WORK})\b",
        r"\bthe\s+(?:diff|patch)\s+(?:shows?|changes?|between)\b|\banswer\s+key\b",
        r"\bthe\s+(?:solution|answer|repair|fix)\s+(?:shows?|(?:that\s+)?was\s+(?:given|shown|applied))\b",
        r"\b(?:seen|saw|knew|known?|peek\w*\s+at|read)\s+(?:from\s+|in\s+)?the\s+(?:solution|answer|repair|fix)\b",
        r"\bk\+(?=[^\w\s(+=]|\s+[A-Za-z]|\s*$)|\bk_plus\b|\bk\s+plus\s+(?![\d(])",  # not k+1, k + BK, k++
        r"\bteacher\b|\bground[- ]truth\b|\bin\s+hindsight\b|\bas\s+an\s+(?:ai|language\s+model)\b",
        r"\b(?:the|this|my)\s+rationale\b|\bthe\s+(?:student|instructions?)\s+(?:asks?|says?|wants?|should)\b",
        r"\bthe\s+engineer\b|\bfor\s+me\s+alone\b",
        r"\b(?:I|we)\s+(?:was|were|am|are|have\s+been)\s+"
        r"(?:given|shown|told|provided|handed|supplied|asked\s+to\s+(?:explain|write))\b",
        r"\b(?:given|shown|handed|supplied)\s+to\s+(?:me|us)\b",
        r"\bI\s+(?:must|should|may|can|will|do)\s*(?:not|n't)\s+(?:quote|mention|reveal)\b",
    )
)
_ROOTS = (
    "app|bin|boot|build|cache|content|data|dev|etc|gpfs|home|kaggle|lib(?:64)?|lustre|media|mnt|net|nfs|nix|opt|private"
    "|proc|projects?|root|run|sbin|scratch|shared?|srv|storage|sys|tmp|usr|var|work|workspaces?|Applications|Library"
    "|Users|Volumes"
)
_PATHS = re.compile(
    rf"(?<![\w./])(?:/(?:{_ROOTS})/[\w.-]|~/[\w.-]|[A-Za-z]:[\\/][\w.-]|\\\\\w+\\|\.\.?/[\w.-]|\$\{{?\w+\}}?/\w)"
    r"[^\s'\")]*"
    r"|\b[a-z][a-z0-9+.-]{1,9}://\S+"
    r"|\b[\w.+-]+@\w[\w-]*\.\w[\w.-]*|\b\d{1,3}(?:\.\d{1,3}){3}\b"
)
_FILES = re.compile(r"\b[\w./-]*\w\.(?:cuh?|cubin|py|jsonl?|ya?ml)\b")
"""Files that a kernel comes in. Those that feedback names may be named."""

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
    text = _seen(text)
    return (*_code(text, kernel, known), *_markers(text), *_paths(text, known), *_credentials(text))


@lru_cache(maxsize=_KEPT_TEXTS)
def _bare(text: str) -> str:
    return without_comments(text)


def _seen(text: str) -> str:
    """The text as a reader sees it: letters in their usual form, without what is invisible, and without backticks."""
    usual = unicodedata.normalize("NFKC", text)
    return "".join(letter for letter in usual if unicodedata.category(letter) != "Cf").replace("`", "")


def _code(text: str, kernel: str, known: Sequence[str]) -> Iterator[Leak]:
    code = without_comments(kernel)
    others = [each for other in known for each in (other, _bare(other))]
    listed = _QUOTED_LINE.sub("", text)
    found = (
        _lines(text, kernel, code, known)
        or _lines(listed, kernel, code, known)
        or _repeated(text, code, others)
        or _repeated(listed, code, others)
        or _renamed(text, code, others)
        or _encoded(text)
    )
    if found:
        yield Leak("code", _short(found))


def _lines(text: str, kernel: str, code: str, known: Sequence[str]) -> str:
    """A line of the kernel that a text holds, as code alone or with the comments within it; or nothing."""
    seen = frozenset[str]().union(*map(_squeezed_lines, known))
    squeezed = _squeezed(text)
    for line, whole in dict.fromkeys(zip(code.split("\n"), kernel.split("\n"), strict=True)):
        bare = _squeezed(line).rstrip(";{}")
        quoted = bare in squeezed or _squeezed(whole).rstrip(";{}") in squeezed
        if len(bare) >= LINE_CHARS and bare not in seen and quoted:
            return " ".join(line.split())
    return ""


@lru_cache(maxsize=_KEPT_TEXTS)
def _squeezed_lines(text: str) -> frozenset[str]:
    return frozenset(_squeezed(line).rstrip(";{}") for line in _bare(text).split("\n"))


def _repeated(text: str, code: str, others: Sequence[str]) -> str:
    """Tokens of the kernel in a row, or nothing."""
    shared = _runs(text) & _runs(code)
    if shared:
        shared = shared.difference(*map(_runs, others))
    return " ".join(min(shared, default=()))


def _renamed(text: str, code: str, others: Sequence[str]) -> str:
    """A row of tokens that is one of the kernel's with other names, or nothing."""
    said = _forms(text)
    shared = said.keys() & _forms(code).keys()
    if shared:
        shared = shared.difference(*(_forms(other) for other in others))
    return next((quote for form, quote in said.items() if form in shared), "")


def _forms(text: str) -> dict[tuple[str | int, ...], str]:
    """Rows of tokens, each name in them by the order of its first appearance -> the first row of that form."""
    tokens = tokens_of(text)
    found: dict[tuple[str | int, ...], str] = {}
    for at in range(len(tokens) - RENAMED_TOKENS + 1):
        row = tokens[at : at + RENAMED_TOKENS]
        if sum(not (_is_name(token) or token[0].isdigit() or token in _PROSE_SIGNS) for token in row) < RENAMED_SIGNS:
            continue
        names: dict[str, int] = {}
        form = tuple(names.setdefault(token, len(names)) if _is_name(token) else token for token in row)
        found.setdefault(form, " ".join(row))
    return found


def _is_name(token: str) -> bool:
    return token[0].isalpha() or token[0] == "_"


def _encoded(text: str) -> str:
    """A word that stands for a text, or nothing."""
    for word in _ENCODED.findall(text):
        for data in _decoded(word.rstrip("=")):
            if len(data) >= ENCODED_BYTES and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in data):
                return str(word)
    return ""


def _decoded(word: str) -> Iterator[bytes]:
    with suppress(ValueError):
        yield bytes.fromhex(word)
    with suppress(binascii.Error):
        yield base64.b64decode(word[: len(word) // 4 * 4], altchars=b"-_" if set(word) & set("-_") else None)


def _runs(text: str) -> frozenset[tuple[str, ...]]:
    tokens = tokens_of(text)
    return frozenset(tuple(tokens[at : at + RUN_TOKENS]) for at in range(len(tokens) - RUN_TOKENS + 1))


def _markers(text: str) -> Iterator[Leak]:
    text = _EMPHASIS.sub("", text)
    for pattern in _MARKERS:
        if found := pattern.search(text):
            yield Leak("marker", _short(" ".join(found[0].split())))


def _paths(text: str, known: Sequence[str]) -> Iterator[Leak]:
    if found := _PATHS.search(text):
        yield Leak("path", _short(found[0]))
    elif file := next((file for file in _FILES.findall(text) if not any(file in other for other in known)), ""):
        yield Leak("path", _short(file))


def _credentials(text: str) -> Iterator[Leak]:
    if _CREDENTIAL.search(text):
        yield Leak("credential", "")


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
