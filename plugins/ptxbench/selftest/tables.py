"""The tables of a self-test: what it prints, and what docs/trust.md shows of the evidence that is committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ptxbench.selftest.corpus import Attack
from ptxbench.selftest.measuring import Judged

KINDS = ("attacks", "honest")
UNKNOWN = "unknown"


class Row(NamedTuple):
    """One class of attacks, or one folder of honest kernels."""

    group: str
    kernels: int
    escaped: int
    """Attacks that score, honest kernels that are rejected."""
    differ: int
    """Caught, by another rule than expected."""
    unknown: int


def kind_of(judged: Judged) -> str:
    """``attacks`` or ``honest``."""
    return "attacks" if isinstance(judged.subject.entry, Attack) else "honest"


def rows_of(results: Iterable[Judged], kind: str) -> list[Row]:
    """A row for each group, sorted."""
    groups: dict[str, list[Judged]] = {}
    for one in results:
        if kind_of(one) == kind:
            groups.setdefault(one.subject.group, []).append(one)
    return [_row(group, found) for group, found in sorted(groups.items())]


def _row(group: str, found: Sequence[Judged]) -> Row:
    return Row(
        group,
        len(found),
        sum(one.escaped for one in found),
        sum(bool(one.differences) and not one.escaped for one in found),
        sum(one.verdict is None for one in found),
    )


def total(rows: Sequence[Row], label: str = "all") -> Row:
    """The sum of all rows."""
    return Row(
        label,
        sum(row.kernels for row in rows),
        sum(row.escaped for row in rows),
        sum(row.differ for row in rows),
        sum(row.unknown for row in rows),
    )


def confusion(results: Sequence[Judged]) -> list[str]:
    """The confusion table as text."""
    lines: list[str] = []
    for kind, wrong, right in (("attacks", "valid", "caught"), ("honest", "rejected", "accepted")):
        rows = rows_of(results, kind)
        if not rows:
            continue
        rows.append(total(rows))
        width = max(len(kind), *(len(row.group) for row in rows))
        lines.append(f"{kind:{width}}  kernels  {right:>8}  {wrong:>8}  other rule  unknown")
        for row in rows:
            passed = row.kernels - row.escaped - row.unknown
            lines.append(
                f"{row.group:{width}}  {row.kernels:7}  {passed:8}  {row.escaped:8}  {row.differ:10}  {row.unknown:7}"
            )
        lines.append("")
    return lines


def verdict_line(judged: Judged) -> str:
    """One kernel: its verdict with the rule, and in which way it is not as expected."""
    verdict, kept = judged.verdict, judged.kept
    if verdict is None:
        return f"{judged.subject.name}: unknown ({judged.why})"
    seconds = "kept" if judged.reused or kept is None else f"{kept.seconds:.1f} s"
    flags = "".join(f" {flag}" for flag in verdict.flags)
    speed = "" if verdict.speedup is None else f" speedup {verdict.speedup:.3f}"
    line = f"{judged.subject.name}: {verdict.outcome} {verdict.rule}{flags}{speed} [{seconds}]"
    if judged.escaped:
        return f"{line}\n  {'VALID' if kind_of(judged) == 'attacks' else 'REJECTED'}: {'; '.join(judged.differences)}"
    return f"{line}\n  not as expected: {'; '.join(judged.differences)}" if judged.differences else line


def deciding_rules(results: Iterable[Judged]) -> str:
    """Rules and flags that decided, with how often; ``unknown`` where nothing was measured."""
    counted: Counter[str] = Counter()
    for one in results:
        verdict = one.verdict
        if verdict is None:
            counted[UNKNOWN] += 1
            continue
        caught = [verdict.rule] if not verdict.correct else list(verdict.flags) or [verdict.target_rule]
        wanted = one.subject.entry.rule if isinstance(one.subject.entry, Attack) else ()
        counted[next((rule for rule in caught if rule in wanted), caught[0])] += 1
    return ", ".join(
        f"`{rule}` {count}" if rule != "unknown" else f"unknown {count}" for rule, count in counted.most_common()
    )


def markdown_confusion(results: Sequence[Judged]) -> Iterator[str]:
    """The confusion table in Markdown, each class with the rules that decided."""
    for kind, wrong in (("attacks", "valid"), ("honest", "rejected")):
        rows = rows_of(results, kind)
        yield f"| {kind} | kernels | {wrong} | unknown | decided by |"
        yield "|---|---|---|---|---|"
        for row in [*rows, total(rows, "**all**")]:
            members = [one for one in results if kind_of(one) == kind and row.group in (one.subject.group, "**all**")]
            rules = deciding_rules(members) if row.group != "**all**" else ""
            # Where nothing was measured, nothing is known to have been caught.
            escaped = row.escaped if row.unknown < row.kernels else UNKNOWN
            yield f"| {row.group} | {row.kernels} | {escaped} | {row.unknown} | {rules} |"
        yield ""
