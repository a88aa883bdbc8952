"""What a consumer tells of itself, with a real fetcher and a tally in place of the meter."""

import time

import pyarrow as pa
import pytest
from fakes.planned import planned
from waiting import slow_s

from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.consumer.delivery import Delivery
from kafka_actors.consumer.telemetry import ConsumerTelemetry
from kafka_actors.fetch import FetchedPartition, Fetcher, FetchReply, PartitionStart
from kafka_actors.records import SCHEMA, encode
from kafka_actors.telemetry.instruments import BY_NAME
from kafka_actors.telemetry.tally import Tally
from kafka_actors.types import TopicPartition

TP = TopicPartition("t", 0)


@pytest.fixture
def tally():
    return Tally()


@pytest.fixture
def observer(tally):
    return ConsumerTelemetry("g", "client-1", 1000, tally, clock=lambda: 1.0)


@pytest.fixture
def fetcher(tally):
    config = build(ConsumerConfig, {"group_id": "g"})
    made = Fetcher(
        config,
        sources=lambda _: None,
        lookups=None,
        events=lambda _: None,
        recorder=tally,
        clock=lambda: 0.0,
    )
    topics = {"t": TopicMetadata("t", None, partitions={0: PartitionMetadata(0, 1, 4)})}
    made.update_metadata(ClusterSnapshot(brokers={1: BrokerMetadata(1, "h", 9092)}, topics=topics))
    made.assign({TP: PartitionStart((0, 1), 0)})
    return made


def arrive(fetcher, records, end):
    """A response with so many records from 0 on."""
    data = encode(
        pa.RecordBatch.from_pylist(
            [
                {"value": b"v", "topic": "t", "partition": 0, "offset": n, "timestampType": 0}
                for n in range(records)
            ],
            schema=SCHEMA,
        )
    )
    (issue,) = planned(fetcher._machine, 0.0).pulls
    fetched = FetchedPartition(
        "t", 0, (0, 1), 0, records, high_watermark=end, last_stable_offset=end, size=len(data)
    )
    reply = FetchReply(1, issue.pull.sequence, [fetched], size=len(data), seconds=0.02)
    fetcher._machine.on_reply(issue, reply, [data], 0.0)
    fetcher._meter.fetched(1, reply)
    return len(data)


def test_batches_and_responses_are_counted_once(observer, fetcher, tally):
    size = arrive(fetcher, records=3, end=10)
    reader = Delivery(fetcher, observer)
    began = time.monotonic() - 0.1
    batch = reader.next_batch()
    observer.polled(began, batch)
    assert batch.num_rows == 3
    assert reader.next_batch() is None
    counts = {(p.name, dict(p.attributes).get("server.port")): p.value for p in tally.state().counts}
    assert counts == {
        ("messaging.client.consumed.messages", None): 3,
        ("kafka_actors.fetch.size", 9092): size,
    }
    durations = {dict(b.attributes)["messaging.operation.name"]: b for b in tally.state().buckets}
    assert sum(durations["fetch"].sums) == 0.02
    assert dict(durations["fetch"].attributes).items() >= {"server.address": "h", "server.port": 9092}.items()
    assert 0.1 <= sum(durations["poll"].sums) < slow_s(5)


def test_gauges_say_where_partitions_stand(observer, fetcher):
    arrive(fetcher, records=3, end=10)
    reader = Delivery(fetcher, observer)
    reader.next_batch()
    reader.next_batch()
    points = list(observer.points(fetcher))
    for point in points:
        assert {key for key, _ in point.attributes} == set(BY_NAME[point.name].attributes)
    assert {point.name: point.value for point in points} == {
        "kafka_actors.consumer_group.assigned_partitions": 1,
        "kafka_actors.buffer.usage": 0,
        "kafka_actors.buffer.limit": 1000,
        "kafka.partition.current_offset": 10,
        "kafka_actors.partition.position": 3,
        "kafka.consumer_group.lag": 7,
        "kafka_actors.consumer_group.lag.time": 0,
    }
    fetcher.pause([TP])
    blocked = [p for p in observer.points(fetcher) if p.name == "kafka_actors.partition.blocked"]
    assert [dict(p.attributes)["reason"] for p in blocked] == ["paused"]
