"""The dataset card: what a reader of the dataset should know, and where Hugging Face ``datasets`` finds its files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from ptxbench.adapt.funnel import funnel_table
from ptxbench.adapt.manifest import PARQUET, PROMPT_COMPLETION, TRAIN, Manifest

_KINDS = {
    "fixit": (
        "Each record is a repair. A model was given a task (system, user), answered with a kernel that failed "
        "(assistant), and was told how (user). A teacher repaired the kernel, the repair passed the benchmark's "
        "correctness check, and a second teacher wrote the reasoning that leads to it (assistant)."
    ),
    "kernelgen": (
        "Each record is a correct kernel. A model was given a task (system, user) and wrote a kernel that passes the "
        "benchmark's correctness check; a teacher wrote the reasoning that leads to it (assistant)."
    ),
}
_COUNTERS = {
    "estimate": "estimated without a tokenizer, good to about a tenth",
    "qwen": "in the vocabulary of Qwen3.6",
}


def card(manifest: Manifest) -> str:
    """The text of ``README.md``. Nothing in it depends on when or where the dataset was built."""
    lines = [
        *_header(manifest),
        f"# {_cell(manifest.name)}: {_cell(manifest.recipe_content.title)}",
        "",
        f"{_KINDS[manifest.kind]} Kernels are CUDA with inline PTX.",
        "",
        f"{manifest.records} records, {manifest.tokens_in_all:,} tokens ({_COUNTERS[manifest.token_counter]}), "
        f"the longest {manifest.tokens_most:,}. Recipe `{manifest.recipe}`, turns of `{manifest.model}`, "
        f"built by PTXBench {manifest.ptxbench}.",
        "",
        *_format(),
        "## From turns to records",
        "",
        *funnel_table(manifest.funnel),
        "",
        *_section("Operators", "operator and architecture", manifest.by_case),
    ]
    if manifest.kind == "fixit":
        lines += _section("How the first kernel failed", "outcome", manifest.by_outcome)
    lines += [
        *_section("Turn of the trajectory", "turn, from 0", manifest.by_turn),
        *_section("Prompt variants", "variant", manifest.by_variant),
        *_section("Who wrote the last kernel", "model", manifest.by_repair_teacher),
        *_section("Who wrote the reasoning", "model", manifest.by_teacher),
        *_section("Length", "tokens, at most", manifest.tokens),
        *_provenance(manifest),
        *_limits(),
    ]
    return "\n".join(lines) + "\n"


def _header(manifest: Manifest) -> list[str]:
    return [
        "---",
        f"pretty_name: {json.dumps(f'PTXBench {manifest.name}')}",  # a name may hold what YAML gives a meaning to
        "language: [en, code]",
        "task_categories: [text-generation]",
        "tags: [cuda, ptx, gpu-kernels, supervised-fine-tuning]",
        "configs:",
        "- config_name: default",
        f"  data_files: [{{split: train, path: {PARQUET}}}]",
        "- config_name: prompt_completion",
        f"  data_files: [{{split: train, path: {PROMPT_COMPLETION}}}]",
        "---",
        "",
    ]


def _format() -> list[str]:
    return [
        "## Format",
        "",
        f"`{TRAIN}` and `{PARQUET}` hold the same records. `messages` is the conversation; each message has `role`, "
        "`content` and `training`, which is true for the last message alone. Its content is the reasoning between "
        "`<think>` and `</think>`, then one block with the whole kernel. The other columns say where a record comes "
        f"from. `{PROMPT_COMPLETION}` holds the same conversations as `prompt` and `completion`.",
        "",
        "- Hugging Face: `load_dataset(FOLDER)`.",
        '- TRL: `SFTTrainer(train_dataset=load_dataset(FOLDER, "prompt_completion", split="train"))` has its loss on '
        "the completion alone.",
        "- Axolotl: `type: chat_template`, `field_messages: messages`, `message_field_training: training`, "
        "`roles_to_train: []`, `train_on_eos: turn`.",
        "- PTXBench: `ptxbench train --dataset FOLDER --base MODEL --out DIR`.",
        "",
    ]


def _section(title: str, what: str, counts: Mapping[str, int]) -> list[str]:
    rows = [f"| {_cell(name)} | {count} |" for name, count in counts.items()]
    return [f"## {title}", "", f"| {what} | records |", "|---|---:|", *rows, ""]


def _provenance(manifest: Manifest) -> list[str]:
    inputs = [
        *(
            f"| run `{_cell(one.name)}` of {_cell(one.created_at)} | {one.turns} turns | `{one.sha256}` |"
            for one in manifest.runs
        ),
        *(f"| `{_cell(one.name)}` | {one.records} records | `{one.sha256}` |" for one in manifest.pools),
        f"| this dataset, `{TRAIN}` | {manifest.records} records | `{manifest.train_sha256}` |",
    ]
    return [
        "## Provenance",
        "",
        "| input | holds | SHA-256 |",
        "|---|---|---|",
        *inputs,
        "",
        "The same inputs give the same bytes. A record's `run`, `model`, `case`, `arch`, `variant`, `trajectory` and "
        "`turn` name the turn that it is of; `failed_sha256` and `kernel_sha256` its kernels.",
        "",
        "| part | terms |",
        "|---|---|",
        *(f"| {_cell(name)} | {_cell(terms)} |" for name, terms in manifest.licences.items()),
        "",
    ]


def _limits() -> Iterable[str]:
    return [
        "## Limits",
        "",
        "Reasoning was written by a model that knew the repaired kernel; it was checked for quotations and for signs "
        "of that, not for truth. Correct means within the benchmark's tolerance on its workloads. Kernels are "
        "untrusted native code: run them in a sandbox.",
    ]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
