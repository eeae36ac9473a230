"""What writes kernels: reference solutions, files, earlier runs; later conversations with language models."""

from ptxbench.models.base import End, Model, PastTurn, Proposal
from ptxbench.models.registry import open_model, open_models

__all__ = ["End", "Model", "PastTurn", "Proposal", "open_model", "open_models"]
