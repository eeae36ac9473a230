"""Knowledge packs: what a prompt tells a model of the target architecture."""

from ptxbench.packs.lint import lint
from ptxbench.packs.pack import LEVELS, Level, Pack, load_pack, open_pack, render_part
from ptxbench.packs.tokens import count_tokens, estimate_tokens

__all__ = [
    "LEVELS",
    "Level",
    "Pack",
    "count_tokens",
    "estimate_tokens",
    "lint",
    "load_pack",
    "open_pack",
    "render_part",
]
