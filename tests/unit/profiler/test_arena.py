import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.profiler.arena import (
    ALIGNMENT,
    ELEMENT_BYTES,
    GUARD_BYTES,
    WORD,
    Arena,
    Slot,
    TensorSpec,
    align,
    element_count,
    guard_words,
    layout,
)

SHAPES = st.lists(st.integers(0, 70), max_size=4).map(tuple)
SPECS = st.lists(
    st.builds(TensorSpec, st.text(max_size=3), SHAPES, st.sampled_from(sorted(ELEMENT_BYTES)), st.booleans()),
    max_size=6,
).map(tuple)


def watched_bytes(slots: tuple[Slot, ...], nbytes: int) -> list[range]:
    return [range(band.start * WORD, band.stop * WORD) for band in guard_words(slots, nbytes)]


@pytest.mark.parametrize(("shape", "count"), [((), 1), ((0, 5), 0), ((3,), 3), ((2, 3, 4), 24)])
def test_element_count(shape: tuple[int, ...], count: int) -> None:
    assert element_count(shape) == count


@given(st.integers(0, 10**12), st.sampled_from([1, 8, 256, 4096]))
def test_align_rounds_up_to_the_next_multiple(value: int, to: int) -> None:
    assert align(value, to) % to == 0
    assert 0 <= align(value, to) - value < to


@given(SPECS)
def test_tensors_are_aligned_in_order_and_far_apart(specs: tuple[TensorSpec, ...]) -> None:
    slots, nbytes = layout(specs)
    assert tuple(slot.spec for slot in slots) == specs
    assert nbytes % ALIGNMENT == 0
    end = 0
    for slot in slots:
        assert slot.offset % ALIGNMENT == 0
        assert slot.nbytes == math.prod(slot.spec.shape) * ELEMENT_BYTES[slot.spec.dtype]
        assert slot.offset - end >= GUARD_BYTES
        end = slot.offset + slot.nbytes
    assert nbytes - end >= GUARD_BYTES


@given(SPECS)
def test_every_word_that_is_no_tensor_is_guarded(specs: tuple[TensorSpec, ...]) -> None:
    slots, nbytes = layout(specs)
    bands = watched_bytes(slots, nbytes)
    # Alternating bands and tensors cover the arena; only the rest of a tensor's last word lies in neither.
    cursor = 0
    for band, slot in zip(bands, slots, strict=False):
        assert 0 <= band.start - cursor < WORD
        assert band.stop == slot.offset
        cursor = slot.offset + slot.nbytes
    assert 0 <= bands[-1].start - cursor < WORD
    assert bands[-1].stop == nbytes


@given(SPECS)
def test_no_guard_lies_in_a_tensor(specs: tuple[TensorSpec, ...]) -> None:
    slots, nbytes = layout(specs)
    for band in watched_bytes(slots, nbytes):
        for slot in slots:
            assert band.stop <= slot.offset or band.start >= slot.offset + slot.nbytes


@given(SPECS)
def test_guards_are_wide_on_both_sides_of_every_tensor(specs: tuple[TensorSpec, ...]) -> None:
    slots, nbytes = layout(specs)
    bands = watched_bytes(slots, nbytes)
    assert len(bands) == len(slots) + 1
    assert all(len(band) > GUARD_BYTES - WORD for band in bands)


def test_neighbours_of_an_odd_sized_tensor() -> None:
    slots, nbytes = layout((TensorSpec("A", (3,), "bfloat16", False), TensorSpec("C", (5,), "float32", True)))
    a, c = slots
    assert (a.offset, a.nbytes) == (GUARD_BYTES, 6)
    assert c.offset == align(GUARD_BYTES + 6 + GUARD_BYTES, ALIGNMENT)
    first, middle, last = guard_words(slots, nbytes)
    assert (first.start, first.stop * WORD) == (0, a.offset)
    assert (middle.start * WORD, middle.stop * WORD) == (a.offset + 8, c.offset)
    assert (last.start * WORD, last.stop * WORD) == (c.offset + 24, nbytes)


def test_nothing_of_the_last_user_is_left_for_the_next() -> None:
    torch = pytest.importorskip("torch")
    slots, nbytes = layout((TensorSpec("A", (5,), "float32", False), TensorSpec("C", (3,), "bfloat16", True)))
    arena = Arena.__new__(Arena)
    arena.bytes = torch.full((nbytes,), 7, dtype=torch.uint8)
    arena._words = arena.bytes.view(torch.int64)
    arena._guard_index = torch.cat([torch.arange(band.start, band.stop) for band in guard_words(slots, nbytes)])
    arena._canary = torch.empty_like(arena._guard_index)
    waited: list[bool] = []
    arena.wait = lambda: waited.append(bool(arena.guards_changed()))  # type: ignore[method-assign]
    arena.scrub()
    assert waited == [False], "guard bands are what they must be, and the device has done it"
    assert not any(arena.bytes[slot.offset : slot.offset + slot.nbytes].any() for slot in slots)
