"""Plans of resets, and the lag of groups."""

from typing import Any

import pytest

from kafka_actors.admin import GroupDescription, MemberDescription, OffsetReset, OffsetTarget, PartitionLag
from kafka_actors.admin.machines.offsets import lag_rows, plan_reset
from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.errors import UsageError
from kafka_actors.types import OffsetAndMetadata, TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def _plan(target: OffsetTarget, by_time: dict[TopicPartition, int] | None = None) -> list[OffsetReset]:
    """The log of A holds 10 to 100 and 40 is committed; the log of B holds 0 to 7 and nothing is."""
    return plan_reset(
        "g",
        target,
        [B, A],
        committed={A: OffsetAndMetadata(40)},
        starts={A: 10, B: 0},
        ends={A: 100, B: 7},
        by_time=by_time or {},
    )


@pytest.mark.parametrize(
    ("target", "new"),
    [
        (OffsetTarget.earliest(), [10, 0]),
        (OffsetTarget.latest(), [100, 7]),
        (OffsetTarget.current(), [40, 7]),
        (OffsetTarget.offset(50), [50, 7]),
        (OffsetTarget.offset(5), [10, 5]),
        (OffsetTarget.offset(7), [10, 7]),
        (OffsetTarget.explicit({A: 9, B: 3}), [10, 3]),
    ],
)
def test_offsets_stay_within_the_log_and_partitions_come_in_order(
    target: OffsetTarget, new: list[int]
) -> None:
    plan = _plan(target)
    assert [(r.topic, r.partition, r.new_offset) for r in plan] == [
        ("orders", 0, new[0]),
        ("orders", 1, new[1]),
    ]
    assert [r.current_offset for r in plan] == [40, None]


def test_what_is_not_literally_what_was_asked_for_is_said() -> None:
    assert [r.note for r in _plan(OffsetTarget.offset(5))] == ["5 is before the start of the log", None]
    assert [r.note for r in _plan(OffsetTarget.offset(100))] == [None, "100 is behind the end of the log"]
    assert [r.note for r in _plan(OffsetTarget.current())] == [
        None,
        "nothing is committed: the end of the log",
    ]


def test_a_time_without_a_record_so_young_is_the_end_of_the_log() -> None:
    plan = _plan(OffsetTarget.timestamp(1_700_000_000_000), {A: 33})
    assert [(r.new_offset, r.note) for r in plan] == [
        (33, None),
        (7, "no record is as young as that: the end of the log"),
    ]


@pytest.mark.parametrize(("by", "new"), [(3, 43), (-3, 37), (-31, 10), (60, 100), (61, 100), (0, 40)])
def test_a_shift_goes_from_what_is_committed(by: int, new: int) -> None:
    [reset] = plan_reset(
        "g",
        OffsetTarget.shift_by(by),
        [A],
        committed={A: OffsetAndMetadata(40)},
        starts={A: 10},
        ends={A: 100},
        by_time={},
    )
    assert reset.new_offset == new


def test_a_shift_of_nothing_committed_names_the_partition() -> None:
    with pytest.raises(UsageError, match=r"orders-1 can't be shifted: the group has no committed offset"):
        _plan(OffsetTarget.shift_by(1))


def test_explicit_offsets_take_pairs_like_partitions() -> None:
    assert OffsetTarget.explicit({("orders", 0): 5}) == OffsetTarget.explicit({A: 5})
    with pytest.raises(UsageError, match="'orders', a str, is no partition"):
        OffsetTarget.explicit({"orders": 5})


@pytest.mark.parametrize(
    ("make", "value", "says"),
    [
        (OffsetTarget.offset, "x", "offset is 'x', a str: give an int"),
        (OffsetTarget.shift_by, 1.5, "by is 1.5, a float: give an int"),
        (OffsetTarget.timestamp, "2026-01-31", "milliseconds is '2026-01-31', a str: give an int"),
        (OffsetTarget.timestamp, -1, "milliseconds is -1: give milliseconds since 1970"),
        (OffsetTarget.timestamp, 2**63, "give milliseconds since 1970"),
        (OffsetTarget.explicit, [A], "offsets is .*a list: accepts a dict by TopicPartition"),
        (OffsetTarget.explicit, {A: "5"}, "the offset of orders-0 is '5', a str: give an int"),
    ],
)
def test_a_target_that_is_no_number_is_named(make: Any, value: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make(value)


# ---------------------------------------------------------------- lag

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
BUSY = MemberDescription("m-1", None, "app", "/10.0.0.1", (T0, U0))
IDLE = MemberDescription("m-2", "i", "app", "/10.0.0.2", ())
GROUP = GroupDescription(
    "g", "Classic", "Stable", "consumer", "range", BrokerMetadata(1, "b", 9092), (IDLE, BUSY)
)


def test_each_partition_has_its_member_and_what_is_not_known_is_none() -> None:
    rows = lag_rows(GROUP, {T0: OffsetAndMetadata(4, "", 7), T1: OffsetAndMetadata(2)}, {T0: 10, U0: 5})
    assert rows == [
        PartitionLag("g", "t", 0, 7, 4, 10, 6, "m-1", "/10.0.0.1", "app"),
        PartitionLag("g", "t", 1, None, 2, None, None),  # committed, nobody's; its topic was deleted
        PartitionLag("g", "u", 0, None, None, 5, None, "m-1", "/10.0.0.1", "app"),  # nothing committed yet
        PartitionLag("g", None, None, None, None, None, None, "m-2", "/10.0.0.2", "app"),
    ]


def test_a_group_without_members_and_commits_has_no_rows() -> None:
    empty = GroupDescription("g", "Classic", "Empty", "", "", BrokerMetadata(1, "b", 9092), ())
    assert lag_rows(empty, {}, {}) == []


def test_a_commit_behind_the_end_of_a_truncated_log_shows_as_negative_as_in_kafkas_tool() -> None:
    [row] = lag_rows(
        GroupDescription("g", "Classic", "Empty", "", "", BrokerMetadata(1, "b", 9092), ()),
        {T0: OffsetAndMetadata(12)},
        {T0: 10},
    )
    assert row.lag == -2
