"""`Producer`: what others read is what was sent, where Java would have sent it."""

import asyncio
import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from msgspec.structs import replace
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.errors import (
    ConfigError,
    KafkaTimeoutError,
    MessageTooLargeError,
    NoBrokersAvailable,
    RequestTimedOutError,
    UndeliveredError,
    UsageError,
)
from kafka_actors.records import SCHEMA
from kafka_actors.testing.fake_kafka import ChangeResponse, Hold
from kafka_actors.types import TopicPartition

"""For records with old timestamps."""
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def read_foreign(cluster, topic, count):
    """All records as confluent-kafka reads them, by partition in order."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Place

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"reader-of-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([Place(topic, p, 0) for _, p in cluster.end_offsets(topic)])
    found, deadline = [], time.monotonic() + slow_s(30)
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 0.2):
            assert message.error() is None
            found.append(message)
    consumer.close()
    assert len(found) == count
    return sorted(found, key=lambda m: (m.partition(), m.offset()))


def read_ours(cluster, topic, count):
    with ka.Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)])
        found, deadline = [], time.monotonic() + slow_s(30)
        while sum(b.num_rows for b in found) < count and time.monotonic() < deadline:
            batch = consumer.poll_batch(timeout_ms=200)
            found += [] if batch is None else [batch]
    table = pa.Table.from_batches(found, SCHEMA)
    assert table.num_rows == count
    return table.sort_by([("partition", "ascending"), ("offset", "ascending")])


def until_known(producer, topic):
    """Waits until a producer with a short `max_block_ms` is connected and knows the topic."""

    def known():
        try:
            return producer.partitions_for(topic)
        except (KafkaTimeoutError, NoBrokersAvailable):
            return None

    until(known, 30, f"{topic} to be known")


def a_matrix():
    """Every mixture of null, empty and filled, with and without headers; timestamps not in order."""
    filled = [None, b"", b"bytes", b"x" * 3000]
    headers = [None, [{"key": "a", "value": None}, {"key": "a", "value": b""}], [{"key": "ä", "value": b"v"}]]
    rows = list(itertools.product(filled, filled, headers))
    stamps = [datetime(2024, 1, 1 + i % 9, tzinfo=UTC) for i in range(len(rows))]
    return pa.record_batch(
        {
            "key": pa.array([r[0] for r in rows], pa.binary()),
            "value": pa.array([r[1] for r in rows], pa.binary()),
            "headers": pa.array([r[2] for r in rows], SCHEMA.field("headers").type),
            "timestamp": pa.array(stamps, pa.timestamp("us", "UTC")),
        }
    )


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_read_is_what_was_sent(cluster, kafka_topic, codec):
    topic, sent = kafka_topic(1), a_matrix()
    with ka.Producer(
        bootstrap_servers=cluster.bootstrap_servers, compression_type=codec, batch_size=20_000
    ) as producer:
        result = producer.send_batch(sent, topic).result(timeout=slow_s(20))
    assert result.rows == sent.num_rows
    assert sum(r.records for r in result.partitions[topic, 0]) == sent.num_rows
    ours = read_ours(cluster, topic, sent.num_rows)
    assert ours.select(sent.schema.names).combine_chunks().to_batches()[0].equals(sent)
    for row, message in zip(sent.to_pylist(), read_foreign(cluster, topic, sent.num_rows), strict=True):
        assert (message.key(), message.value()) == (row["key"], row["value"])
        assert message.timestamp()[1] == round(row["timestamp"].timestamp() * 1000)
        assert message.headers() == (row["headers"] and [(h["key"], h["value"]) for h in row["headers"]])


def test_keys_go_where_java_sends_them(cluster, kafka_topic):
    """librdkafka's murmur2_random is Java's default partitioner for records with a key."""
    from confluent_kafka import Producer

    keys = [b"", b"k", *(b"key-%d" % i * (i % 7 + 1) for i in range(5000))]
    theirs, ours, one_by_one = (kafka_topic(13, prefix=p) for p in ("theirs", "ours", "single"))
    foreign = Producer({"bootstrap.servers": cluster.bootstrap_servers, "partitioner": "murmur2_random"})
    for key in keys:
        foreign.produce(theirs, b"", key)
    foreign.flush()
    with ka.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send_batch(pa.record_batch({"key": keys, "value": [b""] * len(keys)}), ours)
        for key in keys:
            producer.send(one_by_one, b"", key)
    expected = read_ours(cluster, theirs, len(keys)).select(["partition", "key"])
    assert expected.equals(read_ours(cluster, ours, len(keys)).select(["partition", "key"]))
    assert expected.equals(read_ours(cluster, one_by_one, len(keys)).select(["partition", "key"]))


def test_a_batch_may_name_topics_and_partitions_and_be_one_that_was_read(cluster, kafka_topic):
    one, two, copy = kafka_topic(4, prefix="one"), kafka_topic(2, prefix="two"), kafka_topic(4, prefix="copy")
    batch = pa.table(
        {
            "topic": [one, two, one, two],
            "partition": pa.array([3, 1, None, None], pa.int32()),
            "key": ["a", "b", "c", "d"],
            "value": pa.array(["ä", None, "", "z"], pa.large_string()),
        }
    )
    with ka.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        result = producer.send_batch(batch).result(timeout=slow_s(20))
        assert {tp for tp in result.partitions if tp.partition in (3, 1)} >= {(one, 3), (two, 1)}
        read = read_ours(cluster, one, 2)
        producer.send_batch(read, topic=copy)
        producer.flush(timeout_ms=200_000)
    assert read.column("value").to_pylist() in ([b"\xc3\xa4", b""], [b"", b"\xc3\xa4"])
    assert read_ours(cluster, two, 2).column("value").to_pylist().count(None) == 1
    assert read_ours(cluster, copy, 2).drop_columns(["topic"]).equals(read.drop_columns(["topic"]))


def test_rows_without_a_key_fill_one_partition_after_another(cluster, kafka_topic):
    topic = kafka_topic(4)
    with ka.Producer(bootstrap_servers=cluster.bootstrap_servers, batch_size=10_000) as producer:
        producer.send_batch(pa.record_batch({"value": [b"x" * 100] * 20_000}), topic).result(
            timeout=slow_s(20)
        )
    counts = cluster.end_offsets(topic)
    assert sum(counts.values()) == 20_000
    assert min(counts.values()) > 1000


def test_each_future_knows_where_its_record_is(cluster, kafka_topic):
    topic = kafka_topic(3)
    with ka.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        futures = [producer.send(topic, b"%d" % i, partition=i % 3, timestamp_ms=1000 + i) for i in range(99)]
        places = [future.result(timeout=slow_s(20)) for future in futures]
    assert [(p.partition, p.offset, p.timestamp_ms) for p in places] == [
        (i % 3, i // 3, 1000 + i) for i in range(99)
    ]


def test_log_append_time_is_the_brokers(cluster, kafka_topic):
    topic = kafka_topic(1, config={"message.timestamp.type": "LogAppendTime"})
    with ka.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        place = producer.send(topic, b"x", timestamp_ms=1).result(timeout=slow_s(20))
    assert abs(place.timestamp_ms - time.time() * 1000) < 60_000


def test_an_asyncio_producer_does_the_same(cluster, kafka_topic):
    topic = kafka_topic(2)

    async def main():
        async with ka.AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            future = await producer.send(topic, "text", key="k", headers={"h": b"1"})
            place = await future
            many = await producer.send_batch(pa.record_batch({"value": [b"x"] * 1000}), topic)
            await producer.flush(timeout_ms=200_000)
            assert many.done()
            return place

    place = asyncio.run(main())
    assert place.topic == topic
    table = read_ours(cluster, topic, 1001)
    assert {"key": "h", "value": b"1"} in table.column("headers").to_pylist()[0:1001][
        table.column("key").to_pylist().index(b"k")
    ]


# ------------------------------------------------------------ limits and errors


@pytest.mark.kafka
def test_a_batch_too_large_for_the_topic_is_split_and_nothing_is_lost(cluster, kafka_topic):
    topic = kafka_topic(1, config={"max.message.bytes": "20000"})
    values = [b"%05d" % i + bytes(100) for i in range(3000)]
    with ka.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        result = producer.send_batch(pa.record_batch({"value": values}), topic).result(timeout=slow_s(20))
    assert sum(r.records for r in result.partitions[topic, 0]) == 3000
    assert read_ours(cluster, topic, 3000).column("value").to_pylist() == values


def test_too_large_a_record_is_named_before_it_is_sent(cluster, kafka_topic):
    topic = kafka_topic(1)
    with ka.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        batch = pa.record_batch({"value": [b"small", bytes(2_000_000)]})
        with pytest.raises(MessageTooLargeError, match=rf"for {topic}: row 1 takes .* max_request_size"):
            producer.send_batch(batch, topic)
        with pytest.raises(MessageTooLargeError, match=rf"for {topic}-0: the record takes"):
            producer.send(topic, bytes(2_000_000))
        producer.flush(timeout_ms=200_000)
    assert cluster.end_offsets(topic) == {(topic, 0): 0}


@pytest.mark.kafka
def test_a_record_that_the_broker_refuses_has_its_error_and_others_are_delivered(cluster, kafka_topic):
    compacted = kafka_topic(1, config={"cleanup.policy": "compact"})
    producer = ka.Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0)
    refused = producer.send(compacted, b"no key")
    assert "INVALID_RECORD" in str(refused.exception(timeout=slow_s(20)))
    producer.flush(timeout_ms=200_000)  # it was looked at: nothing is raised
    assert producer.send(compacted, b"v", key=b"k").result(timeout=slow_s(20)).offset == 0
    producer.send_batch(pa.record_batch({"value": [b"no key"] * 3}), compacted)
    with pytest.raises(UndeliveredError, match=rf"3 records were not delivered: .*{compacted}-0"):
        producer.close(timeout_ms=200_000)


def test_options_columns_and_calls_that_cannot_be_are_named(cluster, kafka_topic):
    topic = kafka_topic(2)
    for options, match in [
        ({"transactional_id": " "}, "transactional_id: is empty"),
        ({"transactional_id": "t", "acks": "1"}, "acks: is 1: must be 'all' with a transactional_id"),
        ({"acks": 0}, "acks: is 0"),
        ({"acks": 1}, "acks: is 1: must be 'all' unless"),
        ({"max_in_flight_requests_per_connection": 6}, "must be 5 at most"),
        ({"delivery_timeout_ms": 10}, "must be at least linger_ms"),
        ({"compression_type": "brotli"}, "accepts 'none' or 'gzip'"),
    ]:
        with pytest.raises(ConfigError, match=match):
            ka.Producer(**options)
    producer = ka.Producer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=500)
    until_known(producer, topic)
    with producer:
        for columns, match in [
            ({"val": [b"x"]}, "column 'val'"),
            ({"value": [1]}, "column value is int64"),
            ({"value": [b"x"], "partition": [7]}, f"{topic} has no partition 7"),
            ({"value": [b"x"], "headers": [b"h"]}, "column headers is binary"),
        ]:
            with pytest.raises(UsageError, match=match):
                producer.send_batch(pa.record_batch(columns), topic)
        with pytest.raises(UsageError, match="give topic="):
            producer.send_batch(pa.record_batch({"value": [b"x"]}))
        with pytest.raises(UsageError, match="value is an int"):
            producer.send(topic, 7)
        with pytest.raises(KafkaTimeoutError, match="topic 'missing' is not in the cluster's metadata"):
            producer.send("missing", b"x")
    with pytest.raises(UsageError, match="closed"):
        producer.send(topic, b"x")


def test_no_broker_is_named_and_nothing_hangs():
    with pytest.raises(NoBrokersAvailable, match=r"127\.0\.0\.1:1"):
        ka.Producer(bootstrap_servers="127.0.0.1:1", request_timeout_ms=1000).send("t", b"x")


def test_memory_is_bounded_and_whoever_sends_more_waits(fake_kafka):
    topic = fake_kafka.create_topic("orders")
    batch = pa.record_batch({"value": [bytes(1000)] * 1000})
    options = {"bootstrap_servers": fake_kafka.bootstrap_servers, "buffer_memory": 4_000_000}
    producer = ka.Producer(**options, max_block_ms=500)
    until_known(producer, topic)
    held = fake_kafka.on("Produce", Hold(), times=None)
    with pytest.raises(KafkaTimeoutError, match=f"{topic}: no room in buffer_memory"):  # noqa: PT012
        for _ in range(10):
            producer.send_batch(batch, topic)
    assert 4_000_000 <= producer._core.intake.used < 5_100_000
    held.release()
    producer.close(timeout_ms=1_000 * slow_s(60))
    assert producer._core.intake.used == 0
    held.end()

    held = fake_kafka.on("Produce", Hold(), times=None)
    with ka.Producer(**options) as producer, ThreadPoolExecutor(1) as thread:
        sending = thread.submit(lambda: [producer.send_batch(batch, topic) for _ in range(20)])
        until(lambda: producer._core.intake.full, 20, "a full memory")
        assert not sending.done()
        assert producer._core.intake.used < 5_100_000
        held.release()
        sent = sending.result(timeout=slow_s(60))
        assert sum(future.result(timeout=slow_s(60)).rows for future in sent) == 20_000
    assert producer._core.intake.used == 0


def test_a_topic_that_is_made_anew_under_requests_on_their_way_gets_their_records_in_order(fake_kafka):
    """A topic of the same name would take the second request after it refused the first: it doesn't know the producer."""
    topic = fake_kafka.create_topic("orders")
    with ka.Producer(bootstrap_servers=fake_kafka.bootstrap_servers, batch_size=100) as producer:
        producer.send(topic, b"before").result(timeout=slow_s(20))
        first, second = (fake_kafka.on("Produce", Hold()) for _ in range(2))
        sent = [producer.send(topic, b"%0100d" % n) for n in range(5)]  # each fills a batch
        until(lambda: first.calls, 20, "the first request")
        fake_kafka.delete_topic(topic)
        first.release()
        until(lambda: second.calls, 20, "the second request")
        fake_kafka.create_topic(topic)
        second.release()
        for future in sent:
            future.result(timeout=slow_s(30))
    assert [int(record.value) for record in fake_kafka.records(topic)] == [0, 1, 2, 3, 4]


def in_vain(_, response):
    """A response by which the broker has waited for its replicas in vain, after it wrote the batch."""
    data = response.responses[0].partition_responses[0]
    failed = replace(data, error_code=RequestTimedOutError.code, base_offset=-1)
    return replace(response, responses=[replace(response.responses[0], partition_responses=[failed])])


@pytest.mark.parametrize("lost", [1, 3, 5])
def test_batches_whose_answers_are_lost_are_there_once_when_their_broker_starts_again(fake_kafka, lost):
    """It remembers the last one alone, and says of each before that it misses what came before."""
    topic = fake_kafka.create_topic("orders")
    with ka.Producer(bootstrap_servers=fake_kafka.bootstrap_servers, batch_size=100) as producer:
        producer.send(topic, b"%0100d" % 0).result(timeout=slow_s(20))
        fake_kafka.on("Produce", ChangeResponse(in_vain), times=lost)
        futures = [producer.send(topic, b"%0100d" % n) for n in range(1, 8)]
        until(lambda: len(fake_kafka.records(topic)) > lost, 20, "what is written")
        fake_kafka.restart(1)
        offsets = [future.result(timeout=slow_s(30)).offset for future in futures]
    assert [int(record.value) for record in fake_kafka.records(topic)] == list(range(8))
    assert all(offset in (-1, n) for n, offset in enumerate(offsets, 1))
