"""A dead letter is the record as it was, and says where it came from and why it is here. A record in a retry topic says too when it is due, and
comes back as it was."""

import pyarrow as pa
import pytest
from fakes.records import records
from fakes.spans import context

from kafka_actors.base.batches import SCHEMA
from kafka_actors.sinks.dead_letters import PREFIX, as_they_were, dead_letters, own_headers, retry_records
from kafka_actors.telemetry.headers import with_context


def test_key_value_and_headers_are_the_records_and_more_headers_say_the_rest():
    source = records(
        [b"v", None],
        keys=[None, b"k"],
        headers=[[("trace", b"1"), ("trace", None), ("empty", b"")], None],
    )
    made = dead_letters(source, ["decode_json", "score"], ["no JSON", "bad \ud800 " + "x" * 2000], "revenue")
    assert made.schema.names == ["key", "value", "headers"]
    assert made["key"].to_pylist() == [None, b"k"]
    assert made["value"].to_pylist() == [b"v", None]
    first, second = ([(h["key"], h["value"]) for h in row] for row in made["headers"].to_pylist())
    assert first == [
        ("trace", b"1"),
        ("trace", None),
        ("empty", b""),
        ("kafka_actors.error.topic", b"orders"),
        ("kafka_actors.error.partition", b"3"),
        ("kafka_actors.error.offset", b"100"),
        ("kafka_actors.error.timestamp", b"1700000000000"),
        ("kafka_actors.error.group", b"revenue"),
        ("kafka_actors.error.stage", b"decode_json"),
        ("kafka_actors.error.reason", b"no JSON"),
    ]
    said = dict(second)["kafka_actors.error.reason"]
    assert said.startswith(b"bad \\ud800 xxx")
    assert len(said) < 1100


def test_what_it_had_before_it_was_a_dead_letter_is_known_again():
    """Also where it was one before, in a topic that a job reads, and what a tracing producer adds behind."""
    source = records(
        [b"v", b"w"], headers=[[("trace", b"1"), ("kafka_actors.error.topic", b"its own")], None]
    )
    made = dead_letters(source, ["a", "b"], ["x", "y"], "g")
    again = dead_letters(source.set_column(7, "headers", made["headers"]), ["c", "d"], ["z", "z"], "g")
    for batch, before in ((made, source["headers"]), (again, made["headers"])):
        for sent in (batch, with_context(batch, context(7))[0]):
            assert [own_headers(headers) for headers in sent["headers"].to_pylist()] == before.to_pylist()
    retried = retry_records(source, ["x", "y"], "g", 1, [1, 1], [5, 5])
    assert [own_headers(headers) for headers in retried["headers"].to_pylist()] == source[
        "headers"
    ].to_pylist()
    others = [{"key": "a", "value": b"1"}, {"key": f"{PREFIX}offset", "value": b"7"}]
    assert (own_headers(others), own_headers(others[1:]), own_headers(None)) == (others[:1], None, None)


# ------------------------------------------------------------ retry topics

SOURCE = records(
    [b"v", None, b"w"],
    keys=[None, b"k", b""],
    headers=[[("trace", b"1"), ("kafka_actors.error.topic", b"its own")], None, [("empty", None)]],
)


def kept(made, topic="orders-retry-10s", first=7):
    """The records as they are fetched from a retry topic."""
    size = made.num_rows
    columns = {
        **{name: made[name] for name in ("key", "value", "headers", "partition")},
        "topic": pa.array([topic] * size),
        "offset": pa.array(range(first, first + size), pa.int64()),
        "timestamp": pa.array([1_800_000_000_000_000] * size, SCHEMA.field("timestamp").type),
        "timestampType": pa.array([1] * size, pa.int32()),
    }
    return pa.RecordBatch.from_pydict({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)


def test_records_come_back_as_they_were():
    whole_ms = SOURCE.set_column(
        5, "timestamp", pa.array([1_700_000_000_123_000, -1_000, 0], SCHEMA.field("timestamp").type)
    )
    made = retry_records(whole_ms, ["a", "b", "c"], "g", 1, [1, 0, 2], [10, 20, 30])
    found = as_they_were(kept(made))
    assert found.batch.equals(whole_ms)
    assert found.batch.schema == SCHEMA
    assert (found.attempts, found.not_before) == ([1, 0, 2], [10, 20, 30])


def test_they_come_back_so_from_the_next_tier_too():
    first = retry_records(SOURCE.slice(0, 1), ["a"], "g", 1, [1], [10])
    second = retry_records(as_they_were(kept(first)).batch, ["b"], "g", 2, [2], [20])
    assert as_they_were(kept(second)).batch["headers"].equals(SOURCE.slice(0, 1)["headers"])
    assert second.num_columns == first.num_columns


def test_their_partition_is_the_number_of_the_one_that_they_came_from():
    made = retry_records(SOURCE, ["a"] * 3, "g", 1, [1] * 3, [10] * 3)
    assert made["partition"].to_pylist() == [3, 3, 3]


def test_what_nobody_has_put_there_so_is_left_as_it_is_and_due():
    headers = [None, [(PREFIX + "topic", b"t")], [("trace", b"1")]]
    foreign = records([b"v"] * 3, headers=headers, topic="orders-retry-10s")
    found = as_they_were(foreign)
    assert found.batch.equals(foreign)
    assert found.due(0, "orders-retry-10s") == 3


def test_headers_that_make_no_sense_are_left_as_they_are():
    made = retry_records(SOURCE.slice(0, 1), ["a"], "g", 1, [1], [10])
    broken = [
        [(h["key"], None if h["key"] == PREFIX + "offset" else h["value"]) for h in row]
        for row in made["headers"].to_pylist()
    ]
    foreign = records([b"v"], headers=broken)
    assert as_they_were(foreign).batch.equals(foreign)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("partition", 2**31),
        ("offset", 2**63),
        ("timestamp", 2**60),
        ("timestamp_type", -(2**31)),
        ("not_before", 253_402_300_800_000),  # the year 10000
    ],
)
def test_numbers_that_are_too_large_are_left_as_they_are(name, number):
    made = retry_records(SOURCE.slice(1, 1), ["a"], "g", 1, [1], [10])
    (headers,) = ([(h["key"], h["value"]) for h in row] for row in made["headers"].to_pylist())
    changed = dict(headers) | {PREFIX + name: b"%d" % number}
    foreign = records([b"v"], headers=[list(changed.items())], topic="orders-retry-10s")
    found = as_they_were(foreign)
    assert found.batch.equals(foreign)
    assert found.due(0, "orders-retry-10s") == 1


def test_they_come_back_so_with_a_trace_context_behind_them():
    tried = retry_records(SOURCE, ["a", "b", "c"], "g", 1, [1, 0, 2], [10, 20, 30])
    traced, _ = with_context(tried, context(9))
    found = as_they_were(kept(traced))
    assert found.batch["headers"].equals(SOURCE["headers"])
    assert (found.batch["topic"].to_pylist(), found.batch["offset"].to_pylist()) == (
        ["orders"] * 3,
        [100, 101, 102],
    )
    assert (found.attempts, found.not_before) == ([1, 0, 2], [10, 20, 30])


def test_of_several_such_headers_the_last_are_those_of_the_retry_topic():
    first = retry_records(SOURCE.slice(1, 1), ["a"], "g", 1, [1], [10])
    put_back = kept(first)  # a record that was copied from a retry topic with its headers, and fails again
    found = as_they_were(kept(retry_records(put_back, ["b"], "g", 1, [3], [30]), first=8))
    assert found.batch["headers"].equals(put_back["headers"])
    assert (found.batch["topic"].to_pylist(), found.attempts) == (["orders-retry-10s"], [3])


def test_due_are_those_before_the_first_that_waits():
    made = retry_records(SOURCE, ["a"] * 3, "g", 1, [1] * 3, [10, 20, 15])
    found = as_they_were(kept(made))
    assert [found.due(now, "orders") for now in (9, 10, 19, 20)] == [0, 1, 1, 3]


def test_due_together_are_records_of_one_topic():
    made = retry_records(SOURCE, ["a"] * 3, "g", 1, [1] * 3, [10] * 3)
    mixed = pa.concat_batches([kept(made).slice(0, 2), records([b"v"], topic="orders-retry-10s")])
    assert as_they_were(mixed).due(100, "orders") == 2


def test_no_records_are_none():
    found = as_they_were(SOURCE.slice(0, 0))
    assert (found.batch.num_rows, found.due(0, "orders")) == (0, 0)
