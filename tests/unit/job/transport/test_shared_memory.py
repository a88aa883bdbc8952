"""Memory that two processes have: where a response lies, when it is given back, and what becomes of the pieces.

Both sides live in this process here; the descriptors and the mappings are real.
"""

import gc
import os

import pytest

from kafka_actors.job.transport.shared_memory import MappedMemory, SharedMemory

SIZE = 3 * 4096


def descriptors():
    """Files without a name that this process has open, by itself or by a mapping."""
    gc.collect()  # what tests before have left
    named = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            named.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            pass
    return sum(name.startswith("/memfd:kafka-actors") for name in named)


class Both:
    """The two sides, and what goes between them."""

    def __init__(self):
        self.shared, self.mapped = SharedMemory(), MappedMemory()
        self.news = []

    def share(self, *views):
        """What the reader has of them."""
        region = self.shared.share(views)
        self.tell()
        return None if region is None else self.mapped.views(region, [len(view) for view in views])

    def tell(self):
        added, descriptors, removed = self.shared.changes()
        self.news.append((len(added), len(removed)))
        self.mapped.update(added, descriptors, removed)

    def release(self):
        released = self.mapped.released()
        self.shared.release(released)
        return len(released)


def written(shared, size=SIZE):
    view = shared.allocate(size).data
    view[:] = bytes(range(256)) * (size // 256)
    return view


def test_what_one_side_writes_the_other_reads_in_place():
    both = Both()
    view = written(both.shared)
    seen = both.share(view[10:20], view[20:20], view[300:700])
    assert [bytes(part) for part in seen] == [bytes(view[10:20]), b"", bytes(view[300:700])]
    view[10] = 99
    assert seen[0][0] == 99
    with pytest.raises(TypeError):
        seen[0][0] = 1  # the reader only reads


def test_it_is_given_back_when_the_last_view_is_dropped_and_not_before():
    both = Both()
    view = written(both.shared)
    first, second = both.share(view[:10], view[10:20]), both.share(view[20:30])
    assert both.release() == 0
    kept = first.pop()
    del first
    assert both.release() == 0
    del kept
    assert both.release() == 1
    del second
    assert both.release() == 1
    assert both.release() == 0


def test_pages_that_are_given_back_are_gone_on_both_sides_and_those_they_only_touch_stay():
    both = Both()
    view = written(both.shared)
    (seen,) = both.share(view)
    both.shared.give_back(view.obj, 1, SIZE - 1)  # the second page is wholly in between
    assert [bytes(seen[at : at + 2]) for at in (0, 4096, 8192)] == [b"\0\1", b"\0\0", b"\0\1"]
    both.shared.give_back(view.obj, 8192, 8200)
    assert bytes(seen[8192:8194]) == b"\0\1"


def test_a_view_that_is_lent_keeps_its_memory_from_being_used_again():
    both = Both()
    view = written(both.shared)
    seen = both.share(view[:10])
    del view
    gc.collect()
    both.tell()
    assert both.news == [(1, 0), (0, 0)]
    del seen
    both.release()
    gc.collect()
    both.tell()
    assert both.news[-1] == (0, 1)


def test_a_piece_is_told_of_once_and_what_both_have_forgotten_is_gone():
    before = descriptors()
    both = Both()
    view = written(both.shared)
    seen = [both.share(view[at : at + 10]) for at in range(0, 100, 10)]
    assert both.news == [(1, 0)] + [(0, 0)] * 9
    assert descriptors() > before
    seen.clear()
    del view
    both.release()
    both.tell()
    gc.collect()
    assert descriptors() == before


def test_a_reader_goes_on_with_what_the_other_side_has_forgotten():
    """As when a connection actor dies."""
    both = Both()
    seen = both.share(written(both.shared)[256:266])
    del both.shared
    gc.collect()
    assert bytes(seen[0]) == bytes(range(10))


def test_a_piece_that_was_never_told_of_leaves_nothing_open():
    before = descriptors()
    shared = SharedMemory()
    view = written(shared)
    assert descriptors() > before
    del view
    assert shared.changes() == ([], [], [])
    assert descriptors() == before


def test_what_nobody_gave_back_goes_with_its_owner():
    """As when a worker dies."""
    before = descriptors()
    shared = SharedMemory()
    assert shared.share([written(shared)[:10]]) is not None
    for descriptor in shared.changes()[1]:
        os.close(descriptor)
    assert descriptors() > before
    del shared
    gc.collect()
    assert descriptors() == before


def test_what_lies_elsewhere_has_no_place():
    both = Both()
    written(both.shared)
    assert both.share(b"abc", memoryview(b"def")) is None
    assert both.shared.share([]) is None
    assert both.shared.share([memoryview(b"")]) is None


def test_no_memory_is_said_as_such(monkeypatch):
    def refuse(*_):
        raise OSError(12, "Cannot allocate memory")

    before = descriptors()
    monkeypatch.setattr("kafka_actors.job.transport.shared_memory.os.ftruncate", refuse)
    with pytest.raises(MemoryError, match="4096 bytes of shared memory: Cannot allocate memory"):
        SharedMemory().allocate(4096)
    assert descriptors() == before


def test_what_comes_without_its_descriptors_is_refused_and_leaves_nothing_open():
    before = descriptors()
    both = Both()
    view = written(both.shared)
    added, found, removed = both.shared.changes()
    with pytest.raises(ValueError, match="shorter"):
        both.mapped.update([*added, (99, 10)], found, removed)
    del view
    both.mapped = MappedMemory()
    gc.collect()
    assert descriptors() == before
