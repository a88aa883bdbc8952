"""The Kafka versions that the README names, as real brokers: reading, the group with a foreign member, the admin."""

from collections.abc import Iterator

import confluent_kafka
import pytest
from fakes.copying import consumer_of, copied, read_by_java, read_by_librdkafka, read_by_us
from waiting import until

import kafka_actors as ka
from kafka_actors.admin import Admin, AlterConfigOp, ConfigResource, NewTopic, OffsetTarget
from kafka_actors.errors import GroupIdNotFoundError
from kafka_actors.group.commit_metadata import COMMIT_BYTES
from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.plugin import started
from kafka_actors.testing.produce import Produce
from kafka_actors.types import OffsetAndMetadata, TopicPartition

pytestmark = pytest.mark.kafka

OLDEST, BEFORE_4, DEFAULT, NEWEST = "3.3.2", "3.9.2", "4.1.1", "4.4.0"
VERSIONS = [OLDEST, BEFORE_4, DEFAULT, NEWEST]
BETWEEN = ["3.4.1", "3.5.2", "3.6.2", "3.7.2", "3.8.1", "4.0.2", "4.2.1", "4.3.1"]
RECORDS = 2_000


@pytest.fixture(
    scope="module", params=[*VERSIONS, *(pytest.param(v, marks=pytest.mark.slow) for v in BETWEEN)]
)
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """One broker of each version, for all tests of this file."""
    yield from started(version=request.param)


@pytest.fixture
def topic(kafka: KafkaCluster, group_id: str) -> str:
    """Made by our admin: four partitions, 2,000 records in all codecs, by confluent-kafka."""
    name = f"t-{group_id}"
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 4, 1, configs={"retention.ms": "-1"})])
        kafka.wait_for_leaders(name, 4)
        described = admin.describe_topics([name])[name]
        assert [(p.partition, p.leader) for p in described.partitions] == [(p, 1) for p in range(4)]
        assert admin.topic_configs([name])[name]["retention.ms"] == "-1"
    produce = Produce(kafka.bootstrap_servers)
    config = {"enable.idempotence": False}  # a producer id costs half a second each time
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    for n, codec in enumerate(codecs):
        values = [b"%d" % i for i in range(n * 400, (n + 1) * 400)]
        produce(name, values, partition=[i % 4 for i in range(400)], compression=codec, config=config)
    return name


def _read(consumer: ka.Consumer, count: int) -> list[int]:
    values: list[int] = []
    until(lambda: _poll(consumer, values) >= count, 60)
    return values


def _consumer(kafka: KafkaCluster, topic: str, group: str, **options: object) -> ka.Consumer:
    return ka.Consumer(
        topics=[topic],
        group_id=group,
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=300,  # as for the other member: a rebalance is heard of with a heartbeat
        **options,
    )


def test_all_is_read_committed_and_resumed_and_the_admin_follows_it(
    kafka: KafkaCluster, topic: str, group_id: str
) -> None:
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        with _consumer(kafka, topic, group_id, batch_rows=100) as consumer:
            seen = _read(consumer, 700)
            consumer.commit()
            described = admin.describe_consumer_groups([group_id])[group_id]
            assert (described.state, described.type) == ("Stable", "Classic")
            assert described.members[0].assignment == tuple(TopicPartition(topic, p) for p in range(4))
            assert sum(row.lag or 0 for row in admin.lag(group_id)) == RECORDS - len(seen)
        [listed] = [g for g in admin.list_groups(states=["Empty"]) if g.group_id == group_id]
        assert listed.protocol_type == "consumer"
        with _consumer(kafka, topic, group_id) as consumer:
            rest = _read(consumer, RECORDS - len(seen))
            consumer.commit()
        assert sorted(seen + rest) == list(range(RECORDS))

        ends = kafka.end_offsets(topic)
        assert kafka.committed(group_id) == ends
        assert [row.lag for row in admin.lag(group_id)] == [0] * 4
        plan = admin.reset_offsets(group_id, OffsetTarget.shift_by(-1), {topic: [0]}, execute=True)
        assert kafka.committed(group_id) == {**ends, (topic, 0): plan[0].new_offset}
        assert plan[0].new_offset == ends[topic, 0] - 1
        admin.delete_consumer_groups([group_id])
        with pytest.raises(GroupIdNotFoundError):
            admin.describe_consumer_groups([group_id])


def test_a_commit_that_is_too_large_for_the_coordinators_log_is_divided(
    kafka: KafkaCluster, group_id: str
) -> None:
    """Up to 3.9 it says INVALID_COMMIT_OFFSET_SIZE, and since 4.0 UNKNOWN_SERVER_ERROR."""
    name, of_group = f"many-{group_id}", ConfigResource("TOPIC", "__consumer_offsets")
    wide = {TopicPartition(name, n): OffsetAndMetadata(0, "m" * 3_000) for n in range(16)}
    with (
        Admin(bootstrap_servers=kafka.bootstrap_servers) as admin,
        ka.Consumer(group_id=group_id, bootstrap_servers=kafka.bootstrap_servers) as consumer,
    ):
        admin.create_topics([NewTopic(name, len(wide), 1)])
        kafka.wait_for_leaders(name, len(wide))
        consumer.assign(wide)
        consumer.commit({TopicPartition(name, 0): 0})  # so that the log is there
        admin.incremental_alter_configs({of_group: [AlterConfigOp("max.message.bytes", "30000")]})
        coordinator = consumer._session.core._coordinator
        assert coordinator is not None
        try:

            def is_divided() -> bool:
                consumer.commit(wide)
                return coordinator._committer._queue._most_bytes < COMMIT_BYTES

            until(is_divided, 20, "a refusal for the size, which ends in a commit all the same")
        finally:
            admin.incremental_alter_configs({of_group: [AlterConfigOp("max.message.bytes", None, "DELETE")]})
        found = consumer.committed(wide)
        assert {at and at.metadata for at in found.values()} == {"m" * 3_000}


def test_a_group_is_shared_with_confluents_consumer(kafka: KafkaCluster, topic: str, group_id: str) -> None:
    foreign = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group_id,
            "partition.assignment.strategy": "cooperative-sticky",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 300,
        }
    )
    ends = kafka.end_offsets(topic)
    ours: list[int] = []
    theirs: list[int] = []

    def halves_are_read() -> bool:
        """Reads with both; whether each has its half, and has come to the end of it."""
        _poll(consumer, ours)
        theirs.extend(int(message.value() or b"") for message in foreign.consume(500, timeout=0.1))
        mine, its = consumer.assignment(), foreign.assignment()
        return len(mine) == len(its) == 2 and (
            all(consumer.position(tp) == ends[tp] for tp in mine)
            and all(at.offset == ends[at.topic, at.partition] for at in foreign.position(its))
        )

    try:
        with _consumer(kafka, topic, group_id) as consumer:
            foreign.subscribe([topic])
            until(halves_are_read, 60)
            mine = {tp.partition for tp in consumer.assignment()}
            assert mine | {tp.partition for tp in foreign.assignment()} == {0, 1, 2, 3}
            assert set(ours) | set(theirs) == set(range(RECORDS))
            consumer.commit()
            foreign.commit(asynchronous=False)
            assert kafka.committed(group_id) == ends

            foreign.close()  # its half comes back, at what it has committed
            ours.clear()
            Produce(kafka.bootstrap_servers)(topic, [b"7"] * 40, partition=[n % 4 for n in range(40)])
            until(lambda: _poll(consumer, ours) >= 40, 60)
            assert ours == [7] * 40
            assert len(consumer.assignment()) == 4
    finally:
        foreign.close()


def test_a_copier_delivers_each_record_once(kafka: KafkaCluster, group_id: str) -> None:
    """Transactions of both versions, some aborted: version 2 where the cluster has it, from 4.0 on."""
    target, in_order = _copied(kafka, group_id)
    assert read_by_us(kafka, target, 400) == in_order
    assert read_by_librdkafka(kafka, target, 400) == in_order


@pytest.mark.slow
def test_javas_consumer_reads_what_a_copier_has_committed(kafka: KafkaCluster, group_id: str) -> None:
    target, in_order = _copied(kafka, group_id)
    read = read_by_java(kafka, target, 400)
    assert {p: [n for n in read if n % 2 == p] for p in (0, 1)} == in_order


def _copied(kafka: KafkaCluster, group_id: str) -> tuple[str, dict[int, list[int]]]:
    """Copies 400 records, and aborts some transactions. Returns the topic, and what is committed in each partition."""
    source, target = kafka.create_topic(f"from-{group_id}", 2), kafka.create_topic(f"to-{group_id}", 2)
    Produce(kafka.bootstrap_servers)(source, [b"%d" % n for n in range(400)], partition=[0, 1] * 200)
    with (
        consumer_of(kafka, source, group_id) as consumer,
        ka.Producer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=group_id) as producer,
    ):
        copied(consumer, producer, target, 400, fails=frozenset([1, 3]))
    assert kafka.committed(group_id) == kafka.end_offsets(source)
    return target, {0: list(range(0, 400, 2)), 1: list(range(1, 400, 2))}


def _poll(consumer: ka.Consumer, values: list[int]) -> int:
    """Adds what a batch holds to `values`; returns how many there are."""
    batch = consumer.poll_batch(timeout_ms=100)
    values += [] if batch is None else [int(value) for value in batch["value"].to_pylist()]
    return len(values)
