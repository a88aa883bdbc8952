"""Arguments of methods: which forms are accepted, and the errors of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kafka_actors.base.arguments import (
    API_TIMEOUT_S,
    MOST_OFFSET,
    limit_of,
    listed,
    offset_of,
    offsets_of,
    partition_of,
    partitions_of,
    seconds_of,
    times_of,
)
from kafka_actors.errors import UsageError
from kafka_actors.types import OffsetAndMetadata, TopicPartition

TP = TopicPartition("t", 1)


@pytest.mark.parametrize("value", [TP, ("t", 1), ("t", np.int64(1))])
def test_a_partition_is_a_pair_of_a_topic_and_any_kind_of_integer(value: Any) -> None:
    found = partition_of(value)
    assert (found, type(found), type(found.partition)) == (TP, TopicPartition, int)


@pytest.mark.parametrize(
    "value", ["t-1", ("t",), ("t", 1, 2), (b"t", 1), ("t", "1"), ("t", True), ["t", 1], None]
)
def test_anything_else_is_no_partition(value: Any) -> None:
    with pytest.raises(UsageError, match="is no partition: give TopicPartition"):
        partition_of(value)


def test_partitions_may_come_from_a_generator_but_one_alone_is_no_list() -> None:
    assert partitions_of(tp for tp in [("t", 1), ("a", 0)]) == [TP, TopicPartition("a", 0)]
    for value in (TP, "t", b"t", 5):
        with pytest.raises(UsageError, match="is no list of partitions"):
            partitions_of(value)


def test_a_generator_of_topics_becomes_a_list_and_all_else_is_left_for_a_later_check() -> None:
    assert listed(t for t in "ab") == ["a", "b"]
    assert [listed(value) for value in ("ab", b"ab", None, 5)] == ["ab", b"ab", None, 5]


def test_an_offset_has_63_bits() -> None:
    assert offset_of(np.int64(7), TP, "seek") == 7
    assert offset_of(MOST_OFFSET, TP, "seek") == MOST_OFFSET
    for value, why in (
        (-1, "start at 0"),
        (MOST_OFFSET + 1, "64 bits"),
        (1.0, "are ints"),
        (True, "are ints"),
    ):
        with pytest.raises(UsageError, match=f"can't seek t-1 at .*{why}"):
            offset_of(value, TP, "seek")


def test_an_array_is_no_offset() -> None:
    with pytest.raises(UsageError, match="offsets are ints"):
        offset_of(np.array([1, 2]), TP, "seek")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (5, OffsetAndMetadata(5)),
        ((5,), OffsetAndMetadata(5)),
        ((5, "note"), OffsetAndMetadata(5, "note")),
        (OffsetAndMetadata(5, "note", np.int32(3)), OffsetAndMetadata(5, "note", 3)),
    ],
)
def test_an_offset_to_commit_is_a_number_or_has_metadata_and_a_leader_epoch(
    value: Any, found: OffsetAndMetadata
) -> None:
    assert offsets_of({("t", 1): value}) == {TP: found}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([(TP, 5)], "accepts a dict by TopicPartition"),
        ({TP: ()}, "give an offset, or OffsetAndMetadata"),
        ({TP: (5, "", 1, 2)}, "give an offset, or OffsetAndMetadata"),
        ({TP: (5, None)}, "metadata is a str"),
        ({TP: (5, "", 1.5)}, "leader_epoch an int"),
        ({TP: -1}, "offsets start at 0"),
    ],
)
def test_offsets_that_cant_be_committed(values: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        offsets_of(values)


def test_times_are_milliseconds_since_1970() -> None:
    assert times_of({("t", 1): np.int64(1_700_000_000_000)}) == {TP: 1_700_000_000_000}
    for value in (-1, 1.5, "now", MOST_OFFSET + 1):
        with pytest.raises(UsageError, match="give milliseconds since 1970"):
            times_of({TP: value})
    with pytest.raises(UsageError, match="timestamps is 5"):
        times_of(5)


def test_no_timeout_is_kafkas_default_where_calls_end_and_no_limit_where_they_need_not() -> None:
    assert (seconds_of(None), limit_of(None)) == (API_TIMEOUT_S, None)
    assert (seconds_of(1500), limit_of(1500)) == (1.5, 1.5)
    for broken in (-1, "1"):
        with pytest.raises(UsageError, match="timeout_ms"):
            limit_of(broken)
