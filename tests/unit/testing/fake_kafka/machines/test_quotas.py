"""Quotas of clients: rates, and what is told to those that are beyond."""

from __future__ import annotations

from typing import Any

from fakes.fake_wire import Wire, record_batch

from kafka_actors.protocol import ApiKey, FetchRequest, HeartbeatRequest, ProduceRequest
from kafka_actors.protocol.messages.fetch import FetchPartition, FetchTopic
from kafka_actors.protocol.messages.produce import PartitionProduceData, TopicProduceData
from kafka_actors.testing.fake_kafka.machines.calls import RequestRule, Throttle
from kafka_actors.testing.fake_kafka.machines.quotas import ClientQuota, ClientQuotas


def test_what_is_beyond_the_rate_has_to_wait_until_it_is_within() -> None:
    quotas = ClientQuotas()
    quotas.set("c", ClientQuota(producer_byte_rate=100))
    assert quotas.written(1, "c", 1_000, 0.0) == 0, "ten seconds' worth"
    assert quotas.written(1, "c", 500, 0.5) == 4_500, "1,500 bytes in 10.5 seconds"
    assert quotas.written(2, "c", 500, 0.5) == 0, "each broker counts for itself"
    assert quotas.written(1, "other", 5_000, 0.5) == 0
    assert quotas.written(1, "c", 0, 20.0) == 0, "all is forgotten after eleven seconds"


def test_a_default_quota_is_for_those_without_one() -> None:
    quotas = ClientQuotas()
    quotas.set(None, ClientQuota(producer_byte_rate=1))
    quotas.set("fast", ClientQuota())
    assert quotas.written(1, "any", 1_000, 0.0) > 0
    assert quotas.written(1, "fast", 1_000, 0.0) == 0


def test_what_is_not_sent_does_not_count() -> None:
    quotas = ClientQuotas()
    quotas.set("c", ClientQuota(consumer_byte_rate=100))
    assert quotas.read(1, "c", 900, 0.0) == 0
    assert quotas.read(1, "c", 900, 0.0) > 0
    assert quotas.read(1, "c", 100, 0.0) == 0
    assert quotas.most_read("c", 5_000) == 1_000
    assert quotas.most_read("other", 5_000) == 5_000


def put(wire: Wire, size: int) -> Any:
    data = PartitionProduceData(0, record_batch(b"v" * size))
    return wire.ask(
        ProduceRequest(acks=-1, topic_data=[TopicProduceData("t", partition_data=[data])]), 9, "c"
    )


def fetch(wire: Wire, **more: Any) -> Any:
    topic = FetchTopic("t", partitions=[FetchPartition(0, partition_max_bytes=1 << 20)])
    return wire.ask(FetchRequest(topics=[topic], **more), 12, "c")


def test_a_producer_beyond_its_quota_is_told_so_and_its_next_request_waits() -> None:
    wire = Wire(topics={"t": 1})
    wire.state.quotas.set("c", ClientQuota(producer_byte_rate=100))
    assert put(wire, 500).throttle_time_ms == 0
    answer = put(wire, 900)
    assert answer.throttle_time_ms > 1_000
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert put(wire, 1) is None
    wire.pass_time(answer.throttle_time_ms / 1_000 - 0.01)
    assert wire.take("c") is None
    wire.pass_time(0.02)
    assert wire.take("c").responses[0].partition_responses[0].base_offset == 2


def test_a_consumer_beyond_its_quota_gets_nothing_until_later() -> None:
    wire = Wire(topics={"t": 1})
    put(wire, 600)
    wire.state.quotas.set("c", ClientQuota(consumer_byte_rate=100))
    assert len(fetch(wire).responses[0].partitions[0].records) > 600
    answer = fetch(wire)
    assert (answer.responses, answer.session_id) == ([], 0)
    assert answer.throttle_time_ms > 0
    wire.pass_time(30)
    assert len(fetch(wire).responses[0].partitions[0].records) > 600


def test_a_single_request_is_throttled() -> None:
    wire = Wire()
    wire.cluster.rules.append(RequestRule(ApiKey.HEARTBEAT, Throttle(500)))
    assert wire.ask(HeartbeatRequest("g", 1, "m"), 4, "c").throttle_time_ms == 500
    assert wire.ask(HeartbeatRequest("g", 1, "m"), 4, "c") is None
    wire.pass_time(0.5)
    assert wire.take("c").throttle_time_ms == 0
