"""Where a read goes on after data loss: never back, never into records that weren't asked for."""

import pytest

from kafka_actors.errors import (
    DataLossError,
    FetchOffsetOutOfRangeError,
    LogTruncationError,
    TopicRecreatedError,
)
from kafka_actors.spark.source.machines.loss import go_on_at
from kafka_actors.spark.source.machines.offset_ranges import TaskRange

RANGE = TaskRange("t", 0, 10, 100)


def out_of_range(start: int | None, end: int | None) -> FetchOffsetOutOfRangeError:
    return FetchOffsetOutOfRangeError("t", 0, 20, start, end)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (out_of_range(50, 200), 50),  # retention passed by
        (out_of_range(99, 200), 99),
        (out_of_range(100, 200), None),  # past the whole range
        (out_of_range(150, 200), None),
        (out_of_range(0, 15), None),  # the log ends before the position: not from its start
        (out_of_range(20, 20), None),
        (out_of_range(None, None), None),
        (LogTruncationError("t", 0, 20, 12, 3), 20),
        (TopicRecreatedError("t", 0, 20, "a", "b"), None),
        (DataLossError("t", 0, 20, "the topic is gone"), None),
    ],
)
def test_where_to_go_on(loss: DataLossError, expected: int | None) -> None:
    assert go_on_at(loss, 20, RANGE) == expected
