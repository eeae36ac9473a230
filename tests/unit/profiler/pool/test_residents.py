from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ptxbench.profiler.footprint import PROCESSES_BYTES, STATE_SHARE
from ptxbench.profiler.pool.residents import CANDIDATE_BYTES, Need, Residents

GIB = 1 << 30


def test_least_recently_used_goes_first():
    memory = Residents(100 * GIB)
    for name in "abc":
        memory.use(name, Need(19 * GIB, GIB))
    memory.use("a", Need(19 * GIB, GIB))
    assert memory.evicted_for("d", Need(19 * GIB, GIB)) == ("b",)
    memory.use("d", Need(19 * GIB, GIB))
    assert memory.names == ("c", "a", "d")
    assert memory.evicted_for("a", Need(19 * GIB, GIB)) == ()


def test_building_needs_room_too():
    memory = Residents(100 * GIB)
    memory.use("a", Need(30 * GIB, 0))
    assert memory.evicted_for("b", Need(25 * GIB, 30 * GIB)) == ()
    assert memory.evicted_for("b", Need(25 * GIB, 45 * GIB)) == ("a",)


def test_what_the_oracle_reports_is_so():
    memory = Residents(100 * GIB)
    memory.use("a", Need(GIB, 0))
    memory.reported({"b": 2 * GIB, "c": 3 * GIB})
    assert memory.names == ("b", "c")
    assert memory.nbytes == 5 * GIB
    assert "a" not in memory
    memory.reported({})
    assert memory.nbytes == 0


@given(
    st.integers(1, 200),
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 80), st.integers(0, 40)), max_size=40),
)
def test_what_was_admitted_fits(gib: int, uses: list[tuple[str, int, int]]):
    memory = Residents(gib * GIB)
    sizes: dict[str, Need] = {}
    for name, held, building in uses:
        need = sizes.setdefault(name, Need(held * GIB, building * GIB))
        if not memory.admits(need):
            continue
        new = name not in memory
        memory.use(name, need)
        everything = memory.nbytes + PROCESSES_BYTES + CANDIDATE_BYTES + (need.building if new else 0)
        assert everything <= gib * GIB
        assert memory.nbytes <= max(STATE_SHARE * gib * GIB, need.held)
        assert memory.names[-1] == name
