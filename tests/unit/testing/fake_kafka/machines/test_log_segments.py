"""Segments, and what retention deletes of them."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_wire import NOW_MS, Wire, record_batch
from msgspec.structs import replace

from kafka_actors.protocol import ListOffsetsRequest
from kafka_actors.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from kafka_actors.testing.fake_kafka.machines.log_segments import LogSegments, Retention
from kafka_actors.testing.fake_kafka.machines.partition_log import LogLimits, PartitionLog
from kafka_actors.testing.fake_kafka.machines.record_batches import parse

SIZE = parse(record_batch(b"v")).size


def segments(*ages: int, **settings: Any) -> LogSegments:
    """A log of batches with one record each, so many ms old, two to a segment."""
    made = LogSegments()
    made.set_retention(Retention(**{"segment_bytes": 2 * SIZE, **settings}))
    for offset, age in enumerate(ages):
        made.add(parse(record_batch(b"v", timestamps=[NOW_MS - age])).placed(offset, 0))
    return made


def test_a_segment_goes_when_its_newest_record_is_too_old() -> None:
    old = segments(900, 101, 100, 99, 98, retention_ms=100)
    assert old.start_after_retention(NOW_MS) == 2
    assert old.start_after_retention(NOW_MS + 1) == 2, "99 is in its segment too"
    assert old.start_after_retention(NOW_MS + 2) == 4
    assert old.start_after_retention(NOW_MS + 3) == 5, "the last one as well"
    assert segments(50, 50, 900, retention_ms=100).start_after_retention(NOW_MS) == 0, "behind a newer one"


def test_what_is_within_the_bytes_stays() -> None:
    assert segments(*[0] * 6, retention_bytes=4 * SIZE).start_after_retention(NOW_MS) == 2
    assert segments(*[0] * 6, retention_bytes=4 * SIZE + 1).start_after_retention(NOW_MS) == 0
    assert segments(*[0] * 6, retention_bytes=1).start_after_retention(NOW_MS) == 4
    assert segments(*[0] * 6, retention_bytes=0).start_after_retention(NOW_MS) == 6, "the last one as well"


@pytest.mark.parametrize("more", [{"deletes": False}, {"retention_ms": -1}])
def test_what_is_not_to_be_deleted_stays(more: dict[str, Any]) -> None:
    assert segments(900, 900, **{"retention_ms": 100, **more}).start_after_retention(NOW_MS) == 0


def test_a_segment_ends_by_its_size_or_by_the_times_of_its_records() -> None:
    timed = segments(300, 250, 150, 100, segment_bytes=1 << 20, segment_ms=100, retention_ms=200)
    assert timed.start_after_retention(NOW_MS) == 2


def test_what_was_deleted_or_lost_does_not_count() -> None:
    made = segments(*[0] * 6, retention_bytes=4 * SIZE)
    made.drop_before(2)
    assert made.start_after_retention(NOW_MS) == 0
    made.rebuild([])
    assert made.start_after_retention(NOW_MS + 10**12) == 0


def test_a_log_begins_behind_what_its_retention_deleted() -> None:
    log = PartitionLog()
    limits = LogLimits(retention=Retention(segment_bytes=SIZE, retention_ms=100))
    for _ in range(3):
        log.append(parse(record_batch(b"v", producer=(1, 0, log.end_offset))), 0, limits, NOW_MS)
    assert not log.retain(limits.retention, NOW_MS + 100)
    assert log.retain(replace(limits.retention, retention_bytes=SIZE), NOW_MS)
    assert (log.start_offset, log.end_offset, len(log.batches)) == (2, 3, 1)
    assert log.retain(limits.retention, NOW_MS + 101)
    assert not log.retain(limits.retention, NOW_MS + 101)
    assert (log.start_offset, log.end_offset) == (3, 3)
    assert 1 in log.producers


def test_brokers_look_at_their_logs_at_intervals() -> None:
    wire = Wire(config={"log.initial.task.delay.ms": 1_000, "log.retention.check.interval.ms": 5_000})
    topic = wire.state.create_topic("t", [[1]], {"retention.ms": "2000"})
    log = topic.partitions[0].log
    log.append(parse(record_batch(b"v")), 0, topic.limits(wire.state.release), NOW_MS)

    def start() -> int:
        asked = ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -2)])
        return int(wire.ask(ListOffsetsRequest(-1, 0, [asked]), 5).topics[0].partitions[0].offset)

    wire.pass_time(5.9)
    assert start() == 0, "the first look was too early"
    wire.pass_time(0.2)
    assert start() == 1
    log.append(parse(record_batch(b"v", timestamps=[NOW_MS + 9_500])), 0, topic.limits((4, 1)), NOW_MS)
    wire.pass_time(14.0)
    assert start() == 2, "the looks in between have been caught up on"


def test_only_brokers_that_are_alive_look_at_their_logs() -> None:
    wire = Wire(2, config={"log.initial.task.delay.ms": 1_000, "log.retention.check.interval.ms": 5_000})
    logs = []
    for name, replicas in [("both", [1, 2]), ("first", [1])]:
        topic = wire.state.create_topic(name, [replicas], {"retention.ms": "2000"})
        logs.append(topic.partitions[0].log)
        logs[-1].append(parse(record_batch(b"v")), 0, topic.limits(wire.state.release), NOW_MS)
    wire.cluster.stop_node(1)
    wire.pass_time(60.0)
    assert [log.start_offset for log in logs] == [1, 0]
    wire.state.set_alive(1, True)
    wire.pass_time(0.9)
    assert logs[1].start_offset == 0
    wire.pass_time(0.2)
    assert logs[1].start_offset == 1, "its first look is as long after its start as another one's"


def test_records_stay_where_neither_topic_nor_broker_says_for_how_long() -> None:
    for config, start in [({}, 0), ({"log.retention.ms": 60_000}, 1)]:
        wire = Wire(topics={"t": 1}, config=config)
        topic = wire.state.topics["t"]
        log = topic.partitions[0].log
        log.append(parse(record_batch(b"v", timestamps=[1])), 0, topic.limits((4, 1)), NOW_MS)
        wire.pass_time(3_600)
        assert log.start_offset == start
