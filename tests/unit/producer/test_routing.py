"""Which topic each row goes to, by the column `topic`."""

import random

import pyarrow as pa
import pytest

from kafka_actors.errors import UsageError
from kafka_actors.producer.routing import StickyPartitioner, by_topic, rows_of
from kafka_actors.records.batch import MAX_MILLIS
from kafka_actors.records.kernel import ACTIVE


def topics(column):
    batch = pa.record_batch({"value": [b"%d" % row for row in range(len(column))], "topic": column})
    return {part.topic: part.batch["value"].to_pylist() for part in by_topic(batch, None)}


def encoded(indices, names, kind=None):
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(names, kind))


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "b", "a"]),
        pa.array([b"a", b"b", b"a"]),
        encoded([0, 1, 0], ["a", "b"]),
        encoded([2, 1, 0], ["a", "b", "a", None]),
        encoded([1, 0, 1], [b"b", b"a"]),
        encoded([1, 0, 1], ["b", "a"], pa.large_string()),
    ],
    ids=["text", "bytes", "encoded", "encoded-twice", "encoded-bytes", "encoded-large"],
)
def test_rows_go_to_the_topic_that_the_column_says_however_it_is_written(column):
    assert topics(column) == {"a": [b"0", b"2"], "b": [b"1"]}


def test_rows_are_no_tombstones_only_because_the_column_of_values_is_missing():
    keys = pa.array([b"a", b"b"])
    with pytest.raises(UsageError, match="there is no column 'value'"):
        list(by_topic(pa.record_batch({"key": keys, "offset": [1, 2]}), "t"))
    (part,) = by_topic(pa.record_batch({"key": keys, "value": pa.nulls(2)}), "t")
    assert part.batch.num_rows == 2
    nothing = pa.RecordBatch.from_pylist([])  # what a function makes of no rows
    assert [part.batch.num_rows for part in by_topic(nothing, "t")] == [0]


@pytest.mark.parametrize(
    "column",
    [pa.array(["a", None]), encoded([0, None], ["a", "b"]), encoded([0, 1], ["a", None])],
    ids=["plain", "no-index", "an-index-of-null"],
)
def test_a_row_without_a_topic_is_named_and_goes_nowhere(column):
    with pytest.raises(UsageError, match="row 1 has no topic"):
        topics(column)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array(["a", "a b"]), "the column topic has 'a b': a topic's name has"),
        (pa.array(["a", ""]), "the column topic has ''"),
        (pa.array([b"a", b"\xff"]), "the column topic: Invalid UTF8"),
    ],
    ids=["space", "empty", "bytes"],
)
def test_a_name_that_can_be_no_topics_is_an_error_of_its_row(column, said):
    """So the policies for errors of rows apply, as to a topic that isn't there."""
    with pytest.raises(UsageError, match=said):
        topics(column)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([0, MAX_MILLIS, 0, MAX_MILLIS + 1, -1]), f"timestamp of row 3 is {MAX_MILLIS + 1}: "),
        (pa.array([0, -MAX_MILLIS, -MAX_MILLIS - 1, 0, None]), f"timestamp of row 2 is {-MAX_MILLIS - 1}: "),
        (pa.array([0, 0, 0, 0, 2**62], pa.timestamp("s")), "seconds beyond 64 bits of milliseconds"),
    ],
    ids=["late", "early", "seconds"],
)
def test_a_timestamp_that_no_reader_could_express_is_refused_before_anything_is_taken(column, said):
    """A batch of such records could not be split where a broker finds it too large."""
    batch = pa.record_batch({"value": [b"x"] * 5, "topic": ["a", "a", "b", "b", "b"], "timestamp": column})
    with pytest.raises(UsageError, match=said):
        [rows_of(part, ACTIVE, 0, 1 << 20) for part in by_topic(batch, None)]
    sound = pa.record_batch({"value": [b"x"] * 3, "timestamp": pa.array([MAX_MILLIS, -MAX_MILLIS, None])})
    (part,) = by_topic(sound, "t")
    assert len(rows_of(part, ACTIVE, 0, 1 << 20)) == 3


# ---------------------------------------------------------------- the sticky partitioner


def test_kip_794_each_partition_gets_its_share_of_bytes_and_batches_get_full():
    made = StickyPartitioner(1000, random.Random(1).random)
    given, changes, last = dict.fromkeys(range(4), 0), 0, None
    for _ in range(40_000):
        partition = made.choose(range(4))
        made.spend(10)
        given[partition] += 10
        changes += partition != last
        last = partition
    assert changes == 400
    assert max(given.values()) < 1.5 * min(given.values())


def test_a_partition_that_lost_its_leader_is_left_at_once():
    made = StickyPartitioner(1000, lambda: 0.0)
    first = made.choose([0, 1])
    assert made.choose([1 - first]) == 1 - first


def test_a_topic_of_one_partition_has_no_other():
    made = StickyPartitioner(10, lambda: 0.99)
    assert made.choose([0]) == 0
    made.spend(10)
    assert made.choose([0]) == 0
