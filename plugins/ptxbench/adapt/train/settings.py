"""Hyper-parameters of a training. Defaults are the published ones (PROTOCOL 7); what is not published says so."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ptxbench.adapt.defaults import RECORD_TOKENS
from ptxbench.records import Record

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]


class TrainSettings(Record):
    """How an adapter is trained. Two trainings with equal settings, base model and records are the same training."""

    rank: Positive = 32
    epochs: Positive = 5
    batch: Positive = 2
    """Records of one optimizer step, over all processes together."""
    learning_rate: Annotated[float, Field(gt=0)] = 4.65e-4
    """Of the first step; it falls linearly to 0 over the training, without warm-up."""
    beta1: Share = 0.9
    beta2: Share = 0.95
    epsilon: Annotated[float, Field(gt=0)] = 1e-8
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the order of records and of the adapter's first weights."""
    max_tokens: Positive = RECORD_TOKENS
    """Records with more are dropped and counted, never cut."""
    checkpoint_steps: Positive = 50

    alpha: Positive = 32
    """The adapter is scaled by alpha / rank. Not in our documents; 32 is what the Tinker service does, whose cookbook
    has the published optimizer settings as its defaults (docs/adaptation-train.md)."""
    targets: tuple[str, ...] = ("all-linear",)
    """Layers that get an adapter: PEFT's word for all linear layers but the output layer, or names. Not published."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Not published; 0 in the cookbook."""
    max_gradient_norm: Annotated[float, Field(ge=0)] = 0.0
    """0 is no clipping. Not published; none in the cookbook."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of the base model's weights; those of the adapter are float32. Not published."""
    attention: str = "sdpa"
    """Implementation, in the words of transformers. Without padding torch's own has flash kernels."""
    offload: bool = False
    """Activations wait in main memory for the backward pass: slower, and less of the GPU's memory."""
