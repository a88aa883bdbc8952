from kafka_actors.admin import GroupDescription, MemberDescription, PartitionLag
from kafka_actors.admin.machines.lag import lag_rows
from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.types import OffsetAndMetadata, TopicPartition

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
