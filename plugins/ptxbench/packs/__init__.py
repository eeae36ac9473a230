"""Knowledge packs: what a prompt tells a model of the target architecture."""

from ptxbench.packs.pack import LEVELS, Level, Pack, load_pack
from ptxbench.packs.tokens import estimate_tokens

__all__ = ["LEVELS", "Level", "Pack", "estimate_tokens", "load_pack"]
