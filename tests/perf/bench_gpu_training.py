"""Memory and speed of a training step at 65,536 tokens (docs/adaptation.md): two full records, as a batch has.

Weights are random, of the shapes of public models: nothing that is measured depends on their values. Two steps are
trained by what ``ptxbench train`` runs; the first warms up. Each step's figures are printed when it ends, so that a run
that is cut off or out of memory has told something.
"""

from __future__ import annotations

import gc
import random
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from ptxbench.adapt.train import trainer
from ptxbench.adapt.train.settings import TrainSettings
from ptxbench.adapt.train.tokens import UNSUPERVISED, Encoded, EncodedSet
from tests.support.figures import keep_figures

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

# What these packages warn of on a GPU is no finding, and would end a run that takes minutes.
pytestmark = pytest.mark.filterwarnings("default")

TOKENS, SUPERVISED = 65_536, 16_384
STEPS = 2
SHAPES: dict[str, dict[str, int]] = {
    # The published configurations of Qwen3-8B and Qwen3-32B.
    "8B": {
        "hidden_size": 4096,
        "intermediate_size": 12_288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 151_936,
    },
    "32B": {
        "hidden_size": 5120,
        "intermediate_size": 25_600,
        "num_hidden_layers": 64,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": 151_936,
    },
}


def _model(shape: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config

    config = Qwen3Config(
        **SHAPES[shape], head_dim=128, max_position_embeddings=2 * TOKENS, tie_word_embeddings=False, use_cache=False
    )
    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")


def _tokenizer() -> Any:
    """Only its padding is asked for."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"<pad>": 0, "<end>": 1}, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>")


def _records() -> EncodedSet:
    chance = random.Random(0)
    kept = []
    for number in range(2):
        tokens = [chance.randrange(2, 151_000) for _ in range(TOKENS)]
        masked = [UNSUPERVISED] * (TOKENS - SUPERVISED)
        kept.append(Encoded(f"record {number}", tokens, masked + tokens[-SUPERVISED:]))
    return EncodedSet(tuple(kept), ())


@pytest.mark.parametrize(
    ("shape", "offload"), [("8B", False), ("32B", False), ("32B", True)], ids=["8B", "32B", "32B-offload"]
)
def test_step_of_two_full_records(
    benchmark: BenchmarkFixture, capsys: pytest.CaptureFixture[str], shape: str, offload: bool, tmp_path: Any
) -> None:
    """Seconds of two steps; memory and tokens per second are in ``extra_info`` and printed."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("trl")
    from transformers import TrainerCallback

    gc.collect()  # the shape before is held by cycles of its trainer, and two do not fit
    torch.cuda.empty_cache()
    moments = [time.perf_counter()]

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"\n{shape} offload={offload}: {text}", flush=True)  # noqa: T201 - the figures, where no file is kept

    class Clock(TrainerCallback):  # type: ignore[misc]  # carries no types
        def on_step_end(self, *_: Any, **__: Any) -> None:
            torch.cuda.synchronize()
            moments.append(time.perf_counter())
            peak = torch.cuda.max_memory_allocated() / 2**30
            say(f"step {len(moments) - 1} of {STEPS} in {moments[-1] - moments[-2]:.1f} s, peak {peak:.1f} GiB")

    settings = TrainSettings(epochs=STEPS, offload=offload)
    job = trainer.Job(shape, settings, _records(), _tokenizer(), tmp_path / "out", _model(shape))
    moments[0] = time.perf_counter()
    result = benchmark.pedantic(
        trainer.train, args=(job,), kwargs={"resume": False, "callbacks": [Clock()]}, rounds=1, iterations=1
    )
    assert result is not None
    step_s = (moments[-1] - moments[1]) / (STEPS - 1)
    benchmark.extra_info |= {
        "shape": shape,
        "offload": offload,
        "steps_s": [round(end - begin, 2) for begin, end in pairwise(moments)],
        "tokens_per_s": round(2 * TOKENS / step_s),
        "peak_gib": round(result.peak_memory_bytes / 2**30, 1),
        "losses": [loss for _, loss in result.losses],
        "versions": result.versions,
    }
    keep_figures(f"training_{shape.lower()}{'_offload' if offload else ''}.json", benchmark.extra_info)
    say(str(benchmark.extra_info))
    # A random model knows nothing: more than that is a broken loss, and less cannot be.
    assert all(8 < loss < 16 for _, loss in result.losses)
