"""The corpora of this checkout, read as ``ptxbench selftest`` reads them."""

from __future__ import annotations

from pathlib import Path

from ptxbench.selftest import corpus
from ptxbench.selftest.corpus import DEFAULT_CASE, EXPECTED, Attack, Honest, Stage, Threat, Variant

__all__ = ["ATTACKS", "DEFAULT_CASE", "EXPECTED", "HONEST", "ROOT", "Attack", "Honest", "Stage", "Threat", "Variant"]
__all__ += ["attacks", "defences", "honest", "read_source", "threats"]

ROOT = Path(__file__).resolve().parents[2]
ATTACKS = ROOT / "tests" / "attacks"
HONEST = ROOT / "tests" / "honest"


def attacks(folder: Path = ATTACKS) -> dict[str, Attack]:
    """``CLASS/NAME`` -> attack, sorted."""
    return corpus.attacks(folder)


def honest(folder: Path = HONEST) -> dict[str, Honest]:
    """``PATH/NAME`` -> honest kernel, sorted."""
    return corpus.honest(folder)


def threats(folder: Path = ATTACKS) -> dict[str, Threat]:
    """``class.mechanism`` -> the row."""
    return corpus.threats(folder)


def defences(folder: Path = ATTACKS) -> dict[str, str]:
    """Name of each defence -> what it does."""
    return corpus.defences(folder)


def read_source(name: str, folder: Path = ATTACKS) -> str:
    """The self-contained source of an entry, shared text spliced in."""
    return corpus.read_source(name, folder)
