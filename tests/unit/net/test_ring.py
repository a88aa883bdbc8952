"""The ring of receive buffers: what is lent, when it is lent again, and what is kept."""

import random
import weakref

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


@pytest.mark.parametrize("size", [2 * SIZE, 7 * SIZE])
def test_another_size_gets_memory_of_its_own(size):
    asked = []

    def allocate(size):
        asked.append(size)
        return np.zeros(size, np.uint8)

    ring = Ring(allocate)
    ring.lend(SIZE if size == 2 * SIZE else 16 * SIZE, 0.0)
    assert len(ring.lend(size, 0.0)) == size
    assert len(asked) == 2


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


@pytest.mark.parametrize("seed", range(5))
def test_memory_is_kept_for_what_is_lent_at_the_same_time_and_not_for_every_size(seed):
    """A worker's credit bounds what is lent; what is kept beside it would be beyond the worker's budget."""
    rand = random.Random(seed)
    ring = Ring(made := Allocating())
    credit, lent, most = 32 * SMALL, [], 0
    for now in range(2_000):
        full = rand.random() < 0.8
        size = int(10 * SMALL * rand.uniform(0.85, 1)) if full else rand.randrange(SMALL, 10 * SMALL)
        while sum(map(len, lent)) + size > credit:
            lent.pop(0)
        lent.append(ring.lend(size, now / 1000))
        most = max(most, made.alive())
    assert most <= 1.4 * credit
    assert made.count < 500, "most of it is used again"


class Allocating:
    """Memory that says how much of it is there."""

    def __init__(self):
        self.count = 0
        self._made = []

    def __call__(self, size):
        self.count += 1
        memory = np.empty(size, np.uint8)
        self._made.append(weakref.ref(memory))
        return memory

    def alive(self):
        self._made = [made for made in self._made if made() is not None]
        return sum(len(made()) for made in self._made)
