"""`spark.readStream.format("kafka_actors")` in a real Spark session, against real Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.commits import commit, committed_by
from fakes.spark import errors_line, spark_session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from waiting import slow_s

from kafka_actors.admin import Admin
from kafka_actors.group.commit_metadata import unpack
from kafka_actors.spark.source.readers import LIMITS
from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.produce import Produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
needs_limits = pytest.mark.skipif(not LIMITS, reason="Spark before 4.2 has no read limits for Python sources")

Topic = Callable[..., str]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session


class Streams:
    """Queries over one checkpoint, one after the other, and what their batches brought."""

    def __init__(self, spark: SparkSession, servers: str, checkpoint: Path) -> None:
        self._spark = spark
        self._servers = servers
        self.checkpoint = checkpoint
        self.batches: list[list[tuple[str, int, int, bytes]]] = []
        """Topic, partition, offset and value of each record, of each batch that had any."""
        self.fail_once = False
        self.of_writer: dict[str, str] = {}
        """Options of the writer."""

    def load(self, **options: str) -> DataFrame:
        given = {"kafka.bootstrap.servers": self._servers, "fetchOffset.retryIntervalMs": "10", **options}
        return self._spark.readStream.format("kafka_actors").options(**given).load()

    def start(self, trigger: dict[str, Any] | None = None, **options: str) -> StreamingQuery:
        writer = self.load(**options).writeStream.options(**self.of_writer)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).foreachBatch(self._take).start()

    def run(self, trigger: dict[str, Any] | None = None, **options: str) -> StreamingQuery:
        query = self.start(trigger, **options)
        assert query.awaitTermination(slow_s(90))
        return query

    def _take(self, df: DataFrame, _batch: int) -> None:
        rows = df.select("topic", "partition", "offset", "value").collect()
        if self.fail_once:
            self.fail_once = False
            raise RuntimeError("as if the driver had died")
        if rows:
            self.batches.append(sorted((r.topic, r.partition, r.offset, bytes(r.value)) for r in rows))

    @property
    def values(self) -> list[bytes]:
        return [value for batch in self.batches for *_, value in batch]

    def wait(self, query: StreamingQuery, count: int) -> None:
        deadline = time.monotonic() + slow_s(60)
        while len(self.values) < count:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, f"only {len(self.values)} of {count} records"
            time.sleep(0.05)

    def logged(self, batch: int) -> dict[str, Any]:
        """The source's offsets as the checkpoint has them."""
        lines = (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()
        found: dict[str, Any] = json.loads(lines[-1])
        return found


@pytest.fixture
def streams(spark: SparkSession, kafka_cluster: KafkaCluster, tmp_path: Path) -> Iterator[Streams]:
    made = Streams(spark, kafka_cluster.bootstrap_servers, tmp_path / "checkpoint")
    yield made
    for query in spark.streams.active:
        query.stop()


# ---------------------------------------------------------------- triggers, restarts


@pytest.mark.spark_versions
def test_available_now_reads_what_is_there_and_a_restart_what_came_since(
    streams: Streams, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic(2)
    produce(topic, [b"%d" % i for i in range(100)], partition=[i % 2 for i in range(100)])
    streams.run(subscribe=topic, startingOffsets="earliest")
    assert sorted(streams.values, key=int) == [b"%d" % i for i in range(100)]
    assert streams.logged(0)[topic] == {"0": 50, "1": 50}
    streams.run(subscribe=topic, startingOffsets="earliest")
    assert len(streams.values) == 100
    produce(topic, [b"100"], partition=1)
    streams.run(subscribe=topic, startingOffsets="latest")  # the checkpoint says where, not the option
    assert streams.batches[-1] == [(topic, 1, 50, b"100")]


def test_once_is_one_batch(streams: Streams, kafka_topic: Topic, produce: Produce) -> None:
    topic = kafka_topic()
    produce(topic, [b"a", b"b"])
    limit = {"maxOffsetsPerTrigger": "1"} if LIMITS else {}
    streams.run({"once": True}, subscribe=topic, startingOffsets="earliest", **limit)
    assert [len(batch) for batch in streams.batches] == [2]


def test_a_running_query_takes_what_comes_also_in_new_partitions(
    streams: Streams, kafka_topic: Topic, produce: Produce, kafka_cluster: KafkaCluster
) -> None:
    topic = kafka_topic(1)
    produce(topic, [b"before"])
    query = streams.start({"processingTime": "100 milliseconds"}, subscribe=topic)
    while not query.recentProgress:
        time.sleep(0.05)
    produce(topic, [b"after"])
    streams.wait(query, 1)
    kafka_cluster.add_partitions(topic, 2)
    produce(topic, [b"new-0", b"new-1"], partition=1)
    streams.wait(query, 3)
    query.stop()
    assert streams.values == [b"after", b"new-0", b"new-1"]  # the new partition from its first record


@pytest.mark.spark_versions
def test_a_batch_that_was_planned_and_not_finished_is_the_same_after_a_restart(
    streams: Streams, kafka_topic: Topic, produce: Produce
) -> None:
    """Also the first one: where `latest` is, is another place by then."""
    topic = kafka_topic(2)
    produce(topic, [b"before"], partition=0)
    query = streams.start(
        {"processingTime": "10 minutes"}, subscribe=topic
    )  # one trigger: batch 0, without records
    while not query.recentProgress:
        time.sleep(0.05)
    query.stop()
    (streams.checkpoint / "commits" / "0").unlink()  # as if it had been killed before it could say so
    (streams.checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    produce(topic, [b"0", b"1"], partition=[0, 1])
    streams.fail_once = True
    with pytest.raises(Exception, match="as if the driver had died"):
        streams.start(subscribe=topic).awaitTermination(slow_s(60))
    assert streams.values == []
    produce(topic, [b"2", b"3"], partition=[0, 1])
    for _ in range(
        1 if LIMITS else 2
    ):  # before 4.2 Spark makes one batch of availableNow: here the one to be done again
        streams.run(subscribe=topic)
    assert sorted(streams.values) == [b"0", b"1", b"2", b"3"]


# ---------------------------------------------------------------- limits and progress


@needs_limits
def test_a_limit_is_shared_in_proportion_and_the_progress_says_how_far_behind(
    streams: Streams, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic(2)
    produce(topic, [b"x"] * 90, partition=0)
    produce(topic, [b"y"] * 30, partition=1)
    query = streams.run(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    assert [[row[1] for row in batch].count(0) for batch in streams.batches] == [30, 30, 30]
    assert [len(batch) for batch in streams.batches] == [40, 40, 40]
    [first] = [p for p in query.recentProgress if p.batchId == 0]
    latest = json.loads(first.sources[0].latestOffset)
    assert latest[topic] == {"0": 90, "1": 30}
    assert latest["@metrics"] == {
        "minOffsetsBehindLatest": "20",
        "maxOffsetsBehindLatest": "60",
        "avgOffsetsBehindLatest": "40.0",
    }
    assert json.loads(first.sources[0].endOffset)[topic] == {"0": 30, "1": 10}


@needs_limits
def test_a_batch_waits_for_enough_or_for_long_enough(
    streams: Streams, kafka_topic: Topic, produce: Produce
) -> None:
    topic = kafka_topic()
    produce(topic, [b"0"])
    limits = {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "10m"}
    query = streams.start(
        {"processingTime": "50 milliseconds"}, subscribe=topic, startingOffsets="earliest", **limits
    )
    streams.wait(query, 1)  # the first isn't held back
    produce(topic, [b"1", b"2"])
    time.sleep(1)
    assert streams.values == [b"0"]
    produce(topic, [b"3", b"4", b"5"])
    streams.wait(query, 6)
    query.stop()
    assert [len(batch) for batch in streams.batches] == [1, 5]
    produce(topic, [b"6"])
    streams.run(subscribe=topic, **limits)  # all that there is, however little
    assert streams.batches[-1][0][3] == b"6"


@pytest.mark.spark_versions
@pytest.mark.skipif(LIMITS, reason="Spark from 4.2 on has read limits")
def test_limits_name_the_spark_that_they_need(streams: Streams) -> None:
    query = streams.start(subscribe="t", maxOffsetsPerTrigger="5")
    with pytest.raises(Exception, match=r"maxOffsetsPerTrigger: needs Spark 4\.2") as caught:
        query.awaitTermination(slow_s(60))
    assert "maxOffsetsPerTrigger: needs Spark 4.2" in errors_line(caught)


# ---------------------------------------------------------------- the group


def committed(cluster: KafkaCluster, group_id: str) -> dict[int, int]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = admin.list_consumer_group_offsets(group_id)
    return {tp.partition: offset.offset for tp, offset in found.items()}


@pytest.mark.spark_versions
def test_a_group_follows_the_query_and_a_new_query_the_group(
    streams: Streams, kafka_topic: Topic, produce: Produce, kafka_cluster: KafkaCluster, group_id: str
) -> None:
    topic = kafka_topic(2)
    produce(topic, [b"%d" % i for i in range(20)], partition=[i % 2 for i in range(20)])
    options = {"subscribe": topic, "startingOffsets": "committed", "kafka.group.id": group_id}

    streams.run(**options, commitOffsets="true")
    assert len(streams.values) == 20
    if LIMITS:
        # At the end of availableNow: all that was finished.
        assert committed(kafka_cluster, group_id) == {0: 10, 1: 10}
    produce(topic, [b"20"], partition=0)
    streams.run(**options, commitOffsets="true")
    if LIMITS:
        assert committed(kafka_cluster, group_id) == {0: 11, 1: 10}
    else:
        assert committed(kafka_cluster, group_id) == {0: 10, 1: 10}  # Spark 4.1 says it a batch late
    produce(topic, [b"21"], partition=1)
    streams.checkpoint = streams.checkpoint.with_name("another")
    streams.run(**options)
    assert streams.batches[-1][-1][3] == b"21"
    assert len(streams.batches[-1]) == (1 if LIMITS else 2)


@needs_limits
def test_a_query_whose_checkpoint_is_behind_reads_again_from_there_and_its_group_is_not_ahead(
    streams: Streams, kafka_topic: Topic, produce: Produce, kafka_cluster: KafkaCluster, group_id: str
) -> None:
    """Spark keeps the first batch's end alone: the next would be kept ten minutes later."""
    topic = kafka_topic()
    options = {"subscribe": topic, "startingOffsets": "earliest", "kafka.group.id": group_id}
    streams.of_writer = {
        "asyncProgressTrackingEnabled": "true",
        "asyncProgressTrackingCheckpointIntervalMs": "600000",
        "_asyncProgressTrackingOverrideSinkSupportCheck": "true",  # it takes the sink of these tests for none of its own
    }
    produce(topic, [b"0", b"1"])
    query = streams.start({"processingTime": "50 milliseconds"}, **options, commitOffsets="true")
    streams.wait(query, 2)
    for value in (b"2", b"3"):
        produce(topic, [value])
        streams.wait(query, int(value) + 1)
    query.processAllAvailable()
    query.stop()
    kept = [int(path.name) for path in (streams.checkpoint / "offsets").glob("[0-9]*")]
    assert kept == [0]
    assert committed(kafka_cluster, group_id) == {0: 2}
    streams.of_writer = {}
    streams.run(**options, commitOffsets="true")
    assert streams.values == [b"0", b"1", b"2", b"3", b"2", b"3"]
    assert committed(kafka_cluster, group_id) == {0: 4}


def test_sparks_own_form_of_the_offsets_keeps_the_promises(
    streams: Streams, kafka_topic: Topic, produce: Produce
) -> None:
    """From `latest`: the driver dies before Spark has written what its first batch is, and in the first batch."""
    topic = kafka_topic(2)
    state = streams.checkpoint / "sources" / "0"
    options = {"subscribe": topic, "offsetFormat": "spark", "stateLocation": str(state)}
    produce(topic, [b"before"] * 2, partition=[0, 1])
    for values in ([b"0", b"1"], [b"2"]):
        streams.fail_once = True
        with pytest.raises(Exception, match="as if the driver had died"):
            streams.run(**options)
        produce(topic, values, partition=list(range(len(values))))
        if values == [b"0", b"1"]:
            for path in (streams.checkpoint / "offsets").iterdir():
                path.unlink()
    again = streams.run(**options)
    assert sorted(streams.values) == [b"0", b"1", b"2"]
    assert [len(batch) for batch in streams.batches] == [2, 1]
    for log in (streams.checkpoint / "offsets").glob("[0-9]*"):
        assert json.loads(log.read_text().splitlines()[-1]).keys() == {topic}
    for progress in again.recentProgress:
        source = progress["sources"][0]
        for name in ("startOffset", "endOffset", "latestOffset"):
            assert not source[name] or "@" not in str(source[name]), source


@pytest.mark.slow
def test_a_groups_offsets_name_their_topic_and_do_not_count_for_another(
    streams: Streams, kafka_topic: Topic, produce: Produce, kafka_cluster: KafkaCluster, group_id: str
) -> None:
    topic, servers = kafka_topic(2), kafka_cluster.bootstrap_servers
    produce(topic, [b"old"] * 20, partition=[i % 2 for i in range(20)])
    options = {"subscribe": topic, "startingOffsets": "committed", "kafka.group.id": group_id}
    streams.run(**options, commitOffsets="true")
    streams.run(**options, commitOffsets="true")  # Spark 4.1 says it a batch late
    written = committed_by(servers, group_id, topic, 2)
    assert {p: offset for p, (offset, _) in written.items()} == {0: 10, 1: 10}
    (metadata,) = {metadata for _, metadata in written.values()}
    assert unpack(metadata).topic_id is not None
    kafka_cluster.delete_topic(topic)
    kafka_cluster.create_topic(topic, partitions=2)
    produce(topic, [b"new"] * 20, partition=[i % 2 for i in range(20)])
    commit(servers, group_id, topic, 2, 5, metadata or "")  # one that reaches the coordinator late
    streams.checkpoint = streams.checkpoint.with_name("another")
    streams.run(**options)
    assert streams.values.count(b"new") == 20


# ---------------------------------------------------------------- topics that come and go


def test_a_topic_made_anew_is_named_or_read_from_its_start(
    streams: Streams, kafka_topic: Topic, produce: Produce, kafka_cluster: KafkaCluster
) -> None:
    topic = kafka_topic(2)
    produce(topic, [b"old"] * 10, partition=[i % 2 for i in range(10)])
    streams.run(subscribe=topic, startingOffsets="earliest")
    kafka_cluster.delete_topic(topic)
    kafka_cluster.create_topic(topic, partitions=1)
    produce(topic, [b"new"] * 7)
    with pytest.raises(Exception, match="recreated") as caught:
        streams.start(subscribe=topic).awaitTermination(slow_s(60))
    assert f"{topic}-0 at offset 5: the topic was recreated: id " in errors_line(caught)
    streams.run(subscribe=topic, failOnDataLoss="false")
    assert streams.values == [b"old"] * 10 + [b"new"] * 7
    assert streams.logged(1)[topic] == {"0": 7}


def test_a_topic_that_is_gone_is_named_or_left_out(
    streams: Streams, kafka_topic: Topic, produce: Produce, kafka_cluster: KafkaCluster
) -> None:
    stays, goes = kafka_topic(prefix="stays"), kafka_topic(prefix="goes")
    for topic in (stays, goes):
        produce(topic, [b"1"])
    both = {"subscribe": f"{stays},{goes}", "startingOffsets": "earliest"}
    streams.run(**both)
    kafka_cluster.delete_topic(goes)
    produce(stays, [b"2"])
    with pytest.raises(Exception, match="the topic is gone") as caught:
        streams.start(**both).awaitTermination(slow_s(60))
    assert f"{goes}-0 at offset 1: the topic is gone" in errors_line(caught)
    streams.run(**both, failOnDataLoss="false")
    assert streams.batches[-1] == [(stays, 0, 1, b"2")]


def test_a_topic_that_is_deleted_under_a_running_query_ends_it(
    streams: Streams, kafka_topic: Topic, produce: Produce, kafka_cluster: KafkaCluster
) -> None:
    topic = kafka_topic()
    produce(topic, [b"1", b"2"])
    query = streams.start({"processingTime": "100 milliseconds"}, subscribe=topic, startingOffsets="earliest")
    streams.wait(query, 2)
    kafka_cluster.delete_topic(topic)
    with pytest.raises(Exception, match="the topic is gone") as caught:
        query.awaitTermination(slow_s(60))
    assert f"{topic}-0 at offset 2: the topic is gone" in errors_line(caught)


def test_a_topic_that_begins_to_match_is_read_from_its_start(
    streams: Streams, kafka_topic: Topic, produce: Produce
) -> None:
    name = kafka_topic(prefix="pattern")
    produce(name, [b"first"])
    streams.run(subscribePattern=f"{name}.*", startingOffsets="latest")
    other = kafka_topic(prefix=f"{name}-more")
    produce(other, [b"a", b"b"])
    streams.run(subscribePattern=f"{name}.*")
    assert streams.batches == [[(other, 0, 0, b"a"), (other, 0, 1, b"b")]]


def test_an_unknown_topic_and_a_wrong_option_end_the_query_in_one_line(streams: Streams) -> None:
    with pytest.raises(Exception, match="there is no topic") as caught:
        streams.start(subscribe="not-there").awaitTermination(slow_s(60))
    assert "subscribe: there is no topic 'not-there' in the cluster" in errors_line(caught)
    with pytest.raises(Exception, match="endingOffsets") as caught:
        streams.start(subscribe="t", endingOffsets="latest").awaitTermination(slow_s(60))
    assert "endingOffsets: is not for a stream" in errors_line(caught)
