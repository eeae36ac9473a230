"""Finding earlier failures like this one: BM25 over failed kernels (PROTOCOL 7)."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import NamedTuple

from ptxbench.adapt.kernel_code import code_sha256, without_comments
from ptxbench.errors import InputError

K1, B = 1.5, 0.75
"""BM25's constants (PROTOCOL 7)."""
TOP = 3
"""Notes that a prompt gets at most."""
_KEPT_INDICES = 64

_NAME = re.compile(r"[A-Za-z_]\w*")
_KEYWORDS = frozenset(
    _NAME.findall(
        "alignas auto bool break case char const constexpr continue default do double else enum extern false "
        "float for if inline int int32_t int64_t long namespace noexcept nullptr reinterpret_cast return "
        "short signed sizeof static static_assert static_cast struct switch template true typedef typename "
        "uint16_t uint32_t uint64_t uint8_t unsigned using void volatile while include pragma define ifdef "
        "ifndef endif unroll"
    )
)
"""Words that every kernel has. They would weigh next to nothing, and count in the length."""


class Entry(NamedTuple):
    """One repair that notes can be taken from."""

    id: str
    definition: str
    arch: str
    run: str
    """Name of the run that the failure is of."""
    run_created_at: str
    """When that run began, as its ``run.json`` says: its name may change."""
    failed: str
    """The kernel that failed, by which it is found."""
    note: str
    kernel: str
    """The repaired kernel."""

    @property
    def failed_code(self) -> str:
        """Identity of the failed kernel as code."""
        return code_sha256(self.failed)


class Asking(NamedTuple):
    """For whom notes are looked for, so that nothing of their own is among them."""

    definition: str
    arch: str
    run: str
    run_created_at: str
    kernels: frozenset[str]
    """All kernels of the trajectory so far, as ``code_sha256`` names them."""

    def may_see(self, entry: Entry) -> bool:
        """Whether an entry is of the same operation, and neither of the run that goes on nor of its kernels.

        Of the run itself nothing is seen, whatever the trajectory and turn: trajectories run side by side, so that
        what is earlier and what is later is a matter of chance. A run that was copied under another name is known by
        its beginning, and one whose files were edited by its kernels, whatever their comments and layout.
        """
        return (
            (entry.definition, entry.arch) == (self.definition, self.arch)
            and entry.run != self.run
            and (not entry.run_created_at or entry.run_created_at != self.run_created_at)
            and entry.failed_code not in self.kernels
        )


class Corpus:
    """Repairs of some runs. Safe for several threads.

    Raises InputError for none, for two of one id, and where the package is missing that ranks them.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        if find_spec("bm25s") is None:
            raise InputError("--retrieval: expected the package bm25s, found none; pip install 'ptxbench[adapt]'")
        self.entries = tuple(sorted(entries, key=lambda entry: entry.id))
        if not self.entries:
            raise InputError(
                "--retrieval-from: expected repairs with notes, found none (KernelGen's kernels repair none); "
                "name another file"
            )
        ids = [entry.id for entry in self.entries]
        if len(set(ids)) != len(ids):
            twice = next(each for each in ids if ids.count(each) > 1)
            raise InputError(f"--retrieval-from: expected each repair once, found {twice} twice; name each file once")
        self._lock = threading.Lock()
        self._index = lru_cache(maxsize=_KEPT_INDICES)(_Index)
        self._by_id = {entry.id: entry for entry in self.entries}

    @property
    def sha256(self) -> str:
        """Identity of the content: what a run that takes notes from it keeps."""
        content = json.dumps([list(entry) for entry in self.entries], separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()

    def search(self, failed: str, asking: Asking, top: int = TOP) -> tuple[Entry, ...]:
        """The entries whose failed kernels are most like ``failed``, the most similar first.

        Scores are taken over the entries that may be seen alone: no other one counts, not even in the frequencies. One
        that shares no name with the kernel is not like it. Ties go to the smaller id.
        """
        seen = tuple(entry.id for entry in self.entries if asking.may_see(entry))
        if not seen:
            return ()
        with self._lock:
            index = self._index(tuple(self._by_id[each].failed for each in seen))
        scores = index.scores(failed)
        ranked = sorted(zip(scores, seen, strict=True), key=lambda pair: (-pair[0], pair[1]))
        return tuple(self._by_id[each] for score, each in ranked[:top] if score > 0)


def terms(source: str) -> list[str]:
    """The words of a kernel that it is found by: names in its code and in its PTX, in order, comments left out."""
    return [word for word in _NAME.findall(without_comments(source)) if word not in _KEYWORDS]


class _Index:
    """BM25 as Lucene computes it, whose inverse document frequency is never negative: in a handful of kernels most
    names are in more than half of them."""

    def __init__(self, sources: Sequence[str]) -> None:
        from bm25s import BM25

        documents = [terms(source) for source in sources]
        self._known: Collection[str] = {word for document in documents for word in document}
        self._count = len(documents)
        self._bm25 = BM25(k1=K1, b=B, method="lucene")
        if self._known:
            self._bm25.index(documents, show_progress=False)

    def scores(self, source: str) -> list[float]:
        """The score of each document. A name counts once, however often the kernel has it."""
        query = [word for word in dict.fromkeys(terms(source)) if word in self._known]
        if not query:
            return [0.0] * self._count
        return [float(score) for score in self._bm25.get_scores(query)]
