"""Hashes of every prompt of the primary suite, so that no text changes unnoticed.

``python -m tests.unit.agent.prompt_pins`` writes them anew, after the version of what changed was raised.
"""

import hashlib
from pathlib import Path
from typing import Any

import yaml

from ptxbench.agent.prompt import TEMPLATE_VERSION, first_messages
from ptxbench.cases import load_suite
from ptxbench.packs import LEVELS, load_pack, open_pack
from ptxbench.records import prompt_sha256
from tests.unit.factories import ROOT

PINS = Path(__file__).with_suffix(".yaml")


def current() -> dict[str, Any]:
    """The versions of today, and the hash of each prompt: of the level ``full`` for each case and variant, and of each
    level once."""
    suite = load_suite(ROOT, "primary")
    packs = {arch: load_pack(ROOT, arch, "full") for arch in suite.archs}
    prompts: dict[str, str] = {}
    for case in suite.table:
        arch = case.arch.name
        for variant in case.variants:
            messages = first_messages(case, variant, packs[arch])
            prompts[f"{arch} {case.name} {variant}"] = prompt_sha256(messages)
    knowledge = {
        f"{arch} {level}": hashlib.sha256(load_pack(ROOT, arch, level).text.encode()).hexdigest()
        for arch in suite.archs
        for level in LEVELS
    }
    knowledge |= {
        f"{arch} guidance": hashlib.sha256(load_pack(ROOT, arch, "params", guidance=True).text.encode()).hexdigest()
        for arch in suite.archs
        if open_pack(ROOT, arch).file.guidance
    }
    versions = {arch: pack.version for arch, pack in packs.items()}
    return {"template": TEMPLATE_VERSION, "packs": versions, "knowledge": knowledge, "prompts": prompts}


def write() -> None:
    """Raises SystemExit where a prompt changed and no version did."""
    found, pinned = current(), yaml.safe_load(PINS.read_text()) if PINS.exists() else {}
    versions = ("template", "packs")
    if pinned and pinned != found and all(pinned[name] == found[name] for name in versions):
        raise SystemExit("prompts changed and no version did: raise one first")
    PINS.write_text(f"# Written by python -m tests.unit.agent.prompt_pins\n{yaml.safe_dump(found, sort_keys=False)}")


if __name__ == "__main__":
    write()
