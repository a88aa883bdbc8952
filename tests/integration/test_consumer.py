"""`Consumer`: reading, positions, offsets."""

import time

import pytest
from fakes.reading import consumers, values
from waiting import slow_s

import kafka_actors as ka
from kafka_actors.errors import (
    ConfigError,
    IllegalGenerationError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    NotCoordinatorError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from kafka_actors.records import SCHEMA
from kafka_actors.types import OffsetAndMetadata, TopicPartition


def read(consumer, count, timeout=30.0):
    """The values of `count` records by partition, in the order in which they came."""
    seen, got, deadline = {}, 0, time.monotonic() + slow_s(timeout)
    while got < count and time.monotonic() < deadline:
        batch = consumer.poll_batch(timeout_ms=500)
        if batch is not None:
            seen.setdefault(batch["partition"][0].as_py(), []).extend(batch["value"].to_pylist())
            got += batch.num_rows
    return seen


@pytest.fixture
def consumer_of(cluster):
    """Makes consumers on the broker and closes them."""
    yield from consumers(cluster.bootstrap_servers)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_is_read_once_and_in_order_whatever_its_codec(consumer_of, kafka_topic, produce, codec):
    topic = kafka_topic(partitions=3)
    for partition in range(3):
        produce(topic, values(5_000), partition=partition, compression=codec)
    consumer = consumer_of()
    consumer.assign([TopicPartition(topic, p) for p in range(3)])
    assert read(consumer, 15_000) == {p: values(5_000) for p in range(3)}
    assert consumer.poll_batch(timeout_ms=50) is None
    for p in range(3):
        assert consumer.position(TopicPartition(topic, p)) == 5_000
        assert consumer.lag(TopicPartition(topic, p)) == 0


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("codec", "sent"), [("gzip", "lz4"), ("snappy", "zstd"), ("lz4", "gzip"), ("zstd", "snappy")]
)
def test_what_brokers_compress_anew_is_read_whole(consumer_of, kafka_topic, produce, codec, sent):
    """Brokers compress by the topic's own `compression.type`: their frames are not a producer's."""
    topic = kafka_topic(config={"compression.type": codec})
    produce(topic, values(20_000), partition=0, compression=sent)
    consumer = consumer_of()
    consumer.assign([TopicPartition(topic, 0)])
    assert read(consumer, 20_000) == {0: values(20_000)}


def test_a_batch_has_the_columns_that_spark_expects(consumer_of, kafka_topic, produce):
    topic = kafka_topic()
    produce(
        topic,
        [b"v", None],
        keys=[b"k", None],
        headers=[[("h", b"1"), ("h", None)], None],
        timestamps=[1000, 2000],
    )
    consumer = consumer_of()
    consumer.assign([TopicPartition(topic, 0)])
    batch = consumer.poll_batch(timeout_ms=100_000)
    assert batch.schema == SCHEMA
    rows = batch.to_pylist()
    assert [(r["key"], r["value"], r["offset"], r["topic"], r["partition"]) for r in rows] == [
        (b"k", b"v", 0, topic, 0),
        (None, None, 1, topic, 0),
    ]
    assert [r["timestamp"].timestamp() for r in rows] == [1.0, 2.0]
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert rows[1]["headers"] is None


def test_messages_are_a_view_on_the_same_records(consumer_of, kafka_topic, produce):
    topic = kafka_topic()
    produce(
        topic,
        values(3000),
        keys=values(3000),
        headers=[[("a", b"b")]] * 3000,
        timestamps=list(range(1, 3001)),
    )
    consumer = consumer_of()
    consumer.assign([TopicPartition(topic, 0)])
    messages = []
    for message in consumer:
        messages.append(message)
        assert consumer.position(TopicPartition(topic, 0)) == message.offset + 1
        if message.offset == 2999:
            break
    assert [m.value for m in messages] == [m.key for m in messages] == values(3000)
    assert [m.offset + 1 for m in messages] == [m.timestamp for m in messages] == list(range(1, 3001))
    first = messages[0]
    assert (first.topic, first.partition, first.timestamp_type, first.headers) == (
        topic,
        0,
        0,
        (("a", b"b"),),
    )


def test_a_batch_after_a_few_messages_goes_on_where_they_ended(consumer_of, kafka_topic, produce):
    topic = kafka_topic()
    produce(topic, values(100))
    consumer = consumer_of()
    consumer.assign([TopicPartition(topic, 0)])
    for message in consumer:
        if message.offset == 9:
            break
    assert consumer.poll_batch(timeout_ms=100_000)["offset"].to_pylist()[0] == 10


@pytest.mark.kafka
def test_the_group_reads_everything_and_goes_on_from_its_commits(
    consumer_of, cluster, kafka_topic, produce, group_id
):
    topic = kafka_topic(partitions=4)
    counts = produce(topic, values(2000))
    first = consumer_of([topic], group_id=group_id)
    seen = read(first, 2000)
    assert sum(len(v) for v in seen.values()) == 2000
    first.commit()
    first.close()
    committed = cluster.committed(group_id)
    assert {p: o for (_, p), o in committed.items()} == counts
    produce(topic, values(10, 5000))
    second = consumer_of([topic], group_id=group_id)
    assert sorted(v for vs in read(second, 10).values() for v in vs) == values(10, 5000)
    assert second.poll_batch(timeout_ms=100) is None


def test_close_commits_what_came_before_the_batch_in_hand(consumer_of, kafka_topic, produce, group_id):
    topic = kafka_topic()
    produce(topic, values(50))
    tp = TopicPartition(topic, 0)
    consumer = consumer_of([topic], group_id=group_id)
    assert read(consumer, 50)
    produce(topic, values(50, 50))
    assert read(consumer, 50)
    consumer.close()
    again = consumer_of([topic], group_id=group_id)
    assert again.committed([tp])[tp].offset == 50


def test_close_commits_what_came_before_the_message_in_hand(consumer_of, kafka_topic, produce, group_id):
    topic = kafka_topic()
    produce(topic, values(50))
    tp = TopicPartition(topic, 0)
    consumer = consumer_of([topic], group_id=group_id)
    for message in consumer:
        if message.offset == 20:
            break
    consumer.close()
    again = consumer_of(group_id=group_id)
    assert again.committed([tp])[tp].offset == 20
    again.assign([tp])
    assert next(iter(again)).offset == 20


def test_commit_covers_the_message_in_hand(consumer_of, kafka_topic, produce, group_id):
    topic = kafka_topic()
    produce(topic, values(50))
    tp = TopicPartition(topic, 0)
    consumer = consumer_of([topic], group_id=group_id, enable_auto_commit=False)
    for message in consumer:
        if message.offset == 20:
            break
    consumer.commit()
    assert consumer.committed([tp])[tp].offset == 21
    consumer.commit({tp: OffsetAndMetadata(7, "mine")})
    assert consumer.committed([tp])[tp][:2] == (7, "mine")


def test_auto_commit_goes_on_between_polls(consumer_of, cluster, kafka_topic, produce, group_id):
    topic = kafka_topic()
    produce(topic, values(50))
    consumer = consumer_of([topic], group_id=group_id, auto_commit_interval_ms=200)
    assert read(consumer, 50)
    deadline = time.monotonic() + slow_s(10)
    # An earlier one may have committed where reading began, before records came.
    while cluster.committed(group_id) != {(topic, 0): 50}:
        assert time.monotonic() < deadline, cluster.committed(group_id)
        assert consumer.poll_batch(timeout_ms=100) is None


def test_an_auto_commit_that_failed_is_tried_again_though_nothing_new_was_read(
    consumer_of, cluster, kafka_topic, produce, group_id
):
    topic = kafka_topic()
    produce(topic, values(10))
    consumer = consumer_of([topic], group_id=group_id, auto_commit_interval_ms=200)
    assert read(consumer, 10) == {0: values(10)}
    core = consumer._session.core
    commit, failed = core.commit, []

    async def fails_once(offsets, timeout_s):
        if not failed and offsets[TopicPartition(topic, 0)].offset == 10:
            failed.append(offsets)
            raise NotCoordinatorError("it moves")
        await commit(offsets, timeout_s)

    core.commit = fails_once
    deadline = time.monotonic() + slow_s(20)
    while cluster.committed(group_id) != {(topic, 0): 10}:
        assert time.monotonic() < deadline, failed
        assert consumer.poll_batch(timeout_ms=100) is None
    assert failed


def test_seek_moves_the_position_whatever_is_fetched_already(consumer_of, kafka_topic, produce):
    topic = kafka_topic()
    tp = TopicPartition(topic, 0)
    produce(topic, values(1000))
    consumer = consumer_of()
    consumer.assign([tp])
    assert consumer.poll_batch(timeout_ms=100_000)["offset"][0].as_py() == 0
    consumer.seek(tp, 500)
    assert consumer.position(tp) == 500
    assert consumer.poll_batch(timeout_ms=100_000)["offset"][0].as_py() == 500
    consumer.seek_to_beginning(tp)
    assert consumer.position(tp) == 0
    assert consumer.poll_batch(timeout_ms=100_000)["offset"][0].as_py() == 0
    consumer.seek_to_end()
    assert consumer.position(tp) == 1000
    produce(topic, [b"new"])
    assert consumer.poll_batch(timeout_ms=100_000)["value"].to_pylist() == [b"new"]
    consumer.seek(tp, 10)
    assert next(iter(consumer)).offset == 10


def test_paused_partitions_hand_out_nothing_until_resumed(consumer_of, kafka_topic, produce):
    topic = kafka_topic(partitions=2)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(topic, values(1000), partition=0)
    produce(topic, values(1000), partition=1)
    consumer = consumer_of()
    consumer.assign([one, two])
    consumer.pause(one)
    assert consumer.paused() == {one}
    assert read(consumer, 1000) == {1: values(1000)}
    assert consumer.poll_batch(timeout_ms=200) is None
    consumer.resume(one)
    assert consumer.paused() == set()
    assert read(consumer, 1000) == {0: values(1000)}


def test_a_pause_in_the_middle_of_a_batch_holds_the_rest_back(consumer_of, kafka_topic, produce):
    topic = kafka_topic(partitions=2)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(topic, values(100), partition=0)
    produce(topic, values(100), partition=1)
    consumer = consumer_of()
    consumer.assign([one, two])
    seen = []
    for message in consumer:
        seen.append((message.partition, message.offset))
        if len(seen) == 10:
            held = TopicPartition(topic, message.partition)
            consumer.pause(held)
            break
    other = 1 - held.partition
    assert read(consumer, 100) == {other: values(100)}
    consumer.resume(held)
    assert read(consumer, 90) == {held.partition: values(90, 10)}


def test_what_the_log_has_can_be_asked(consumer_of, cluster, kafka_topic, produce):
    topic = kafka_topic()
    tp = TopicPartition(topic, 0)
    produce(topic, values(100), timestamps=[1_000_000 + i * 10 for i in range(100)])
    consumer = consumer_of()
    assert consumer.partitions_for_topic(topic) == {0}
    assert consumer.partitions_for_topic("no-such-topic") is None
    assert topic in consumer.topics()
    assert "__consumer_offsets" not in consumer.topics()
    assert consumer.beginning_offsets([tp]) == {tp: 0}
    assert consumer.end_offsets([tp]) == {tp: 100}
    found = consumer.offsets_for_times({tp: 1_000_495})
    assert (found[tp].offset, found[tp].timestamp) == (50, 1_000_500)
    assert consumer.offsets_for_times({tp: 9_000_000}) == {tp: None}


def test_latest_reads_what_is_written_from_then_on(consumer_of, kafka_topic, produce):
    topic = kafka_topic()
    tp = TopicPartition(topic, 0)
    produce(topic, values(100))
    consumer = consumer_of(auto_offset_reset="latest")
    consumer.assign([tp])
    assert consumer.position(tp) == 100
    produce(topic, values(10, 100))
    assert read(consumer, 10) == {0: values(10, 100)}


def test_by_duration_starts_at_the_first_record_young_enough(consumer_of, kafka_topic, produce):
    topic = kafka_topic()
    now = int(time.time() * 1000)
    produce(topic, values(10), timestamps=[now - 7_200_000] * 5 + [now] * 5)
    consumer = consumer_of(auto_offset_reset="by_duration:PT1H")
    consumer.assign([TopicPartition(topic, 0)])
    assert read(consumer, 5) == {0: values(5, 5)}
    future = consumer_of(auto_offset_reset="by_duration:PT0.000001S")
    future.assign([TopicPartition(topic, 0)])
    assert future.position(TopicPartition(topic, 0)) == 10


# ---------------------------------------------------------------- errors that name their cause


def test_a_wrong_option_fails_before_anything_connects():
    with pytest.raises(ConfigError, match="max_partition_fetch_bytes"):
        ka.Consumer(max_partition_fetch_byte=1, bootstrap_servers="256.0.0.1:1")
    with pytest.raises(ConfigError, match="group_id"):
        ka.Consumer(["t"], bootstrap_servers="256.0.0.1:1")
    with pytest.raises(ConfigError, match="partition_assignment_strategy: unknown assignor 'rnage'"):
        ka.Consumer(partition_assignment_strategy="rnage", bootstrap_servers="256.0.0.1:1")


def test_a_wrong_address_is_one_clear_line(consumer_of):
    consumer = consumer_of(bootstrap_servers="127.0.0.1:1", request_timeout_ms=500)
    with pytest.raises(NoBrokersAvailable, match=r"127.0.0.1:1"):
        consumer.topics()


def test_calls_that_need_an_assignment_say_so(consumer_of):
    consumer = consumer_of()
    tp = TopicPartition("t", 0)
    for call in (lambda: consumer.seek(tp, 0), lambda: consumer.position(tp), lambda: consumer.pause(tp)):
        with pytest.raises(UsageError, match="t-0 is not assigned"):
            call()
    with pytest.raises(ConfigError, match="group_id"):
        consumer.commit()


@pytest.mark.parametrize("by_hand", [True, False])
def test_commit_of_a_partition_that_there_is_not_names_it_at_once(
    consumer_of, kafka_topic, group_id, by_hand
):
    topic = kafka_topic(partitions=2)
    consumer = consumer_of(group_id=group_id)
    if by_hand:
        consumer.assign([TopicPartition(topic, 0)])
    else:
        consumer.subscribe([topic])
    consumer.poll_batch(timeout_ms=100)
    with pytest.raises(UnknownTopicOrPartitionError) as caught:
        consumer.commit({TopicPartition(topic, 7): 1})
    assert f"for {topic}-7: can't be committed: the topic has 2 partitions" in str(caught.value)


def test_commit_of_another_members_partition_says_whose_it_is_not(consumer_of, kafka_topic, group_id):
    topic, other = kafka_topic(), kafka_topic()
    consumer = consumer_of([topic], group_id=group_id)
    with pytest.raises(IllegalGenerationError) as caught:
        consumer.commit({TopicPartition(other, 0): 1})
    assert f"for {other}-0: the partition is not assigned to this member" in str(caught.value)
    assert "in answer to" not in str(caught.value)


def test_wrong_arguments_are_refused_before_anything_is_done(consumer_of, kafka_topic):
    consumer, tp = consumer_of(), TopicPartition(kafka_topic(), 0)
    consumer.assign([tp])
    for call, says in [
        (lambda: consumer.seek(tp, "x"), "can't seek"),
        (lambda: consumer.seek("t", 0), "'t', a str, is no partition"),
        (lambda: consumer.pause("t"), "'t', a str, is no partition"),
        (lambda: consumer.position(5), "5, an int, is no partition"),
        (lambda: consumer.end_offsets(tp), "is no list of partitions"),
        (lambda: consumer.poll_batch(timeout_ms="soon"), "timeout_ms is 'soon'"),
    ]:
        with pytest.raises(UsageError, match=says):
            call()


def test_a_closed_consumer_says_so_and_can_be_closed_again(consumer_of, kafka_topic):
    consumer = consumer_of()
    consumer.assign([TopicPartition(kafka_topic(), 0)])
    consumer.poll_batch(timeout_ms=0)
    consumer.close()
    consumer.close()
    with pytest.raises(UsageError, match="closed"):
        consumer.poll_batch()


def test_a_position_that_never_becomes_known_is_a_timeout(consumer_of, kafka_topic):
    topic = kafka_topic()
    consumer = consumer_of()
    missing = TopicPartition(topic, 7)
    consumer.assign([missing])
    consumer.topics()  # it is connected then: the limit is for the position
    with pytest.raises(KafkaTimeoutError, match=f"{topic}-7"):
        consumer.position(missing, timeout_ms=500)
