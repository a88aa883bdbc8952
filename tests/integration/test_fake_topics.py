"""Topics of `FakeKafka` that shrink under their readers."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.testing import FakeKafka


def test_retention_takes_records_as_time_passes_and_a_reader_goes_on_behind_them() -> None:
    looks = {"log.initial.task.delay.ms": 0, "log.retention.check.interval.ms": 50}
    with FakeKafka(config=looks) as kafka:
        kafka.create_topic("short", config={"retention.ms": 2_000})
        kafka.create_topic("small", config={"retention.bytes": 300, "segment.bytes": 100})
        kafka.produce("short", [b"old"], timestamp_ms=time.time_ns() // 1_000_000 - 60_000)  # wall clock
        for value in range(10):
            kafka.produce("small", [b"%d" % value * 30])
        until(lambda: kafka.beginning_offsets("short", "small") == {("short", 0): 1, ("small", 0): 6}, 20)
        servers = kafka.bootstrap_servers
        with ka.Producer(bootstrap_servers=servers) as producer:
            producer.send("short", b"new").result(timeout=slow_s(20))
        with ka.Consumer(
            "small", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            batch = consumer.poll_batch(timeout_ms=100_000)
            assert batch is not None
            assert batch["offset"].to_pylist()[0] == 6
        until(lambda: not kafka.records("short"), 20, "the new record is too old in its turn")
        assert kafka.end_offsets("short") == {("short", 0): 2}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda kafka: kafka.produce("nope", ["a"]), "there is no topic 'nope': topics are 'orders'"),
        (lambda kafka: kafka.leaders("nope"), "there is no topic 'nope'"),
        (lambda kafka: kafka.end_offsets("orders", "nope"), "there is no topic 'nope'"),
        (lambda kafka: kafka.delete_topic("nope"), "there is no topic 'nope'"),
        (lambda kafka: kafka.recreate_topic("nope"), "there is no topic 'nope'"),
        (lambda kafka: kafka.add_partitions("nope", 3), "there is no topic 'nope'"),
        (lambda kafka: kafka.set_leader("nope", 0, 1), "there is no topic 'nope'"),
        (lambda kafka: kafka.records("orders", 2), "topic 'orders' has no partition 2: it has 2, from 0 on"),
        (lambda kafka: kafka.compact("orders", -1), "topic 'orders' has no partition -1"),
        (lambda kafka: kafka.set_leader("orders", "0", 1), "topic 'orders' has no partition '0'"),
        (lambda kafka: kafka.delete_records("orders", 0, 99), "99 is no offset of orders-0, which ends at 2"),
        (lambda kafka: kafka.delete_records("orders", 0, -1), "-1 is no offset of orders-0"),
        (lambda kafka: kafka.truncate("orders", 0, 3), "3 is no offset of orders-0, which ends at 2"),
        (lambda kafka: kafka.truncate("orders", 1, -2), "-2 is no offset of orders-1, which ends at 0"),
        (
            lambda kafka: kafka.add_partitions("orders", 2),
            "topic 'orders' has 2 partitions: give more, not 2",
        ),
        (lambda kafka: kafka.create_topic("new", 0), "Number of partitions was set to an invalid value"),
        (lambda kafka: kafka.create_topic("new", 1, 0), "Replication factor must be larger than 0"),
        (
            lambda kafka: kafka.create_topic("new", replica_assignment=[[9]]),
            r"replicas \[9\] are not possible",
        ),
        (lambda kafka: kafka.recreate_topic("orders", 0), "Number of partitions was set to an invalid value"),
    ],
)
def test_what_kafka_would_refuse_or_does_not_have_is_a_value_error_that_says_what_there_is(
    call: Callable[[FakeKafka], object], says: str
) -> None:
    with FakeKafka(topics={"orders": 2}) as kafka:
        kafka.produce("orders", ["a", "b"])
        with pytest.raises(ValueError, match=says):
            call(kafka)
        assert kafka.leaders("orders") == {0: 1, 1: 1}
        assert kafka.beginning_offsets("orders") == {("orders", 0): 0, ("orders", 1): 0}
        assert kafka.end_offsets("orders") == {("orders", 0): 2, ("orders", 1): 0}


def test_a_log_is_shortened_up_to_its_end() -> None:
    with FakeKafka(topics={"orders": 1}) as kafka:
        assert kafka.produce("orders", ["a", "b"]) == 0
        kafka.truncate("orders", 0, 2)
        kafka.delete_records("orders", 0, 2)
        assert kafka.beginning_offsets("orders") == kafka.end_offsets("orders") == {("orders", 0): 2}
        kafka.delete_records("orders", 0, 1)  # gone already, as brokers have it
        assert kafka.beginning_offsets("orders") == {("orders", 0): 2}
