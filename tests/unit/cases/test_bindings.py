"""``ptxbench.yaml`` of a collection."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.cases.bindings import BINDINGS_FILE
from ptxbench.cases.trace_sets import load_collections
from ptxbench.errors import InputError
from tests.support.trace_sets import RMSNORM, ROOT, copy_small

UUID = "d9a08d1f-69e1-57ab-8fb8-1c53fb864161"
WHOLE = f"""\
schema_version: 1
bindings:
  - definition: {RMSNORM}
    workload: {UUID}
    tolerance: {{atol: 0.5, rtol: 0}}
  - definition: {RMSNORM}
    tolerance: {{atol: 0.001, rtol: 0.001}}
    flops: 4*batch_size*hidden_size
    bytes: 2*(2*batch_size*hidden_size + hidden_size)
    shrunk_axes: {{batch_size: 16}}
"""


def load(tmp_path: Path, text: str) -> tuple[Path, dict[str, object]]:
    collection = copy_small(tmp_path)
    (collection / BINDINGS_FILE).write_text(text)
    suite = load_collections(ROOT, [collection]).suite
    return collection, {case.name.rpartition(".")[2]: case for case in suite.cases("h100")}


def test_the_workload_comes_before_the_definition(tmp_path: Path) -> None:
    _, cases = load(tmp_path, WHOLE)
    captured, drawn = cases["d9a08d1f"], cases["f5b14411"]
    assert captured.tolerance.atol == 0.5  # type: ignore[attr-defined]
    assert drawn.tolerance.atol == 0.001  # type: ignore[attr-defined]
    for case, batch in ((captured, 512), (drawn, 33)):
        assert case.flops == 4 * batch * 2048  # type: ignore[attr-defined]
        assert case.bytes == 2 * (2 * batch * 2048 + 2048)  # type: ignore[attr-defined]
    assert drawn.shrunk().axes["batch_size"] == 16  # type: ignore[attr-defined]


def test_a_link_to_elsewhere_is_refused(tmp_path: Path) -> None:
    collection = copy_small(tmp_path)
    (tmp_path / "other.yaml").write_text(WHOLE)
    (collection / BINDINGS_FILE).symlink_to(tmp_path / "other.yaml")
    with pytest.raises(InputError, match=rf"{BINDINGS_FILE}: expected a file in .*; found a link to"):
        load_collections(ROOT, [collection])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema_version: 1", "schema_version: 2", "`schema_version`: expected 1; found 2"),
        (f"- definition: {RMSNORM}\n    workload", "- definition: rmsnorm\n    workload", r"bindings\[0\].definition"),
        (UUID, "d9a08d1f", r"`bindings\[0\].workload`: expected a workload's uuid of the collection"),
        ("atol: 0.5", "atol: -1", r"`bindings\[0\].tolerance.atol`"),
        ("atol: 0.5", "atol: 1e300", r"`bindings\[0\].tolerance.atol`: expected a number less than or equal to 1"),
        ("4*batch_size", "4*batch", r":8: `bindings\[1\].flops`: expected axis names .*; found 'batch'"),
        ("{batch_size: 16}", "{batch_size: 34}", r":10: `bindings\[1\].shrunk_axes.batch_size`: expected var axes"),
        ("{batch_size: 16}", "{hidden_size: 16}", r":10: `bindings\[1\].shrunk_axes.hidden_size`: expected var axes"),
        (
            "    flops:",
            "    made: {function: f, inputs: [eps], arguments: {}}\n    flops:",
            r":8: `bindings\[1\].made.inputs\[0\]`: expected names of tensors \(hidden_states, weight\); found eps",
        ),
        (
            "tolerance: {atol: 0.5, rtol: 0}",
            "made: {function: f, inputs: [weight], arguments: {}}",
            r":5: `bindings\[0\].made.function`: expected a function of the reference \(run\); found 'f'",
        ),
        ("schema_version: 1", f"schema_version: {'1' * 5000}", ":1: .*an integer of too many digits to read"),
        ("    flops:", "    flop:", r"`bindings\[1\].flop`: expected one of the keys"),
    ],
)
def test_refuses(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in WHOLE
    with pytest.raises(InputError, match=rf"{BINDINGS_FILE}.*{message}"):
        load(tmp_path, WHOLE.replace(old, new, 1))
