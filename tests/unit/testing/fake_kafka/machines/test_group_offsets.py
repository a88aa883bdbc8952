"""Committed and pending offsets of groups."""

from __future__ import annotations

import pytest
from fakes.fake_wire import NOW_MS

from kafka_actors.testing.fake_kafka.machines.error_answers import Refused
from kafka_actors.testing.fake_kafka.machines.group_offsets import CommittedOffset, OffsetStore, batch_bytes

KEY = ("t", 0)
PRODUCER = (7, 3)


def offset(value: int) -> CommittedOffset:
    return CommittedOffset(value, -1, "", NOW_MS)


def value_of(offsets: OffsetStore) -> int | None:
    found = offsets.of("g").get(KEY)
    return found.offset if found else None


def pending(value: int = 5) -> OffsetStore:
    offsets = OffsetStore()
    offsets.put_pending(1, PRODUCER, "g", KEY, offset(value))
    return offsets


@pytest.mark.parametrize(("committed", "found"), [(True, 5), (False, None)])
def test_pending_offsets_are_committed_by_the_transaction_s_end(committed: bool, found: int | None) -> None:
    offsets = pending()
    assert value_of(offsets) is None
    assert offsets.is_pending("g", KEY)
    assert not offsets.is_pending("g", ("t", 1))
    offsets.end(1, PRODUCER[0], 4, committed)
    assert value_of(offsets) == found
    assert not offsets.is_pending("g", KEY)


def test_the_marker_of_another_partition_or_producer_ends_nothing() -> None:
    offsets = pending()
    offsets.end(2, PRODUCER[0], 4, True)
    offsets.end(1, 8, 4, True)
    assert value_of(offsets) is None
    assert offsets.has_pending("g")


def test_the_later_one_of_two_commits_stays() -> None:
    offsets = pending()
    offsets.put("g", KEY, offset(9))
    offsets.end(1, *PRODUCER, True)
    assert value_of(offsets) == 9
    offsets.put_pending(1, PRODUCER, "g", KEY, offset(12))
    offsets.end(1, *PRODUCER, True)
    assert value_of(offsets) == 12


@pytest.mark.parametrize("how", ["offset", "group", "topic"])
def test_deleted_offsets_are_not_committed_later(how: str) -> None:
    offsets = pending()
    offsets.put("g", ("u", 0), offset(1))
    {
        "offset": lambda: offsets.remove("g", KEY),
        "group": lambda: offsets.remove_group("g"),
        "topic": lambda: offsets.remove_topic("t"),
    }[how]()
    offsets.end(1, *PRODUCER, True)
    assert value_of(offsets) is None
    assert (("u", 0) in offsets.of("g")) == (how != "group")


def test_epochs_of_producers() -> None:
    offsets = pending()
    assert offsets.has_open(1, 7, 3)
    assert not offsets.has_open(1, 7, 4)
    assert not offsets.has_open(2, 7, 3)
    offsets.end(1, 7, 4, True)
    assert not offsets.has_open(1, 7, 4)
    offsets.check_epoch(1, 7, 4)
    offsets.check_epoch(2, 7, 0)
    with pytest.raises(Refused):
        offsets.check_epoch(1, 7, 3)


@pytest.mark.parametrize(
    ("release", "topic_ids", "size"),
    [((3, 9), False, 12_347), ((4, 2), False, 12_348), ((4, 2), True, 12_366)],
)
def test_a_commit_has_the_size_of_the_batch_that_it_becomes(
    release: tuple[int, int], topic_ids: bool, size: int
) -> None:
    """`test_the_largest_commit_is_the_same` holds these against a broker."""
    texts = [("border", "\u3042" * 4_096)] * 2
    one, two = (batch_bytes("g-border", texts[:n], release, topic_ids=topic_ids) for n in (1, 2))
    assert two - one == size
    assert one == 61 + size
