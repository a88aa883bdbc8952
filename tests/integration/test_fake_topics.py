"""Topics of `FakeKafka` that shrink under their readers."""

from __future__ import annotations

import time

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
