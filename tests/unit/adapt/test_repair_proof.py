"""Repairs of a file are held to the run that they are of, on real ones that were measured."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ptxbench.adapt.build import Order, build
from ptxbench.adapt.collect import Sources
from ptxbench.adapt.model import RATIONALES, REPAIRS
from ptxbench.adapt.rationale_session import read_kernels
from ptxbench.adapt.recipe import find_recipe
from ptxbench.adapt.repair_proof import read_repairs
from ptxbench.errors import InputError
from tests.unit.factories import ROOT

BASE = ROOT / "generated" / "examples" / "claude-base-designs"
RUN = ROOT / "generated" / "examples" / "claude-base-designs-repair"
Line = dict[str, Any]
Edit = Callable[[Line], None]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RUN, tmp_path / "repairs"))


def edit(path: Path, change: Edit) -> None:
    """The first record of a file, as somebody or another version would have left it."""
    first, *others = [json.loads(line) for line in path.read_text().splitlines()]
    change(first)
    path.write_text("".join(f"{json.dumps(each)}\n" for each in (first, *others)))


def wrong(repair: Line) -> None:
    repair["verdict"]["outcome"] = "numerical_error"


def faster(repair: Line) -> None:
    repair["verdict"]["speedup"] = 9.9


def another_kernel(repair: Line) -> None:
    repair["source"] += "// more\n"


def another_turn(repair: Line) -> None:
    repair["turn"]["key"]["turn"] = 3


def dataset(*folders: Path) -> int:
    recipe = find_recipe(str(RUN / "recipe.yaml"))
    return len(build(Order(Sources(ROOT, [str(BASE)]), recipe, folders)).records)


def test_what_its_run_says_is_taken(run: Path) -> None:
    assert len(read_repairs(run / REPAIRS)) == len(read_kernels(run / REPAIRS)) == 5
    assert dataset(run, run / "rationales") == 5
    renamed = run.rename(run.with_name("another-name"))
    assert dataset(renamed, renamed / "rationales") == 5


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (wrong, "expected a kernel that was judged correct, found numerical_error"),
        (faster, "expected the verdict that the turn has there, found another speedup"),
        (another_kernel, "expected the kernel of the turn there, found another"),
        (another_turn, "expected the turn in the run there, found none"),
    ],
)
def test_what_its_run_does_not_say_is_refused(run: Path, change: Edit, says: str) -> None:
    """Before a teacher is paid for it, too."""
    edit(run / REPAIRS, change)
    for use in (read_repairs, read_kernels):
        with pytest.raises(InputError, match=f"repairs.jsonl: .*{says}"):
            use(run / REPAIRS)
    with pytest.raises(InputError, match=says):
        dataset(run, run / "rationales")


def test_a_turn_that_was_judged_otherwise_since_is_no_repair(run: Path) -> None:
    (turn,) = run.glob("turns/*gemm*/turn0.json")
    record = json.loads(turn.read_text())
    record["verdict"] |= {"outcome": "numerical_error", "speedup": None}
    turn.write_text(json.dumps(record))
    with pytest.raises(InputError, match="found another outcome, speedup"):
        dataset(run, run / "rationales")


def test_a_file_elsewhere_has_no_run_to_be_held_to(run: Path, tmp_path: Path) -> None:
    edit(run / REPAIRS, faster)
    shutil.copy(run / REPAIRS, tmp_path)
    assert len(read_repairs(tmp_path / REPAIRS)) == 5
    begun = json.loads((run / "run.json").read_text()) | {"created_at": "2026-11-01T00:00:00+00:00"}
    (run / "run.json").write_text(json.dumps(begun))
    assert len(read_repairs(run / REPAIRS)) == 5, "of another run"


@pytest.mark.parametrize("change", [faster, another_kernel])
def test_a_rationale_of_another_repair_is_refused(run: Path, change: Edit) -> None:
    """As after a failure was repaired once more: the rationale leads to a kernel that is not kept any longer."""
    edit(run / "rationales" / RATIONALES, lambda line: change(line["repair"]))
    with pytest.raises(InputError, match=r"rationale \w+: expected .* found others; explain the repairs again"):
        dataset(run, run / "rationales")
    assert dataset(run / "rationales") == 5, "without the repairs nothing tells"


def test_of_two_repairs_a_rationale_may_be_of_either(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(run / REPAIRS, other)
    edit(other / REPAIRS, another_kernel)
    assert dataset(run, other, run / "rationales") == 5
