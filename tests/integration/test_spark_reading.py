"""Plans and reads of a Spark task, against real Kafka and without Spark: ranges, gaps, transactions, lost data."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import Producer
from waiting import slow_s

import kafka_actors as ka
from kafka_actors.errors import (
    ConfigError,
    DataLossError,
    FetchOffsetOutOfRangeError,
    KafkaTimeoutError,
    MalformedTimestampError,
    NoBrokersAvailable,
    TopicRecreatedError,
    UnknownTopicOrPartitionError,
)
from kafka_actors.events import BadBatchSkipped, Event
from kafka_actors.spark.source.machines.offset_ranges import TaskRange
from kafka_actors.spark.source.options import parse_batch
from kafka_actors.spark.source.planning import plan
from kafka_actors.spark.source.task_reader import ReadSession, read_ranges
from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.produce import Produce
from kafka_actors.types import TopicPartition

pytestmark = pytest.mark.kafka

Topic = Callable[..., str]
SHORT = {"kafkaConsumer.pollTimeoutMs": "2000"}


class Reads:
    """Plans and reads with options, as a query does."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._servers = cluster.bootstrap_servers

    def plan(self, **options: str) -> list[TaskRange]:
        return plan(parse_batch({"kafka.bootstrap.servers": self._servers, **options}))

    def bounds(self, **options: str) -> dict[int, tuple[int, int]]:
        return {r.partition: (r.start, r.end) for r in self.plan(**options)}

    def read(
        self, ranges: list[TaskRange], known: Callable[[int], bool] | None = None, **options: str
    ) -> list[dict[str, Any]]:
        """Reads. With `known` the time of a wait for records isn't over before that is so, told the number of rows that have come."""
        parsed = parse_batch({"kafka.bootstrap.servers": self._servers, **options})
        found: list[dict[str, Any]] = []
        looks = itertools.count()

        def clock() -> float:
            if known is None:
                return time.monotonic()
            return 1e6 * next(looks) if known(len(found)) else 0.0

        for batch in read_ranges(parsed, tuple(r for r in ranges if r.size), clock):
            found += batch.to_pylist()
        return found

    def all(self, **options: str) -> list[dict[str, Any]]:
        return self.read(self.plan(**options), **options)


@pytest.fixture
def reads(kafka_cluster: KafkaCluster) -> Reads:
    return Reads(kafka_cluster)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Callable[[], ReadSession]:
    """Returns the session of the read that has begun last."""
    begun: list[ReadSession] = []
    begin = ReadSession.begin

    def noted(session: ReadSession, partitions: Iterable[TopicPartition]) -> None:
        begun.append(session)
        begin(session, partitions)

    monkeypatch.setattr(ReadSession, "begin", noted)
    return lambda: begun[-1]


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    return [row["offset"] for row in rows]


# ---------------------------------------------------------------- what is selected


def test_a_pattern_matches_whole_names_and_no_internal_topics(
    reads: Reads, kafka_topic: Topic, produce: Produce
) -> None:
    first, second = kafka_topic(prefix="pat-a"), kafka_topic(2, prefix="pat-b")
    kafka_topic(prefix="xpat-a")
    planned = reads.plan(subscribePattern="pat-.*")
    names = {r.topic for r in planned}
    assert {first, second} <= names
    assert all(name.startswith("pat-") for name in names)
    assert {r.topic for r in reads.plan(subscribePattern=".*")}.isdisjoint({"__consumer_offsets"})


def test_assigned_partitions_alone_are_read(reads: Reads, kafka_topic: Topic, produce: Produce) -> None:
    topic = kafka_topic(3)
    produce(topic, [b"0", b"1", b"2"], partition=[0, 1, 2])
    rows = reads.all(assign=f'{{"{topic}":[2,0]}}')
    assert sorted((row["partition"], row["value"]) for row in rows) == [(0, b"0"), (2, b"2")]


def test_a_partition_or_topic_that_is_not_there_is_named(reads: Reads, kafka_topic: Topic) -> None:
    topic = kafka_topic(1)
    with pytest.raises(ConfigError, match=rf"^assign: has {topic}-7: there is no such partition$"):
        reads.plan(assign=f'{{"{topic}":[7]}}')
    with pytest.raises(ConfigError, match=r"^subscribe: there is no topic 'not-there' in the cluster$"):
        reads.plan(subscribe=f"{topic},not-there")
    with pytest.raises(ConfigError, match=r"^subscribePattern: is 'not-there-.*': no topic of the cluster"):
        reads.plan(subscribePattern="not-there-.*")


def test_a_wrong_address_is_one_line_that_names_it() -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a", "kafka.request.timeout.ms": "1000"}
    with pytest.raises(
        NoBrokersAvailable, match=r"^none of the bootstrap_servers answered within \d+ s: 127\.0\.0\.1:1: "
    ) as e:
        plan(parse_batch(options))
    assert "\n" not in str(e.value)


# ---------------------------------------------------------------- where it starts and ends


def test_ranges_by_offset(reads: Reads, kafka_topic: Topic, produce: Produce) -> None:
    topic = kafka_topic(2)
    produce(topic, [b"%d" % i for i in range(20)], partition=[i % 2 for i in range(20)])
    chosen = {
        "subscribe": topic,
        "startingOffsets": f'{{"{topic}":{{"0":3,"1":-2}}}}',
        "endingOffsets": f'{{"{topic}":{{"0":5,"1":-1}}}}',
    }
    assert reads.bounds(**chosen) == {0: (3, 5), 1: (0, 10)}
    rows = reads.all(**chosen)
    assert [row["value"] for row in rows if row["partition"] == 0] == [b"6", b"8"]
    assert [row["offset"] for row in rows if row["partition"] == 1] == list(range(10))
    with pytest.raises(ConfigError, match=rf"^startingOffsets: .*lacks {topic}-1$"):
        reads.plan(subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":3}}}}')


def test_ranges_by_timestamp(reads: Reads, kafka_topic: Topic, produce: Produce) -> None:
    topic = kafka_topic(2)
    now = int(time.time() * 1000)  # wall clock: what brokers accept as a record's timestamp is near it
    produce(
        topic, [b"%d" % i for i in range(10)], partition=0, timestamps=[now + 1000 * i for i in range(10)]
    )
    produce(topic, [b"x"], partition=1, timestamps=[now])
    middle, late = str(now + 3000), str(now + 7000)
    with pytest.raises(
        ConfigError, match=rf"^startingTimestamp: no record of {topic}-1 is at or after {middle};"
    ):
        reads.plan(subscribe=topic, startingTimestamp=middle)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert reads.bounds(subscribe=topic, startingTimestamp=middle, **latest) == {0: (3, 10), 1: (1, 1)}
    assert reads.bounds(subscribe=topic, endingTimestamp=late) == {0: (0, 7), 1: (0, 1)}
    each = f'{{"{topic}":{{"0":{middle},"1":{now}}}}}'
    assert reads.bounds(subscribe=topic, startingOffsetsByTimestamp=each) == {0: (3, 10), 1: (0, 1)}


def test_an_empty_topic_has_empty_ranges(reads: Reads, kafka_topic: Topic) -> None:
    assert reads.bounds(subscribe=kafka_topic(2)) == {0: (0, 0), 1: (0, 0)}


# ---------------------------------------------------------------- gaps


def test_a_compacted_topic_ends_although_records_before_its_end_are_gone(
    reads: Reads, kafka_topic: Topic, produce: Produce, kafka_cluster: KafkaCluster
) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": 200, "min.cleanable.dirty.ratio": 0.01}
    topic = kafka_topic(1, config={**config, "segment.bytes": 1048576, "max.compaction.lag.ms": 200})
    total = 0
    for _ in range(3):
        total += sum(
            produce(
                topic, [b"%d" % i for i in range(500)], keys=[b"%d" % (i % 5) for i in range(500)]
            ).values()
        )
        time.sleep(0.3)
    ranges = reads.plan(subscribe=topic)
    assert [(r.start, r.end) for r in ranges] == [(0, total)]
    deadline = time.monotonic() + slow_s(60)
    # Segments are compacted as they are closed. The first record that is left stays behind the hole that is read to below.
    while offsets(rows := reads.read(ranges, subscribe=topic))[0] < 100:
        assert time.monotonic() < deadline, "the topic was not compacted"
        time.sleep(0.5)
    assert offsets(rows) == sorted(set(offsets(rows)))
    assert rows[-1]["offset"] == total - 1
    # An end amid what is gone: no record has the last offset of the range.
    kept = set(offsets(rows))
    hole = next(o for o in range(100, total) if o - 1 not in kept)
    cut = [TaskRange(topic, 0, 0, hole, ranges[0].topic_id)]
    assert offsets(reads.read(cut, subscribe=topic)) == sorted(o for o in kept if o < hole)


def transactional(cluster: KafkaCluster, name: str) -> Producer:
    """A producer in transactions, none of which is ended by the broker while a test takes its time."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": name,
            "transaction.timeout.ms": 900_000,
        }
    )
    producer.init_transactions(slow_s(30))
    return producer


def test_transactions_are_read_as_the_isolation_level_says(
    reads: Reads, kafka_topic: Topic, kafka_cluster: KafkaCluster
) -> None:
    topic = kafka_topic(1)
    producer = transactional(kafka_cluster, topic)
    for outcome in ("commit", "abort", "commit"):
        producer.begin_transaction()
        for i in range(3):
            producer.produce(topic, f"{outcome}-{i}", partition=0)
        producer.flush()
        end = producer.commit_transaction if outcome == "commit" else producer.abort_transaction
        end(slow_s(30))
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush()
    committed = {"subscribe": topic, "kafka.isolation.level": "read_committed"}
    # Each transaction ends with a marker, so the last offset of the range is no record.
    assert reads.bounds(**committed) == {0: (0, 12)}
    rows = reads.all(**committed)
    assert [row["value"] for row in rows] == [b"commit-0", b"commit-1", b"commit-2"] * 2
    assert offsets(rows) == [0, 1, 2, 8, 9, 10]
    everything = reads.all(subscribe=topic)
    assert [row["value"] for row in everything][3:6] == [b"abort-0", b"abort-1", b"abort-2"]
    assert everything[-1]["value"] == b"open"
    ahead = f'{{"{topic}":{{"0":13}}}}'
    with pytest.raises(DataLossError, match=rf"^{topic}-0 at offset 13: .*holds offsets 0 to 12"):
        reads.plan(**committed, endingOffsets=ahead)
    producer.abort_transaction(slow_s(30))


# ---------------------------------------------------------------- data that is lost


def test_a_start_that_retention_has_passed_is_a_named_loss_or_a_warning(
    reads: Reads,
    kafka_topic: Topic,
    produce: Produce,
    kafka_cluster: KafkaCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = kafka_topic(1)
    produce(topic, [b"%d" % i for i in range(10)])
    kafka_cluster.delete_records(topic, 0, 4)
    options = {"subscribe": topic, "startingOffsets": f'{{"{topic}":{{"0":2}}}}'}
    with pytest.raises(DataLossError, match=rf"^{topic}-0 at offset 2: .*the log holds offsets 4 to 10$"):
        reads.plan(**options)
    with caplog.at_level(logging.WARNING):
        assert reads.bounds(**options, failOnDataLoss="false") == {0: (4, 10)}
    assert f"{topic}-0 at offset 2" in caplog.text


def test_records_that_go_between_planning_and_reading(
    reads: Reads,
    kafka_topic: Topic,
    produce: Produce,
    kafka_cluster: KafkaCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = kafka_topic(1)
    produce(topic, [b"%d" % i for i in range(10)])
    ranges = reads.plan(subscribe=topic)
    kafka_cluster.delete_records(topic, 0, 4)
    with pytest.raises(FetchOffsetOutOfRangeError, match=rf"^{topic}-0 at offset 0: offset out of range"):
        reads.read(ranges, subscribe=topic)
    lenient = {"subscribe": topic, "failOnDataLoss": "false"}
    with caplog.at_level(logging.WARNING):
        assert offsets(reads.read(ranges, **lenient)) == list(range(4, 10))
    assert f"{topic}-0 at offset 0: offset out of range" in caplog.text
    kafka_cluster.delete_records(topic, 0, 10)
    assert reads.read(ranges, **lenient) == []


def test_a_topic_made_anew_between_planning_and_reading(
    reads: Reads,
    kafka_topic: Topic,
    produce: Produce,
    kafka_cluster: KafkaCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = kafka_topic(1)
    produce(topic, [b"old"] * 5)
    ranges = reads.plan(subscribe=topic)
    kafka_cluster.delete_topic(topic)
    kafka_cluster.create_topic(topic)
    produce(topic, [b"new"] * 3)
    with pytest.raises(TopicRecreatedError, match=rf"^{topic}-0 at offset 0: the topic was recreated"):
        reads.read(ranges, subscribe=topic)
    with caplog.at_level(logging.WARNING):
        assert reads.read(ranges, subscribe=topic, failOnDataLoss="false") == []
    assert "recreated" in caplog.text


def test_a_topic_that_is_gone_when_it_is_read(
    reads: Reads,
    kafka_topic: Topic,
    produce: Produce,
    kafka_cluster: KafkaCluster,
    session: Callable[[], ReadSession],
) -> None:
    topic = kafka_topic(1)
    produce(topic, [b"x"] * 5)
    ranges = reads.plan(subscribe=topic)
    kafka_cluster.delete_topic(topic)

    def told(rows: int) -> bool:
        return session().client.snapshot.topic_error(topic) == UnknownTopicOrPartitionError.code

    with pytest.raises(DataLossError, match=rf"^{topic}-0 at offset 0: the topic is gone$"):
        reads.read(ranges, told, subscribe=topic, **SHORT)
    assert reads.read(ranges, told, subscribe=topic, failOnDataLoss="false", **SHORT) == []


def test_a_log_that_ends_before_its_range(
    reads: Reads,
    kafka_topic: Topic,
    produce: Produce,
    caplog: pytest.LogCaptureFixture,
    session: Callable[[], ReadSession],
) -> None:
    topic = kafka_topic(1)
    produce(topic, [b"x"] * 5)
    (planned,) = reads.plan(subscribe=topic)
    beyond = [TaskRange(topic, 0, 0, planned.end + 1, planned.topic_id)]

    def at_end(rows: int) -> bool:
        return rows == 5 and session().fetcher.end(planned.tp) == 5

    with pytest.raises(
        DataLossError, match=rf"^{topic}-0 at offset 5: the log ends at 5, before .* range, 6$"
    ):
        reads.read(beyond, at_end, subscribe=topic, **SHORT)
    with caplog.at_level(logging.WARNING):
        assert offsets(reads.read(beyond, at_end, subscribe=topic, failOnDataLoss="false", **SHORT)) == [
            0,
            1,
            2,
            3,
            4,
        ]
    assert f"{topic}-0 at offset 5" in caplog.text


def test_brokers_that_answer_nothing_are_an_error_that_says_where(
    kafka_topic: Topic, produce: Produce, kafka_cluster_3: KafkaCluster
) -> None:
    topic = kafka_topic(cluster=kafka_cluster_3)
    produce(topic, [b"x"] * 5, bootstrap_servers=kafka_cluster_3.bootstrap_servers)
    reads = Reads(kafka_cluster_3)
    ranges = reads.plan(subscribe=topic)
    leader = kafka_cluster_3.leaders(topic)[0]
    kafka_cluster_3.pause(leader)
    with pytest.raises(KafkaTimeoutError, match=rf"^{topic}-0: no records from offset 0 on \(of 0 to 5\)"):
        reads.read(ranges, subscribe=topic, **SHORT)
    kafka_cluster_3.resume(leader)
    assert offsets(reads.read(ranges, subscribe=topic)) == [0, 1, 2, 3, 4]


def test_a_leader_that_dies_while_it_is_read(
    kafka_topic: Topic, produce: Produce, kafka_cluster_3: KafkaCluster
) -> None:
    count = 50_000
    topic = kafka_topic(1, replication_factor=3, cluster=kafka_cluster_3)
    produce(topic, [b"%0200d" % i for i in range(count)], bootstrap_servers=kafka_cluster_3.bootstrap_servers)
    servers = {"kafka.bootstrap.servers": kafka_cluster_3.bootstrap_servers}
    options = parse_batch({**servers, "subscribe": topic, "kafka.max.partition.fetch.bytes": "65536"})
    seen: list[int] = []
    for batch in read_ranges(options, tuple(plan(options))):
        if not seen:
            kafka_cluster_3.kill(kafka_cluster_3.leaders(topic)[0])
        seen += batch.column("offset").to_pylist()
    assert seen == list(range(count))


# ---------------------------------------------------------------- timestamps that nobody can express


def test_a_timestamp_of_nanoseconds_is_an_error_with_its_offset(
    reads: Reads, kafka_cluster: KafkaCluster, kafka_topic: Topic, produce: Produce
) -> None:
    """Spark's KAFKA_MALFORMED_RECORD_TIMESTAMP; a `Consumer` may go on behind such records."""
    topic = kafka_topic(config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    produce(topic, [b"0", b"1"], partition=0, timestamps=[1, 2])
    produce(topic, [b"2", b"3"], partition=0, timestamps=[1_700_000_000_000_000_000] * 2)
    produce(topic, [b"4"], partition=0, timestamps=[3])
    with pytest.raises(MalformedTimestampError) as caught:
        reads.all(subscribe=topic)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 2)
    seen: list[Event] = []
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "on_bad_batch": "skip"}
    servers = kafka_cluster.bootstrap_servers
    with ka.Consumer(
        topic, bootstrap_servers=servers, group_id=topic, events=seen.append, **options
    ) as consumer:
        values: list[bytes] = []
        deadline = time.monotonic() + slow_s(30)
        while len(values) < 3 and time.monotonic() < deadline:
            if (batch := consumer.poll_batch(timeout_ms=1000)) is not None:
                values += batch["value"].to_pylist()
    assert values == [b"0", b"1", b"4"]
    skipped = [e for e in seen if isinstance(e, BadBatchSkipped)]
    assert [(e.offset, e.next_offset, e.kind) for e in skipped] == [(2, 4, "timestamp")]


@pytest.mark.parametrize("behind", [[], [b"4"]], ids=["at the end", "in the middle"])
def test_a_bad_batch_may_be_skipped_wherever_it_is(
    reads: Reads, kafka_topic: Topic, produce: Produce, behind: list[bytes]
) -> None:
    topic = kafka_topic(config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    produce(topic, [b"0", b"1"], partition=0)
    produce(topic, [b"2", b"3"], partition=0, timestamps=[1_700_000_000_000_000_000] * 2)
    if behind:
        produce(topic, behind, partition=0)
    rows = reads.all(subscribe=topic, **{"kafka.on.bad.batch": "skip"})
    assert [row["value"] for row in rows] == [b"0", b"1", *behind]
