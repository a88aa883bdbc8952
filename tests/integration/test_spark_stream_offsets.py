"""Answers of a stream to Spark's triggers, against real Kafka and without Spark: offsets, groups, connections kept."""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions
from msgspec.structs import replace
from waiting import at_pace_s, slow_s, until

from kafka_actors import Consumer
from kafka_actors.admin import Admin
from kafka_actors.errors import (
    ConfigError,
    DataLossError,
    NonEmptyGroupError,
    TopicAuthorizationFailedError,
    TopicRecreatedError,
)
from kafka_actors.protocol import MetadataResponse
from kafka_actors.spark.source import task_reader as reading
from kafka_actors.spark.source.options import parse_batch, parse_stream
from kafka_actors.spark.source.planning import plan
from kafka_actors.spark.source.stream_driver import StreamDriver
from kafka_actors.spark.source.task_reader import ReadSession, read_ranges
from kafka_actors.testing import FakeKafka, KafkaCluster
from kafka_actors.testing.fake_kafka import BrokerCall, ChangeResponse
from kafka_actors.testing.produce import Produce
from kafka_actors.types import TopicPartition

pytestmark = pytest.mark.kafka

Topic = Callable[..., str]
Json = dict[str, Any]


class Query:
    """Drives one process's part of a query as Spark from 4.2 on does; offsets go through text, as in a checkpoint."""

    def __init__(self, servers: str, **options: str) -> None:
        given = {"kafka.bootstrap.servers": servers, **{k.replace("__", "."): v for k, v in options.items()}}
        self.options = parse_stream(given, limits=True)
        self.driver = StreamDriver(self.options)
        self._start: Json | None = None

    def initial(self) -> Json:
        return self._kept(self.driver.initial())

    def latest(self, start: Json, *, limited: bool = True) -> Json:
        if self._start not in (None, start):  # a batch has begun there
            self.driver.checkpointed(self._start)
        self._start = start
        return self._kept(self.driver.latest(start, limited=limited))

    def old_latest(self) -> Json:
        """Latest offsets, as Spark 4.1 asks for them."""
        return self._kept(self.driver.latest())

    def rows(self, start: Json, end: Json) -> list[tuple[int, int, bytes]]:
        found = [
            row
            for task in self.driver.tasks(start, end)
            for batch in read_ranges(self.options, task)
            for row in batch.to_pylist()
        ]
        return sorted((row["partition"], row["offset"], row["value"]) for row in found)

    def close(self) -> None:
        self.driver.close()

    def _kept(self, offsets: Json) -> Json:
        kept: Json = json.loads(json.dumps(offsets))
        return kept


@pytest.fixture
def query(kafka_cluster: KafkaCluster) -> Iterator[Callable[..., Query]]:
    made: list[Query] = []

    def start(**options: str) -> Query:
        made.append(Query(kafka_cluster.bootstrap_servers, **options))
        return made[-1]

    yield start
    for each in made:
        each.driver.close()


@pytest.fixture
def admin(kafka_cluster: KafkaCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as made:
        yield made


Start = Callable[..., Query]


def committed(admin: Admin, group_id: str) -> dict[int, int]:
    return {tp.partition: found.offset for tp, found in admin.list_consumer_group_offsets(group_id).items()}


# ---------------------------------------------------------------- offsets


def test_the_start_is_the_same_at_each_call_and_carried_by_the_first_end(
    query: Start, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic(1)
    produce(topic, [b"before"])
    first = query(subscribe=topic)
    start = first.initial()
    produce(topic, [b"a", b"b"])
    assert first.initial() == start
    end = first.latest(start)
    produce(topic, [b"c"])
    again = query(subscribe=topic)  # after a crash, before the batch was finished
    assert again.rows(again.initial(), end) == [(0, 1, b"a"), (0, 2, b"b")]
    assert again.rows(end, again.latest(end)) == [(0, 3, b"c")]


def test_spark_4_1_asks_without_a_start_and_gets_the_same_exactness(
    query: Start, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic(1)
    first = query(subscribe=topic)
    end = first.old_latest()  # asked before the start is
    assert first.rows(first.initial(), end) == []
    produce(topic, [b"a"])
    planned = first.old_latest()
    produce(topic, [b"b"])
    again = query(subscribe=topic)
    again.driver.tasks(planned, planned)  # how Spark tells a restarted query where its log ends
    assert again.rows(end, planned) == [(0, 0, b"a")]
    following = again.old_latest()
    assert again.rows(planned, following) == [(0, 1, b"b")]
    assert again.old_latest() == following


def test_nothing_new_is_the_text_that_spark_gave(query: Start, kafka_topic: Topic) -> None:
    """Spark compares texts: another one would be another batch, for ever."""
    topic = kafka_topic(2)
    asked = query(subscribe=topic)
    start = asked.latest(asked.initial())
    other_order = {
        topic: {"1": 0, "0": 0},
        "@topic_ids": start["@topic_ids"],
    }  # as another writer may have it
    assert asked.driver.latest(other_order) is other_order


def test_starts_of_each_kind(query: Start, kafka_topic: Topic, produce: Produce) -> None:
    topic = kafka_topic(2)
    produce(topic, [b"x"] * 5, partition=0, timestamps=[1_700_000_000_000 + i for i in range(5)])
    for options, expected in (
        ({}, {"0": 5, "1": 0}),
        ({"startingOffsets": "earliest"}, {"0": 0, "1": 0}),
        ({"startingOffsets": f'{{"{topic}":{{"0":2,"1":-1}}}}'}, {"0": 2, "1": 0}),
        (
            {"startingTimestamp": "1700000000003", "startingOffsetsByTimestampStrategy": "latest"},
            {"0": 3, "1": 0},
        ),
    ):
        assert query(subscribe=topic, **options).initial()[topic] == expected
    with pytest.raises(ConfigError, match=rf"^startingOffsets: .*lacks {topic}-1$"):
        query(subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":2}}}}').initial()
    with pytest.raises(DataLossError, match=rf"^{topic}-0 at offset 9: "):
        query(subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":9,"1":0}}}}').initial()


def test_a_pattern_that_matches_nothing_waits(query: Start, kafka_topic: Topic, produce: Produce) -> None:
    prefix = kafka_topic(prefix="waits")
    waiting = query(subscribePattern=f"{prefix}-.*")
    start = waiting.initial()
    end = waiting.latest(start)
    assert waiting.rows(start, end) == []
    topic = kafka_topic(prefix=f"{prefix}-x")
    produce(topic, [b"first"])
    restarted = query(subscribePattern=f"{prefix}-.*")
    assert restarted.rows(end, restarted.latest(end)) == [(0, 0, b"first")]


def test_a_start_that_retention_has_passed_is_a_loss_or_left_out(
    query: Start, kafka_topic: Topic, produce: Produce, kafka_cluster: KafkaCluster
) -> None:
    topic = kafka_topic(1)
    produce(topic, [b"%d" % i for i in range(10)])
    kafka_cluster.delete_records(topic, 0, 6)
    strict = query(subscribe=topic)
    start = {topic: {"0": 4}}
    end = strict.latest(start)
    with pytest.raises(DataLossError, match=rf"^{topic}-0 at offset 4: offset out of range"):
        strict.rows(start, end)
    lenient = query(subscribe=topic, failOnDataLoss="false")
    assert [o for _, o, _ in lenient.rows(start, lenient.latest(start))] == [6, 7, 8, 9]


def test_a_topic_that_is_deleted_between_triggers_is_a_loss_or_left_out(
    query: Start, kafka_topic: Topic, produce: Produce, kafka_cluster: KafkaCluster
) -> None:
    """Metadata that the query has seen a moment ago still has it, and no broker answers for it."""
    stays, goes = kafka_topic(prefix="stays"), kafka_topic(prefix="goes")
    for topic in (stays, goes):
        produce(topic, [b"1"])
    both = {"subscribe": f"{stays},{goes}", "startingOffsets": "earliest"}
    strict, lenient = query(**both), query(**both, failOnDataLoss="false")
    ends = [running.latest(running.initial()) for running in (strict, lenient)]
    kafka_cluster.delete_topic(goes)
    produce(stays, [b"2"])
    following = lenient.latest(ends[1])
    assert lenient.rows(ends[1], following) == [(0, 1, b"2")]
    with pytest.raises(DataLossError, match=rf"^{goes}-0 at offset 1: the topic is gone"):
        strict.latest(ends[0])


def test_a_topic_that_may_not_be_described_any_more_is_an_error_and_no_loss(fake_kafka: FakeKafka) -> None:
    """With failOnDataLoss=false a stream had read nothing more of it, and its tasks had passed over its records."""

    def denied(_: BrokerCall, found: MetadataResponse) -> MetadataResponse:
        return replace(found, topics=[replace(t, error_code=29, partitions=[]) for t in found.topics])

    topic = fake_kafka.create_topic("orders")
    fake_kafka.produce(topic, [b"0", b"1"])
    options = {"failOnDataLoss": "false", "fetchOffset__retryIntervalMs": "10"}
    with closing(
        Query(fake_kafka.bootstrap_servers, subscribe=topic, startingOffsets="earliest", **options)
    ) as query:
        start = query.initial()
        end = query.latest(start)
        fake_kafka.on("Metadata", ChangeResponse(denied), times=None)
        query.driver.prepare_available_now()  # with metadata from now on
        with pytest.raises(TopicAuthorizationFailedError, match="in answer to Metadata for orders"):
            query.latest(end)
        reading.sessions.clear()
        with pytest.raises(TopicAuthorizationFailedError, match="in answer to Metadata for orders"):
            query.rows(start, end)


def cut(fake_kafka: FakeKafka, topic: str, offset: int, *records: bytes) -> None:
    """Loses the records from an offset on by an unclean election, and writes others."""
    fake_kafka.truncate(topic, 0, offset)
    for record in records:
        fake_kafka.produce(topic, [record])


@pytest.mark.parametrize("others", [1, 2, 5], ids=["shorter", "as long", "longer"])
@pytest.mark.parametrize("offset_format", ["kafka-actors", "spark"])
def test_a_log_that_was_cut_and_grew_again_between_triggers_is_read_from_where_it_parts(
    fake_kafka: FakeKafka, tmp_path: Path, offset_format: str, others: int
) -> None:
    topic = fake_kafka.create_topic("orders")
    cut(fake_kafka, topic, 0, b"0", b"1", b"2", b"3")
    options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    if offset_format == "spark":
        options |= {"offsetFormat": "spark", "stateLocation": str(tmp_path / "state")}
    with closing(Query(fake_kafka.bootstrap_servers, **options)) as query:
        start = query.initial()
        end = query.latest(start)
        assert [row[1] for row in query.rows(start, end)] == [0, 1, 2, 3]
        new = [b"new %d" % n for n in range(others)]
        cut(fake_kafka, topic, 2, *new)
        after = query.latest(end)
        if offset_format == "spark" and others == 2:  # the same text, by which Spark finds nothing new
            assert after == end
            fake_kafka.produce(topic, [b"one more"])
            new, after = [*new, b"one more"], query.latest(end)
        assert [row[2] for row in query.rows(end, after)] == new
    with closing(Query(fake_kafka.bootstrap_servers, **options)) as query:
        assert [row[2] for row in query.rows(end, after)] == new, "also where Spark plans the batch again"
        assert query.latest(after) == after


@pytest.mark.parametrize("again", [False, True], ids=["at once", "by the next query"])
@pytest.mark.parametrize("at", [0, 3, 4], ids=["before the batch", "within it", "at its start"])
def test_a_batch_that_was_planned_before_its_log_was_cut_reads_it_up_to_where_it_parts(
    fake_kafka: FakeKafka, at: int, again: bool
) -> None:
    """Between there and the planned end are other records by now, with which the next batch begins."""
    topic = fake_kafka.create_topic("orders")
    cut(fake_kafka, topic, 0, b"0", b"1", b"2")
    options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    with closing(Query(fake_kafka.bootstrap_servers, **options)) as query:
        first = query.latest(query.initial())
        fake_kafka.produce(topic, [b"3"])
        fake_kafka.produce(topic, [b"4"])
        second = query.latest(first)
        assert [row[1] for row in query.rows(query.initial(), first)] == [0, 1, 2]
        new = [b"new %d" % n for n in range(6)]
        cut(fake_kafka, topic, at, *new)
        if not again:
            assert [row[2] for row in query.rows(first, second)] == [b"3"][: max(at - 3, 0)]
    with closing(Query(fake_kafka.bootstrap_servers, **options)) as query:
        assert [row[2] for row in query.rows(first, second)] == [b"3"][: max(at - 3, 0)]
        third = query.latest(second)
        assert [row[2] for row in query.rows(second, third)] == new
    strict = options | {"failOnDataLoss": "true"}
    said = rf"orders-0 at offset 5: the log was truncated: .* at {at}"
    with (
        closing(Query(fake_kafka.bootstrap_servers, **strict)) as query,
        pytest.raises(DataLossError, match=said),
    ):
        query.rows(first, second)


def test_a_log_that_was_cut_between_triggers_is_a_loss(fake_kafka: FakeKafka) -> None:
    topic = fake_kafka.create_topic("orders")
    cut(fake_kafka, topic, 0, b"0", b"1", b"2", b"3")
    with closing(Query(fake_kafka.bootstrap_servers, subscribe=topic, startingOffsets="earliest")) as query:
        end = query.latest(query.initial())
        cut(fake_kafka, topic, 3, b"a", b"b", b"c")
        with pytest.raises(DataLossError, match="orders-0 at offset 4: the log was truncated: it parts at 3"):
            query.latest(end)


def test_a_leader_that_changes_without_loss_is_nothing_new(fake_kafka: FakeKafka) -> None:
    topic = fake_kafka.create_topic("orders")
    cut(fake_kafka, topic, 0, b"0", b"1")
    with closing(Query(fake_kafka.bootstrap_servers, subscribe=topic, startingOffsets="earliest")) as query:
        end = query.latest(query.initial())
        cut(fake_kafka, topic, 2)
        assert [query.latest(end), query.latest(end)] == [end, end]
        assert fake_kafka.count("OffsetForLeaderEpoch") == 1
        fake_kafka.produce(topic, [b"2"])
        after = query.latest(end)
        assert [row[1] for row in query.rows(end, after)] == [2]
        assert fake_kafka.count("OffsetForLeaderEpoch") == 1


def test_a_broker_that_names_the_id_of_a_topic_that_was_deleted_before_changes_nothing(
    fake_kafka: FakeKafka,
) -> None:
    """A broker that was suspended does so: client and stream have never seen that id."""

    def older(_: BrokerCall, found: MetadataResponse) -> MetadataResponse:
        return replace(found, topics=[replace(t, topic_id=uuid.UUID(int=7)) for t in found.topics])

    topic = fake_kafka.create_topic("orders")
    fake_kafka.produce(topic, [b"0", b"1"])
    options = {"failOnDataLoss": "false", "fetchOffset__retryIntervalMs": "10"}
    with closing(
        Query(fake_kafka.bootstrap_servers, subscribe=topic, startingOffsets="earliest", **options)
    ) as query:
        start = query.initial()
        end = query.latest(start)
        assert len(query.rows(start, end)) == 2
        query.driver.prepare_available_now()  # with metadata from now on
        fake_kafka.on("Metadata", ChangeResponse(older))
        assert query.latest(end) == end
        with reading.sessions.lend(query.options.client.key, lambda: pytest.fail("none was kept")) as session:
            fake_kafka.on("Metadata", ChangeResponse(older))
            session.refresh()
        assert len(query.rows(start, end)) == 2


def test_a_broker_that_dies_between_triggers_ends_no_query(
    kafka_topic: Topic, produce: Produce, kafka_cluster_3: KafkaCluster
) -> None:
    topic = kafka_topic(3, cluster=kafka_cluster_3, replication_factor=3)
    running = Query(kafka_cluster_3.bootstrap_servers, subscribe=topic, startingOffsets="earliest")
    try:
        end = running.latest(running.initial())
        produce(topic, [b"x"] * 30, bootstrap_servers=kafka_cluster_3.bootstrap_servers)
        leader = kafka_cluster_3.leaders(topic)[0]
        kafka_cluster_3.kill(leader)
        try:
            assert len(running.rows(end, running.latest(end))) == 30
        finally:
            kafka_cluster_3.restart(leader)
    finally:
        running.driver.close()


def test_a_trigger_waits_for_brokers_that_are_away_as_often_as_the_options_say(fake_kafka: FakeKafka) -> None:
    """Spark's own source asks again for partitions as for offsets; the query ended after one kafka.request.timeout.ms."""
    topic = fake_kafka.create_topic("orders")
    wait_s = max(2.0, at_pace_s(2))
    options = {"kafka__request__timeout__ms": f"{1_000 * wait_s:.0f}", "fetchOffset__numRetries": "100"}
    with closing(Query(fake_kafka.bootstrap_servers, subscribe=topic, **options)) as query:
        start = query.initial()
        (broker,) = fake_kafka.broker_ids
        fake_kafka.kill(broker)
        back = threading.Timer(1.5 * wait_s, fake_kafka.restart, [broker])
        back.start()
        query.driver.prepare_available_now()  # with metadata from now on
        try:
            assert query.latest(start)[topic] == {"0": 0}
        finally:
            back.join()


# ---------------------------------------------------------------- the group


def test_a_query_starts_from_a_groups_offsets_and_a_checkpoint_wins_over_them(
    query: Start, kafka_topic: Topic, produce: Produce, admin: Admin, group_id: str
) -> None:
    topic = kafka_topic(3)
    produce(topic, [b"x"] * 30, partition=[i % 3 for i in range(30)])
    admin.alter_consumer_group_offsets(group_id, {TopicPartition(topic, 0): 7, TopicPartition(topic, 1): 3})
    of_group = query(subscribe=topic, startingOffsets="committed", kafka__group__id=group_id)
    start = of_group.initial()
    assert start[topic] == {"0": 7, "1": 3, "2": 0}  # nothing committed: nothing is left out
    checkpoint = {topic: {"0": 9, "1": 9, "2": 9}}
    assert len(of_group.rows(checkpoint, of_group.latest(checkpoint))) == 3


def test_a_committed_offset_that_retention_has_passed_is_a_loss(
    query: Start,
    kafka_topic: Topic,
    produce: Produce,
    admin: Admin,
    group_id: str,
    kafka_cluster: KafkaCluster,
) -> None:
    topic = kafka_topic(1)
    produce(topic, [b"x"] * 10)
    admin.alter_consumer_group_offsets(group_id, {TopicPartition(topic, 0): 2})
    kafka_cluster.delete_records(topic, 0, 5)
    options = {"subscribe": topic, "startingOffsets": "committed", "kafka__group__id": group_id}
    with pytest.raises(DataLossError, match=rf"^{topic}-0 at offset 2: "):
        query(**options).initial()
    assert query(**options, failOnDataLoss="false").initial()[topic] == {"0": 5}


def test_the_group_follows_what_spark_has_finished_and_never_leads(
    query: Start, kafka_topic: Topic, produce: Produce, admin: Admin, group_id: str
) -> None:
    topic = kafka_topic(1)
    produce(topic, [b"x"] * 10)
    options = {"subscribe": topic, "startingOffsets": "committed", "kafka__group__id": group_id}
    running = query(**options, commitOffsets="true", maxOffsetsPerTrigger="4")
    start = running.initial()
    first = running.latest(start)
    assert committed(admin, group_id) == {}  # planned is not finished
    second = running.latest(first)
    assert committed(admin, group_id) == {0: 4}
    third = running.latest(second)
    assert committed(admin, group_id) == {0: 8}
    restarted = query(**options, commitOffsets="true")
    assert restarted.latest(third) == third
    assert committed(admin, group_id) == {0: 10}


def test_spark_4_1_says_a_batch_late_what_is_finished(
    query: Start, kafka_topic: Topic, produce: Produce, admin: Admin, group_id: str
) -> None:
    topic = kafka_topic(1)
    produce(topic, [b"x"] * 10)
    running = query(subscribe=topic, kafka__group__id=group_id, commitOffsets="true")
    end = running.old_latest()
    running.driver.tasks(running.initial(), end)
    assert committed(admin, group_id) == {}
    running.driver.finished(end)
    assert committed(admin, group_id) == {0: 10}


def test_a_group_with_members_is_refused_at_the_start_and_warned_of_later(
    query: Start,
    kafka_topic: Topic,
    produce: Produce,
    group_id: str,
    kafka_cluster: KafkaCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = kafka_topic(1)
    produce(topic, [b"x"] * 10)
    options = {"subscribe": topic, "kafka__group__id": group_id, "commitOffsets": "true"}
    running = query(**options)
    end = running.latest(running.initial())
    with Consumer([topic], group_id=group_id, bootstrap_servers=kafka_cluster.bootstrap_servers) as member:
        until(lambda: member.poll_batch(timeout_ms=100) is not None or member.assignment(), 30, "the member")
        with pytest.raises(
            NonEmptyGroupError, match=rf"^NON_EMPTY_GROUP.*commitOffsets: group '{group_id}' has"
        ):
            query(**options).initial()
        with caplog.at_level(logging.WARNING):
            assert running.latest(end) == end
        assert f"group {group_id}: offsets are not committed" in caplog.text


def test_offsets_of_a_topic_are_not_committed_for_its_namesake(
    query: Start,
    kafka_topic: Topic,
    produce: Produce,
    admin: Admin,
    group_id: str,
    kafka_cluster: KafkaCluster,
) -> None:
    topic = kafka_topic(1)
    produce(topic, [b"old"] * 10)
    options = {"subscribe": topic, "kafka__group__id": group_id, "commitOffsets": "true"}
    running = query(**options, failOnDataLoss="false")
    end = running.latest(running.initial())
    kafka_cluster.delete_topic(topic)
    kafka_cluster.create_topic(topic)
    produce(topic, [b"new"] * 3)
    restarted = query(**options, failOnDataLoss="false")
    following = restarted.latest(end)
    assert committed(admin, group_id) == {}
    assert [value for *_, value in restarted.rows(end, following)] == [b"new"] * 3
    restarted.latest(following)
    assert committed(admin, group_id) == {0: 3}


# ---------------------------------------------------------------- connections


def test_tasks_use_the_connections_of_earlier_ones(
    kafka_topic: Topic,
    produce: Produce,
    kafka_cluster: KafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[ReadSession] = []

    class Counted(ReadSession):
        def __init__(self, *arguments: Any) -> None:
            made.append(self)
            super().__init__(*arguments)

    monkeypatch.setattr(reading, "ReadSession", Counted)
    reading.sessions.clear()
    first, second = kafka_topic(2), kafka_topic(1)
    for topic, expected in ((first, 10), (second, 10), (first, 20)):
        produce(topic, [b"x"] * 10)
        options = parse_batch(
            {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, "subscribe": topic}
        )
        ranges = tuple(r for r in plan(options) if r.size)
        assert sum(batch.num_rows for batch in read_ranges(options, ranges)) == expected
    assert len(made) == 1


def test_a_task_of_other_topics_waits_for_brokers_that_are_away(fake_kafka: FakeKafka) -> None:
    """Metadata of the topics are requested first: that failed at once, where records are waited for pollTimeoutMs."""
    tasks = []
    for topic in (fake_kafka.create_topic("first"), fake_kafka.create_topic("second")):
        fake_kafka.produce(topic, [b"x"])
        options = parse_batch({"kafka.bootstrap.servers": fake_kafka.bootstrap_servers, "subscribe": topic})
        tasks.append((options, tuple(plan(options))))
    first, second = tasks
    assert sum(batch.num_rows for batch in read_ranges(*first)) == 1
    (broker,) = fake_kafka.broker_ids
    fake_kafka.kill(broker)
    back = threading.Timer(0.5, fake_kafka.restart, [broker])
    back.start()
    try:
        assert sum(batch.num_rows for batch in read_ranges(first[0], second[1])) == 1
    finally:
        back.join()


def test_a_partition_that_is_newer_than_the_connections_is_read_at_once(
    kafka_topic: Topic, produce: Produce, kafka_cluster: KafkaCluster
) -> None:
    topic = kafka_topic(1)
    given = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, "subscribe": topic}
    # Below the five minutes after which metadata are requested anyway.
    options = parse_batch({**given, "kafkaConsumer.pollTimeoutMs": f"{1_000 * slow_s(5):.0f}"})
    produce(topic, [b"x"] * 5)
    assert sum(batch.num_rows for batch in read_ranges(options, tuple(plan(options)))) == 5
    for done in kafka_cluster.admin.create_partitions([NewPartitions(topic, 2)]).values():
        done.result(slow_s(30))
    produce(topic, [b"y"] * 3, partition=1)
    ranges = tuple(r for r in plan(options) if r.partition == 1)
    assert sum(batch.num_rows for batch in read_ranges(options, ranges)) == 3


def test_a_topic_made_anew_is_noticed_over_connections_that_know_the_old_one(
    kafka_topic: Topic, produce: Produce, kafka_cluster: KafkaCluster
) -> None:
    topic = kafka_topic(1)
    options = parse_batch({"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, "subscribe": topic})
    produce(topic, [b"old"] * 5)
    old = tuple(plan(options))
    assert sum(batch.num_rows for batch in read_ranges(options, old)) == 5
    kafka_cluster.delete_topic(topic)
    kafka_cluster.create_topic(topic)
    produce(topic, [b"new"] * 7)
    with pytest.raises(TopicRecreatedError):
        list(read_ranges(options, old))
    assert sum(batch.num_rows for batch in read_ranges(options, tuple(plan(options)))) == 7
    assert sum(batch.num_rows for batch in read_ranges(options, tuple(plan(options)))) == 7
