"""The ring of receive memory: what is lent, when it is lent again, and what is kept."""

import mmap
import os
import random
import weakref

import numpy as np
import pyarrow as pa
import pytest

from kafka_actors.net.receive_ring import IDLE_S, SMALL, SPACE_BYTES, ReceiveRing

SIZE = 2 * SMALL


class Spaces:
    """Memory as a connection actor's: the system says how much of it there is. `count`: how often it was asked for."""

    def __init__(self):
        self.count = 0
        self._files = {}

    def __call__(self, size):
        self.count += 1
        descriptor = os.memfd_create("test")
        os.ftruncate(descriptor, size)
        memory = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
        self._files[self.count] = descriptor
        weakref.finalize(memory, self._gone, self.count)
        return memory

    def _gone(self, number):
        os.close(self._files.pop(number))

    @property
    def there(self):
        return sum(os.fstat(descriptor).st_blocks * 512 for descriptor in self._files.values())


def received(view):
    """Something is received into each of its pages."""
    np.frombuffer(view, np.uint8)[:: mmap.PAGESIZE] = 1
    return view


def address(view):
    return pa.py_buffer(view).address


def test_memory_is_lent_again_when_its_last_view_is_gone():
    ring = ReceiveRing()
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
    ring = ReceiveRing()
    size = SPACE_BYTES // 4
    views = [ring.lend(size, 0.0) for _ in range(6)]
    for number, view in enumerate(views):
        view[:] = bytes([number]) * size
    assert all(view == bytes([number]) * size for number, view in enumerate(views))


@pytest.mark.parametrize("seed", range(5))
def test_nothing_that_is_in_use_is_lent_again_whatever_the_sizes(seed):
    rand, ring, lent = random.Random(seed), ReceiveRing(), []
    for number in range(1000):
        view = ring.lend(rand.randrange(SMALL, 8 * SMALL), number / 1000)
        np.frombuffer(view, np.uint64, len(view) // 8)[:: mmap.PAGESIZE // 8] = number
        lent.append((number, view))
        if len(lent) > rand.randrange(1, 8):
            before, view = lent.pop(rand.randrange(len(lent)))
            assert set(np.frombuffer(view, np.uint64, len(view) // 8)[:: mmap.PAGESIZE // 8]) == {before}


def test_a_size_beyond_the_space_gets_one_of_its_own_which_is_used_again():
    ring = ReceiveRing(made := Spaces())
    ring.lend(SIZE, 0.0)
    large = 2 * SPACE_BYTES
    for _ in range(3):
        assert len(ring.lend(large, 0.0)) == large
    assert made.count == 2


def test_small_ones_come_from_the_allocator_and_let_go_of_the_space_in_the_end():
    ring = ReceiveRing(made := Spaces())
    ring.lend(SMALL - 1, 0.0)
    assert made.count == 0
    assert ring.gives_back_in_s(0.0) == float("inf")
    received(ring.lend(SIZE, 0.0))
    ring.lend(SMALL - 1, IDLE_S)
    assert made.there == SIZE
    assert [ring.gives_back_in_s(at) for at in (1.0, IDLE_S + 1)] == [IDLE_S - 1, 0.0]
    ring.lend(1, IDLE_S + 1)
    assert made.there == 0
    assert ring.gives_back_in_s(IDLE_S + 1) == float("inf")


def give_back(memory, start, end):
    memory.base.obj.madvise(mmap.MADV_REMOVE, start, end - start)


def test_memory_between_parts_that_are_in_use_is_given_back_and_what_is_in_them_stays():
    ring = ReceiveRing(made := Spaces(), give_back)
    views = [ring.lend(SIZE, 0.0) for _ in range(6)]
    for number, view in enumerate(views):
        view[:] = bytes([number + 1]) * SIZE
    kept = {number: views[number] for number in (1, 4)}
    del view, views
    assert made.there >= 6 * SIZE
    ring.trim(1.0)
    assert made.there == 2 * SIZE
    assert all(view == bytes([number + 1]) * SIZE for number, view in kept.items())
    assert address(ring.lend(SIZE, 1.0)) < address(kept[1])  # it is lent again
    kept.clear()
    ring.trim(2.0)
    assert made.there == 0


def test_a_space_that_can_only_be_given_back_as_a_whole_stays_while_a_part_is_in_use():
    ring = ReceiveRing(made := Spaces())
    first, second = received(ring.lend(SIZE, 0.0)), received(ring.lend(SIZE, 0.0))
    del first
    ring.trim(1.0)
    assert made.there >= 2 * SIZE
    del second
    ring.trim(2.0)
    assert made.there == 0


def sizes(kind, rand, most):
    """Of responses without end: most of them full, of every size, few of them large, large and small in turn, all alike."""
    while True:
        if kind == "alike":
            yield int(0.9 * most)
        elif kind == "two":
            yield rand.choice((most, SIZE))
        elif kind == "few large":
            yield int(min(most, SMALL + rand.expovariate(4 / most)))
        elif kind == "mostly full" and rand.random() < 0.8:
            yield int(most * rand.uniform(0.85, 1))
        else:
            yield rand.randrange(SMALL, most)


@pytest.mark.parametrize("kind", ["mostly full", "any", "few large", "two", "alike"])
def test_memory_is_used_again_for_other_sizes_and_bounded_by_what_is_lent_at_the_same_time(kind):
    """A worker's credit bounds what is lent; what is kept beside it would be beyond the worker's budget."""
    rand = random.Random(1)
    ring = ReceiveRing(made := Spaces())
    credit, most, lent, there = 32 * SMALL, 10 * SMALL, [], []
    for number, size in zip(range(1_000), sizes(kind, rand, most), strict=False):
        while sum(map(len, lent)) + size > credit:
            lent.pop(0 if rand.random() < 0.7 else rand.randrange(len(lent)))
        lent.append(received(ring.lend(size, number / 1000)))
        there.append(made.there)
    assert made.count <= 0.06 * len(there)
    assert sum(there) / len(there) <= 1.5 * credit
    assert max(there) <= 1.8 * credit


@pytest.mark.parametrize("most", [16.0, 10.7, 10.1, 5.3])
@pytest.mark.parametrize("at_once", [2, 3, 4, 6])
@pytest.mark.parametrize("smallest", [0.99, 0.9, 0.5])
def test_full_responses_are_received_into_memory_that_was_used_before(most, at_once, smallest):
    """The responses of a backlog: each is nearly as large as it may be, `most` MiB, and some are in use at the same time."""
    rand, mib = random.Random(1), 1024 * 1024
    ring, lent = ReceiveRing(made := Spaces()), []
    for number in range(1_000):
        if len(lent) == at_once:
            lent.pop(rand.randrange(2))
        lent.append(ring.lend(int(most * mib * rand.uniform(smallest, 1)), number / 100))
    assert made.count <= (5 if smallest >= 0.9 else 0.03 * 1_000)


@pytest.mark.parametrize("most", [16.0, 10.7, 10.1, 5.3])
def test_of_full_responses_no_more_memory_is_used_than_is_lent_at_the_same_time(most):
    rand, mib = random.Random(1), 1024 * 1024
    ring, lent = ReceiveRing(made := Spaces()), []
    for number in range(200):
        del lent[:-1]
        lent.append(received(ring.lend(int(most * mib * rand.uniform(0.9, 1)), number / 100)))
    assert made.there <= 2.2 * most * mib


def test_after_large_ones_memory_shrinks_to_what_is_lent_then():
    ring = ReceiveRing(made := Spaces())
    received(ring.lend(100 * SMALL, 0.0))
    for number in range(1000):
        received(ring.lend(SIZE, number / 1000))
    assert made.there <= 3 * SIZE
    assert made.count <= 3
