"""What a session was meant to do, cell by cell."""

from ptxbench.plugin.summary import plans_of
from ptxbench.records import TurnKey
from ptxbench.report import CellKey, CellPlan


def key(model: str, trajectory: int, turn: int, variant: int = 0) -> TurnKey:
    return TurnKey(model=model, case="c", arch="h100", variant=variant, trajectory=trajectory, turn=turn)


def test_each_cell_has_its_own_plan():
    keys = [key("a", trajectory, turn) for trajectory in range(2) for turn in range(3)]
    keys += [key("a", 0, 0, variant=1), key("b", 0, 0)]
    assert plans_of(keys) == {CellKey("a", "c", "h100"): CellPlan(3, 3), CellKey("b", "c", "h100"): CellPlan(1, 1)}
    assert plans_of([]) == {}
