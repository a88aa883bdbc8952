"""How far Spark's checkpoint is, from what Spark says where a stream is planned; and what is between two offsets of it."""

from __future__ import annotations

from msgspec.structs import replace

from kafka_actors.spark.source.machines.offset_ranges import TaskRange
from kafka_actors.spark.source.machines.stream_offsets import (
    CheckpointProgress,
    StreamOffsets,
    losses,
    ranges_between,
)
from kafka_actors.types import TopicPartition

T0 = TopicPartition("t", 0)


class Spark:
    """Offsets of one partition, as Spark says them."""

    def __init__(self) -> None:
        self._checkpoint = CheckpointProgress()

    def asks(self, offset: int, *, initial: bool = False) -> int:
        found = self._checkpoint.safe_at(StreamOffsets({T0: offset}, initial=initial))
        return found.by_partition[T0]

    def commits(self, offset: int) -> None:
        self._checkpoint.committed(StreamOffsets({T0: offset}))


def test_what_has_ended_is_in_the_checkpoint_of_a_query() -> None:
    spark = Spark()
    assert spark.asks(0, initial=True) == 0
    assert [spark.asks(4), spark.asks(4)] == [4, 4]
    spark.commits(4)
    assert [spark.asks(8), spark.asks(8)] == [8, 8]
    spark.commits(8)
    assert spark.asks(9) == 9


def test_a_query_that_was_started_again_begins_with_what_is_in_its_checkpoint() -> None:
    spark = Spark()
    assert spark.asks(8) == 8
    spark.commits(8)
    assert spark.asks(9) == 9


def test_where_not_every_end_is_kept_only_what_spark_tells_of_counts() -> None:
    """Batches end at 4, 8, 12, 16 and 20; Spark keeps 4, 16 and 20, and tells of one when the next one is kept."""
    spark = Spark()
    spark.asks(0, initial=True)
    assert spark.asks(4) == 4
    assert [spark.asks(8), spark.asks(8), spark.asks(12)] == [4, 4, 4]
    spark.commits(4)
    assert [spark.asks(16), spark.asks(16)] == [4, 4]
    spark.commits(16)
    assert spark.asks(20) == 20
    assert spark.asks(24) == 20
    spark.commits(20)
    assert spark.asks(28) == 20
    spark.commits(28)
    assert spark.asks(32) == 32


def test_a_truncation_that_was_passed_over_is_behind_a_query_that_is_started_again_at_its_end() -> None:
    """Spark from 4.1 on asks for the tasks between the newest offsets of its checkpoint and themselves before anything else."""
    before = StreamOffsets({T0: 10}, {"t": b"i" * 16}, leader_epochs={T0: 5})
    end = replace(
        before, leader_epochs={T0: 6}, parted={T0: 5}
    )  # the log parts at 5, and had grown to 10 again
    assert (losses(end, end), ranges_between(end, end)) == ([], [])
    assert len(losses(before, end)) == 1
    assert ranges_between(before, end) == [TaskRange("t", 0, 5, 10, b"i" * 16, 6)]
