"""Command lines for users: training on several GPUs, and serving what was trained."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

PORT = 8000


def launch_line(arguments: Sequence[str], processes: int, dtype: str) -> str:
    """The command that trains with one process for each of ``processes`` GPUs of this machine."""
    precision = "bf16" if dtype == "bfloat16" else "no"
    head = ["accelerate", "launch", "--num_machines", "1", "--num_processes", str(processes), "--dynamo_backend", "no"]
    head += ["--mixed_precision", precision, *(["--multi_gpu"] if processes > 1 else [])]
    return shlex.join([*head, "-m", "ptxbench", "train", *arguments])


def serve_lines(base: str, adapter: Path, name: str, rank: int) -> list[str]:
    """How to serve the adapter, and how to run the benchmark on it: lines to print."""
    vllm = ["vllm", "serve", base, "--enable-lora", "--max-lora-rank", str(rank)]
    vllm += ["--lora-modules", f"{name}={adapter}", "--port", str(PORT)]
    sglang = ["python", "-m", "sglang.launch_server", "--model-path", base, "--enable-lora"]
    sglang += ["--lora-paths", f"{name}={adapter}", "--port", str(PORT)]
    url = f"http://127.0.0.1:{PORT}/v1"
    return [
        f"Serve with vLLM:   {shlex.join(vllm)}",
        f"  then:            pytest -m h100 --model={shlex.quote(f'openai:{name}@{url}')}",
        f"Serve with SGLang: {shlex.join(sglang)}",
        f"  then:            pytest -m h100 --model={shlex.quote(f'openai:{base}:{name}@{url}')}",
    ]
