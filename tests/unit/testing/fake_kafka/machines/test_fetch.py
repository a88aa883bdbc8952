"""Fetch, its limits and long polls."""

from __future__ import annotations

from typing import Any

from fakes.fake_wire import Wire, record_batch

from kafka_actors import errors
from kafka_actors.protocol import ZERO_UUID, FetchRequest, ProduceRequest
from kafka_actors.protocol.messages.fetch import FetchPartition, FetchTopic
from kafka_actors.protocol.messages.produce import PartitionProduceData, TopicProduceData


def put(wire: Wire, topic: str = "t", partition: int = 0, value: bytes = b"v") -> None:
    data = PartitionProduceData(partition, record_batch(value))
    node = wire.state.topics[topic].partitions[partition].leader
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(topic, partition_data=[data])])
    assert wire.ask(request, 9, f"producer{node}", node).responses[0].partition_responses[0].error_code == 0


def asking(
    *partitions: FetchPartition, topic: str = "t", topic_id: Any = ZERO_UUID, **more: Any
) -> FetchRequest:
    return FetchRequest(topics=[FetchTopic(topic, topic_id, list(partitions))], **more)


def part(
    offset: int, index: int = 0, epoch: int = -1, fetched: int = -1, most: int = 1 << 20
) -> FetchPartition:
    return FetchPartition(index, epoch, offset, fetched, partition_max_bytes=most)


def answered(answer: Any) -> list[tuple[int, int, int]]:
    """Partition, error code and bytes of each partition."""
    return [
        (p.partition_index, p.error_code, len(p.records or b""))
        for t in answer.responses
        for p in t.partitions
    ]


def test_limits_of_the_request_and_of_a_partition() -> None:
    wire = Wire(topics={"t": 2})
    for index in (0, 0, 1):
        put(wire, partition=index)
    size = len(record_batch(b"v"))
    both = (part(0), part(0, 1))
    assert answered(wire.ask(asking(*both), 12)) == [(0, 0, 2 * size), (1, 0, size)]
    assert answered(wire.ask(asking(*both, max_bytes=1), 12)) == [(0, 0, size), (1, 0, 0)]
    assert answered(wire.ask(asking(*both, max_bytes=size + 5), 12)) == [(0, 0, size + 5), (1, 0, 0)]
    assert answered(wire.ask(asking(part(0, most=size), part(0, 1, most=1)), 12)) == [(0, 0, size), (1, 0, 0)]


def test_what_a_partition_is_told() -> None:
    wire = Wire(topics={"t": 1})
    put(wire)
    wire.state.topics["t"].partitions[0].log.delete_before(1)
    (found,) = wire.ask(asking(part(1), isolation_level=1), 12).responses[0].partitions
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (1, 1, 1)
    assert found.aborted_transactions == []
    (found,) = wire.ask(asking(part(0)), 12).responses[0].partitions
    assert (found.error_code, found.high_watermark, found.log_start_offset) == (1, -1, -1)


def test_a_long_poll_ends_with_data_or_with_its_time() -> None:
    wire = Wire(topics={"t": 1})
    assert wire.ask(asking(part(0), max_wait_ms=500, min_bytes=1), 12) is None
    put(wire)
    assert answered(wire.take())[0][2] > 0
    assert wire.ask(asking(part(1), max_wait_ms=500, min_bytes=1), 12) is None
    wire.pass_time(0.49)
    assert wire.take() is None
    wire.pass_time(0.02)
    assert answered(wire.take()) == [(0, 0, 0)]
    assert answered(wire.ask(asking(part(1), max_wait_ms=500, min_bytes=0), 12)) == [(0, 0, 0)]


def test_a_long_poll_waits_for_min_bytes_over_all_of_its_partitions() -> None:
    wire = Wire(topics={"t": 2, "other": 1})
    size = len(record_batch(b"v"))
    assert wire.ask(asking(part(0), part(0, 1), max_wait_ms=9_000, min_bytes=2 * size), 12) is None
    put(wire, "other")
    put(wire)
    assert wire.take() is None
    put(wire, partition=1)
    assert answered(wire.take()) == [(0, 0, size), (1, 0, size)]


def test_a_long_poll_ends_when_the_leader_moves_or_the_topic_goes() -> None:
    wire = Wire(2, topics={"t": 1})
    wire.ask(asking(part(0, epoch=0), max_wait_ms=9_000, min_bytes=1), 9)
    wire.state.move_leader("t", 0, 2)
    wire.poll()
    assert answered(wire.take()) == [(0, errors.NotLeaderOrFollowerError.code, 0)]
    wire.ask(asking(part(0), max_wait_ms=9_000, min_bytes=1), 9, "two", 2)
    wire.cluster.topics.remove("t")
    wire.poll()
    assert answered(wire.take("two")) == [(0, errors.UnknownTopicOrPartitionError.code, 0)]


def test_leader_epochs_are_fenced_and_the_leader_is_named() -> None:
    wire = Wire(2, topics={"t": 1})
    wire.state.move_leader("t", 0, 2)
    wire.state.move_leader("t", 0, 1)
    topic_id = wire.state.topics["t"].topic_id
    for epoch, error in [(1, 74), (3, 75), (2, 0)]:
        answer = wire.ask(asking(part(0, epoch=epoch), topic="", topic_id=topic_id), 16)
        assert answered(answer) == [(0, error, 0)]
        if error == 74:
            assert answer.responses[0].partitions[0].current_leader.leader_epoch == 2
            assert [n.node_id for n in answer.node_endpoints] == [1]


def test_followers_serve_consumers_from_version_11_on() -> None:
    wire = Wire(3)
    wire.state.create_topic("t", [[1, 2]])
    put(wire)
    for version, node, error in [(11, 2, 0), (10, 2, 6), (11, 3, 6)]:
        assert answered(wire.ask(asking(part(0)), version, f"n{node}{version}", node))[0][1] == error


def test_a_diverging_epoch_is_told_instead_of_records() -> None:
    wire = Wire(topics={"t": 1})
    put(wire)
    put(wire)
    partition = wire.state.topics["t"].partitions[0]
    partition.log.truncate(1)
    partition.lead(1)
    put(wire)
    (found,) = wire.ask(asking(part(2, fetched=0)), 12).responses[0].partitions
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset, found.records) == (0, 1, b"")
    (found,) = wire.ask(asking(part(1, fetched=1)), 12).responses[0].partitions
    assert found.diverging_epoch.epoch == -1
    assert found.records
    assert answered(wire.ask(asking(part(0, fetched=7)), 12)) == [(0, 1, 0)]


def test_a_session_that_goes_on_in_an_older_version_is_told_no_diverging_epoch() -> None:
    wire = Wire(topics={"t": 1})
    put(wire)
    wire.state.move_leader("t", 0, 1)
    session = wire.ask(asking(part(1, fetched=0), session_epoch=0), 12).session_id
    wire.state.topics["t"].partitions[0].log.truncate(0)
    follow = FetchRequest(session_id=session, session_epoch=1, max_wait_ms=100, min_bytes=1)
    assert answered(wire.ask(follow, 8)) == [(0, errors.OffsetOutOfRangeError.code, 0)]


def test_topic_ids_of_topics_that_are_gone_or_came_anew() -> None:
    wire = Wire(topics={"t": 1})
    old = wire.state.topics["t"].topic_id
    answer = wire.ask(asking(part(0), topic="", topic_id=old, session_epoch=0), 13)
    session = answer.session_id
    wire.cluster.topics.remove("t")
    follow = FetchRequest(session_id=session, session_epoch=1)
    assert answered(wire.ask(follow, 13)) == [(0, errors.UnknownTopicOrPartitionError.code, 0)]
    wire.state.create_topic("t", [[1]])
    follow = FetchRequest(session_id=session, session_epoch=2)
    assert answered(wire.ask(follow, 13)) == [(0, errors.InconsistentTopicIdError.code, 0)]
    assert answered(wire.ask(asking(part(0), topic="", topic_id=old), 13)) == [(0, 100, 0)]


def test_sessions_end_with_their_broker_and_before_version_7_there_are_none() -> None:
    wire = Wire(topics={"t": 1})
    assert wire.ask(asking(part(0)), 6).session_id == 0
    session = wire.ask(asking(part(0), session_epoch=0), 7).session_id
    assert session > 0
    wire.cluster.fetches.restarted(1)
    assert wire.ask(FetchRequest(session_id=session, session_epoch=1), 7).error_code == 70
