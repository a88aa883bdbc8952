"""What a broker takes of an idempotent producer: the rules that tests/property/test_producer_model.py relies on."""

import asyncio
import time

import pyarrow as pa
import pytest
from waiting import slow_s

import kafka_actors as ka
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import InitProducerIdRequest, ProduceRequest
from kafka_actors.protocol.messages.produce import PartitionProduceData, TopicProduceData
from kafka_actors.records.kernel import ACTIVE
from kafka_actors.testing import KafkaCluster
from kafka_actors.types import TopicPartition

pytestmark = pytest.mark.kafka

UNORDERED, FENCED = 45, 47
NOT_YET_LEADER = (3, 5, 6)
"""Errors of a broker that has just started: its metadata are a moment ahead of its logs."""


def batch(producer, epoch, sequence, records, timestamp_ms=None):
    writer = ACTIVE.writer(1000)
    for number in range(sequence, sequence + records):
        stamp = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        writer.append_one(None, b"%d" % number, None, stamp, 1000)
    return writer.seal(producer, epoch, sequence)


class Broker:
    """Produces to a partition as a producer id of its own; the answers are (error code, base offset)."""

    def __init__(self, client, topic):
        self.client = client
        self.topic = topic

    async def begin(self):
        await self.client.fetch_metadata([self.topic])
        answer = await self.client.send(self.node, InitProducerIdRequest(transactional_id=None))
        while answer.error_code:  # a young broker has no ids to give yet
            await asyncio.sleep(0.1)
            answer = await self.client.send(self.node, InitProducerIdRequest(transactional_id=None))
        self.id = answer.producer_id
        return self

    @property
    def node(self):
        return next(iter(self.client.snapshot.brokers))

    async def put(self, epoch, sequence, records=2, partition=0, timestamp_ms=None):
        data = PartitionProduceData(
            index=partition, records=batch(self.id, epoch, sequence, records, timestamp_ms)
        )
        request = ProduceRequest(
            acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name=self.topic, partition_data=[data])]
        )
        while True:
            answer = await self.client.send(self.node, request, max_version=12)
            (found,) = answer.responses[0].partition_responses
            if found.error_code not in NOT_YET_LEADER:
                return found.error_code, found.base_offset
            await asyncio.sleep(0.1)


def with_broker(cluster, topic, play):
    async def main():
        async with KafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
            return await play(await Broker(client, topic).begin())

    return asyncio.run(main())


def test_a_broker_takes_any_first_sequence_and_a_new_epoch_only_from_0(kafka_cluster, kafka_topic):
    async def play(broker):
        assert await broker.put(0, 10) == (0, 0), "of a producer that it doesn't know: any"
        assert (await broker.put(0, 0))[0] == UNORDERED, "what should have been before it"
        assert await broker.put(0, 12) == (0, 2)
        assert await broker.put(0, 10) == (0, 0), "a duplicate has the offset of the first"
        assert (await broker.put(1, 14))[0] == UNORDERED, "a new epoch begins with 0"
        assert await broker.put(1, 0) == (0, 4)
        assert (await broker.put(0, 14))[0] == FENCED
        assert await broker.put(1, 40, partition=1) == (0, 0), "another partition knows nothing of that"

    with_broker(kafka_cluster, kafka_topic(2), play)


@pytest.mark.parametrize("end", ["kill", "shutdown"])
def test_a_broker_that_starts_again_remembers_the_last_batch_of_a_producer_alone(end):
    """It reads its producers from a snapshot, which has no more. Of those before, it says that it misses what came before them."""
    written = range(0, 14, 2)

    async def before(broker):
        for sequence in written:
            assert (await broker.put(0, sequence))[0] == 0
        again = [(await broker.put(0, sequence))[0] for sequence in written]
        assert again == [UNORDERED, UNORDERED, 0, 0, 0, 0, 0], "five are remembered"
        return broker.id

    async def after(broker):
        broker.id = producer
        again = [await broker.put(0, sequence) for sequence in written]
        assert again == 6 * [(UNORDERED, -1)] + [(0, 12)]
        assert await broker.put(0, 14) == (0, 14)

    with KafkaCluster(brokers=1) as cluster:
        topic = cluster.create_topic("remembered")
        producer = with_broker(cluster, topic, before)
        (node,) = cluster.broker_ids
        getattr(cluster, end)(node)
        cluster.restart(node)
        with_broker(cluster, topic, after)


@pytest.mark.slow
def test_a_broker_forgets_a_producer_by_the_timestamps_of_its_records():
    config = {"producer.id.expiration.ms": 20_000, "producer.id.expiration.check.interval.ms": 500}

    async def play(broker):
        now = time.time_ns() // 1_000_000
        assert await broker.put(0, 0, timestamp_ms=now) == (0, 0)
        assert await broker.put(0, 0, partition=1, timestamp_ms=now - 30_000) == (0, 0)
        await asyncio.sleep(5)
        assert (await broker.put(0, 50))[0] == UNORDERED, "it is known still"
        assert await broker.put(0, 50, partition=1) == (0, 2), "but not where the records were old already"
        await asyncio.sleep(20)
        assert await broker.put(0, 50) == (0, 2)

    with KafkaCluster(brokers=1, broker_config=config) as cluster:
        with_broker(cluster, cluster.create_topic("expiring", 2), play)


def test_records_that_the_topic_takes_only_in_small_batches_keep_their_order(kafka_cluster, kafka_topic):
    """Full batches are refused and split. The last one is small enough: were it on the wire behind the first, a broker
    that doesn't know the producer yet would take it first."""
    topic = kafka_topic(1, config={"max.message.bytes": 100_000})
    values = [b"%06d" % n + bytes(194) for n in range(2_700)]
    with ka.Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        producer.send_batch(pa.record_batch({"value": values}), topic).result(timeout=slow_s(30))
    with ka.Consumer(
        bootstrap_servers=kafka_cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found = []
        deadline = time.monotonic() + slow_s(30)
        while len(found) < len(values) and time.monotonic() < deadline:
            read = consumer.poll_batch(timeout_ms=200)
            found += [] if read is None else read["value"].to_pylist()
    assert found == values
