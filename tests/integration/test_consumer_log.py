"""Logs as a consumer reads them: compacted, with transactions, truncated at the start, deleted, grown."""

import time
from functools import partial

import confluent_kafka
import pytest
from fakes.reading import consumers, poll_until, values
from jobs.audit import all_records
from msgspec.structs import replace
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.errors import (
    FetchOffsetOutOfRangeError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
)
from kafka_actors.events import NoCommittedOffset, OffsetReset
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.fake_kafka import ChangeResponse
from kafka_actors.types import LATEST, TopicPartition


def read(consumer, count, timeout=30.0):
    got, deadline = [], time.monotonic() + slow_s(timeout)
    while len(got) < count and time.monotonic() < deadline:
        batch = consumer.poll_batch(timeout_ms=500)
        if batch is not None:
            got += list(zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True))
    return got


@pytest.fixture
def any_consumer(cluster):
    yield from consumers(cluster.bootstrap_servers)


@pytest.fixture
def consumer_of(any_consumer):
    """Makes consumers; where a topic is given, of that partition alone."""

    def make(topic=None, partition=0, **options):
        consumer = any_consumer(**options)
        if topic is not None:
            consumer.assign([TopicPartition(topic, partition)])
        return consumer

    return make


@pytest.mark.kafka
def test_a_compacted_log_is_read_to_its_end(consumer_of, cluster, kafka_topic, produce):
    topic = kafka_topic(
        config={
            "cleanup.policy": "compact",
            "segment.ms": 100,
            "min.cleanable.dirty.ratio": 0.001,
            "max.compaction.lag.ms": 100,
            "min.compaction.lag.ms": 0,
        }
    )
    tp = TopicPartition(topic, 0)
    for n in range(6):
        produce(topic, values(10, n * 10), keys=[b"k%d" % (i % 3) for i in range(10)])
        time.sleep(0.2)

    def compacted():
        produce(topic, [b"tick"], keys=[b"k0"])  # a segment is closed by the next record
        return len(list(all_records(cluster.bootstrap_servers, topic))) < 40

    until(compacted, 90)
    consumer = consumer_of(topic)
    end = consumer.end_offsets([tp])[tp]
    until(lambda: consumer.poll_batch(timeout_ms=100) is None and consumer.position(tp) == end)
    assert consumer.lag(tp) == 0


def transactions(cluster, topic, name, plan):
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name}
    )
    producer.init_transactions()
    for what, rows in plan:
        producer.begin_transaction()
        for value in rows:
            producer.produce(topic, value, partition=0)
        producer.flush()
        if what == "commit":
            producer.commit_transaction()
        elif what == "abort":
            producer.abort_transaction()
    return producer


@pytest.mark.kafka
def test_read_committed_sees_no_aborted_record_and_reaches_the_end(
    consumer_of, cluster, kafka_topic, produce
):
    topic = kafka_topic()
    tp = TopicPartition(topic, 0)
    transactions(
        cluster,
        topic,
        f"{topic}-a",
        [("commit", values(10)), ("abort", values(10, 10)), ("commit", values(5, 20))],
    )
    produce(topic, [b"plain"], partition=0)
    transactions(cluster, topic, f"{topic}-b", [("abort", values(200, 100))])
    committed = [*values(10), *values(5, 20), b"plain"]
    consumer = consumer_of(topic, isolation_level="read_committed")
    assert [v for _, v in read(consumer, 16)] == committed
    end = consumer.end_offsets([tp])[tp]
    until(lambda: consumer.poll_batch(timeout_ms=100) is None and consumer.position(tp) == end)
    assert consumer.lag(tp) == 0
    everything = consumer_of(topic)
    assert len(read(everything, 226)) == 226


def test_read_committed_stops_at_an_open_transaction(consumer_of, cluster, kafka_topic, produce):
    topic = kafka_topic()
    tp = TopicPartition(topic, 0)
    produce(topic, values(3), partition=0)
    producer = transactions(cluster, topic, f"{topic}-a", [("open", values(5, 3))])
    consumer = consumer_of(topic, isolation_level="read_committed")
    assert [v for _, v in read(consumer, 3)] == values(3)
    assert consumer.poll_batch(timeout_ms=700) is None
    assert consumer.end_offsets([tp]) == {tp: 3}
    producer.commit_transaction()
    assert [v for _, v in read(consumer, 5)] == values(5, 3)


def test_deleted_records_are_an_error_with_bounds_and_a_seek_goes_on(
    consumer_of, cluster, kafka_topic, produce
):
    topic = kafka_topic()
    tp = TopicPartition(topic, 0)
    produce(topic, values(100))
    consumer = consumer_of(topic)
    assert len(read(consumer, 100)) == 100
    consumer.seek(tp, 10)
    cluster.delete_records(topic, 0, 50)
    consumer.seek(tp, 10)
    with pytest.raises(FetchOffsetOutOfRangeError) as caught:
        read(consumer, 1)
    error = caught.value
    assert (error.offset, error.log_start_offset, error.log_end_offset) == (10, 50, 100)
    consumer.seek(tp, 50)
    assert read(consumer, 50)[0][0] == 50


def test_deleted_records_can_be_passed_over_with_an_event(consumer_of, cluster, kafka_topic, produce):
    topic = kafka_topic()
    produce(topic, values(100))
    cluster.delete_records(topic, 0, 50)
    events = []
    consumer = consumer_of(topic, on_data_loss="reset", events=events.append)
    consumer.seek(TopicPartition(topic, 0), 10)
    assert [o for o, _ in read(consumer, 50)] == list(range(50, 100))
    assert OffsetReset(topic, 0, 10, 50, "out_of_range", 40) in events


def test_policy_none_is_a_typed_error(consumer_of, kafka_topic, produce):
    topic = kafka_topic()
    produce(topic, values(10))
    consumer = consumer_of(topic, auto_offset_reset="none")
    with pytest.raises(NoOffsetForPartitionError, match=topic):
        read(consumer, 1)


def test_a_deleted_and_recreated_topic_is_an_error_of_its_own(consumer_of, cluster, kafka_topic, produce):
    topic = kafka_topic()
    produce(topic, values(10))
    consumer = consumer_of(topic, metadata_max_age_ms=500)
    assert len(read(consumer, 10)) == 10
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1)
    produce(topic, [b"new"])
    with pytest.raises(TopicRecreatedError, match=topic):
        read(consumer, 1)


def test_a_recreated_topic_can_be_read_by_policy_from_its_start(consumer_of, cluster, kafka_topic, produce):
    topic = kafka_topic()
    produce(topic, values(10))
    events = []
    consumer = consumer_of(topic, metadata_max_age_ms=500, on_data_loss="reset", events=events.append)
    assert len(read(consumer, 10)) == 10
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1)
    produce(topic, values(5, 50))
    assert read(consumer, 5) == list(enumerate(values(5, 50)))
    assert OffsetReset(topic, 0, 10, 0, "recreated", 0) in events


def test_a_partition_that_appears_is_read_from_its_start_under_latest(
    consumer_of, cluster, kafka_topic, produce, group_id
):
    topic = kafka_topic()
    events = []
    consumer = consumer_of(
        topics=[topic],
        group_id=group_id,
        auto_offset_reset="latest",
        metadata_max_age_ms=1000,
        events=events.append,
    )
    until(lambda: consumer.poll_batch(timeout_ms=100) is None and consumer.assignment())
    consumer.position(TopicPartition(topic, 0))
    cluster.add_partitions(topic, 2)
    produce(topic, values(100), partition=1)
    assert [v for _, v in read(consumer, 100)] == values(100)
    assert NoCommittedOffset(topic, 1, 0, "earliest") in events


def test_a_budget_smaller_than_a_fetch_still_reads_everything(consumer_of, kafka_topic, produce):
    topic = kafka_topic()
    produce(topic, [b"x" * 1000] * 5000)
    consumer = consumer_of(topic, worker_buffer_bytes=100_000)
    assert len(read(consumer, 5000)) == 5000


def test_a_record_larger_than_every_limit_is_still_delivered(consumer_of, kafka_topic, produce):
    topic = kafka_topic(config={"max.message.bytes": 5_000_000})
    produce(topic, [b"x" * 3_000_000, b"small"], config={"message.max.bytes": 5_000_000})
    consumer = consumer_of(
        topic, worker_buffer_bytes=100_000, fetch_max_bytes=1000, max_partition_fetch_bytes=1000
    )
    assert [len(v) for _, v in read(consumer, 2)] == [3_000_000, 5]


def test_many_partitions_are_all_read(consumer_of, kafka_topic, produce):
    topic = kafka_topic(partitions=100)
    counts = produce(topic, values(20_000))
    consumer = consumer_of(max_partition_fetch_bytes=2000, fetch_max_bytes=20_000)
    consumer.assign([TopicPartition(topic, p) for p in range(100)])
    assert len(read(consumer, 20_000)) == 20_000
    assert {p: consumer.position(TopicPartition(topic, p)) for p in counts} == counts


# ---------------------------------------------------------------- a leader of before


def changed(topics, change):
    """Topics of an answer with all their partitions changed."""
    return [replace(topic, partitions=[change(p) for p in topic.partitions]) for topic in topics]


def suspended(kafka, broker_id, end):
    """Has a broker that leads nothing any more take itself for the leader, under epoch 0, and the log for as long as it was: as one does that was
    suspended and goes on, until the controller tells it. Returns the rules."""

    def led(call, found):
        return replace(
            found, topics=changed(found.topics, lambda p: replace(p, leader_id=broker_id, leader_epoch=0))
        )

    def out_of_range(call, found):
        code = OffsetOutOfRangeError.code
        return replace(found, responses=changed(found.responses, lambda p: replace(p, error_code=code)))

    def bounds(call, found):
        (asked,) = call.request.topics[0].partitions
        if asked.current_leader_epoch > 0:
            return found
        offset = end if asked.timestamp == LATEST else 0
        known = {"error_code": 0, "offset": offset, "leader_epoch": 0}
        return replace(found, topics=changed(found.topics, lambda p: replace(p, **known)))

    rules = [kafka.on("Metadata", ChangeResponse(led), times=None)]
    for api, change in (("Fetch", out_of_range), ("ListOffsets", bounds)):
        rules.append(kafka.on(api, ChangeResponse(change), times=None, broker_id=broker_id))
    return rules


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_leader_of_before_that_was_suspended_takes_no_new_owner_from_its_offset(reset):
    with FakeKafka(2) as kafka:
        topic = kafka.create_topic("orders", replica_assignment=[[1, 2]])
        kafka.produce(topic, values(10))
        kafka.set_leader(topic, 0, 2)
        kafka.produce(topic, values(10, 10))
        consumer_of = partial(
            ka.Consumer,
            bootstrap_servers=kafka.bootstrap_servers,
            group_id="g",
            auto_offset_reset=reset,
            on_data_loss="reset",
        )
        with consumer_of(topic, auto_offset_reset="earliest") as before:
            assert len(read(before, 20)) == 20
            before.commit()
        rules = suspended(kafka, 1, 10)
        events = []
        with consumer_of(topic, events=events.append) as after:
            poll_until([after], lambda: kafka.count("ListOffsets") >= 4)
            for rule in rules:
                rule.end()
            kafka.produce(topic, values(1, 20))
            assert read(after, 1) == [(20, values(1, 20)[0])]
        assert not [event for event in events if isinstance(event, OffsetReset)]
