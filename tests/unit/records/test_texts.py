"""Texts of others lose the folders of this machine, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.records.texts import placeless


def test_paths_of_this_machine_lose_their_folders(tmp_path: Path) -> None:
    assert placeless(f"[Errno 2] No such file or directory: '{tmp_path}/a b.txt'") == (
        "[Errno 2] No such file or directory: 'a b.txt'"
    )
    assert placeless(f"{tmp_path}/turn0.json: expected, ({tmp_path}/x/)") == "turn0.json: expected, (x)"


@pytest.mark.parametrize(
    "text", ["http://127.0.0.1:80/v1/models", "404 for /v1/chat/completions", "16/32 and/or/not", "see ./tmp/x", "/tmp"]
)
def test_what_is_no_path_of_it_stays(text: str) -> None:
    assert placeless(text) == text
