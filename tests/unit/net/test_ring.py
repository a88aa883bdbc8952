"""The ring of receive buffers: what is lent, when it is lent again, and what is kept."""

import numpy as np
import pyarrow as pa
import pytest

from kafka_actors.net.ring import IDLE_S, KEPT_BYTES, SMALL, Ring

SIZE = 2 * SMALL


def address(view):
    return pa.py_buffer(view).address


def test_memory_is_lent_again_when_its_last_view_is_gone():
    ring = Ring()
    view = ring.lend(SIZE, 0.0)
    first, part = address(view), view[5:10]
    assert len(view) == SIZE
    del view
    assert address(ring.lend(SIZE, 0.0)) != first
    buffer = pa.py_buffer(part)
    del part
    assert address(ring.lend(SIZE, 0.0)) != first
    del buffer
    assert address(ring.lend(SIZE - 1, 0.0)) == first


def test_what_is_in_use_is_never_lent_again_however_many_there_are():
    ring = Ring()
    size = KEPT_BYTES // 4
    views = [ring.lend(size, 0.0) for _ in range(6)]
    for number, view in enumerate(views):
        view[:] = bytes([number]) * size
    assert len({address(view) for view in views}) == len(views)
    assert all(view == bytes([number]) * size for number, view in enumerate(views))
    assert sum(len(memory) for memory, _ in ring._kept) <= KEPT_BYTES


@pytest.mark.parametrize("size", [2 * SIZE, SIZE // 8 + SMALL // 2])
def test_another_size_gets_memory_of_its_own(size):
    ring = Ring()
    first = address(ring.lend(SIZE if size > SIZE else 16 * SIZE, 0.0))
    lent = ring.lend(size, 0.0)
    assert (address(lent) != first, len(lent)) == (True, size)


def test_large_ones_come_from_where_the_ring_is_told_to_take_them():
    asked = []

    def allocate(size):
        asked.append(size)
        return np.zeros(size, np.uint8)

    ring = Ring(allocate)
    ring.lend(SMALL - 1, 0.0)
    assert asked == []
    first = ring.lend(SIZE, 0.0)
    assert asked == [SIZE + SIZE // 8]
    del first
    ring.lend(SIZE, 0.0)
    assert len(asked) == 1


def test_small_ones_are_not_kept_and_let_go_of_the_others_in_the_end():
    ring = Ring()
    ring.lend(SIZE, 0.0)
    ring.lend(SMALL - 1, IDLE_S)
    assert len(ring._kept) == 1
    ring.lend(1, IDLE_S + 1)
    assert ring._kept == []
