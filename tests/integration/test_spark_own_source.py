"""Spark's own Kafka source and sink beside ours: one word differs, and the answers don't."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.secure import PASSWORD, USER
from fakes.spark import spark_session
from pyspark.sql import SparkSession
from waiting import slow_s

from kafka_actors.cli.main import run_command_line
from kafka_actors.spark.source.readers import LIMITS
from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.produce import Produce
from kafka_actors.testing.spark import connector_jars

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

Topic = Callable[..., str]
BOTH = ("kafka", "kafka_actors")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if shutil.which("mvn") is None:
        pytest.skip("Spark's own source comes from Maven Central")
    with spark_session(tmp_path_factory.mktemp("warehouse"), spark__jars=connector_jars()) as session:
        yield session


def plain(row: Any) -> tuple[Any, ...]:
    return tuple(bytes(v) if isinstance(v, bytearray) else v for v in row)


@pytest.fixture
def read(spark: SparkSession, kafka_cluster: KafkaCluster) -> Callable[..., Any]:
    """`read(source, subscribe=…)`: schema and sorted rows."""

    def make(source: str, **options: str) -> tuple[Any, list[tuple[Any, ...]]]:
        given = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, **options}
        df = spark.read.format(source).options(**given).load()
        rows = df.sort("topic", "partition", "offset").collect()
        return df.schema, [
            (
                *plain(row[:7]),
                *([[plain(h) for h in row[7]] if row[7] is not None else None] if len(row) > 7 else []),
            )
            for row in rows
        ]

    return make


Read = Callable[..., Any]


@pytest.fixture
def filled(kafka_topic: Topic, produce: Produce) -> tuple[str, int]:
    """A topic of three partitions, and the timestamp of its first records: one a second in each."""
    topic = kafka_topic(3)
    now = int(time.time() * 1000)
    produce(
        topic,
        [None if i % 7 == 0 else b"%d" % i for i in range(90)],
        keys=[None if i % 5 == 0 else b"k%d" % i for i in range(90)],
        headers=[[("a", b"1"), ("a", None)] if i % 3 else None for i in range(90)],
        partition=[i % 3 for i in range(90)],
        timestamps=[now + 1_000 * (i // 3) for i in range(90)],
    )
    return topic, now


def test_the_same_options_give_the_same_rows(read: Read, filled: tuple[str, int]) -> None:
    topic, now = filled
    by_partition = f'{{"{topic}":{{"0":3,"1":-2,"2":29}}}}'
    times = f'{{"{topic}":{{"0":{now + 5_000},"1":{now},"2":{now + 28_500}}}}}'
    for options in (
        {"subscribe": topic},
        {"subscribe": topic, "includeHeaders": "true"},
        {"subscribePattern": topic[:-1] + "."},
        {"assign": f'{{"{topic}":[2,0]}}'},
        {"subscribe": topic, "startingOffsets": by_partition},
        {"subscribe": topic, "endingOffsets": f'{{"{topic}":{{"0":3,"1":-1,"2":0}}}}'},
        {"subscribe": topic, "startingTimestamp": str(now + 20_000), "startingOffsets": "earliest"},
        {"subscribe": topic, "startingOffsetsByTimestamp": times},
        {"subscribe": topic, "endingTimestamp": str(now + 3_001)},
        {"subscribe": topic, "endingOffsetsByTimestamp": times},
        {
            "subscribe": topic,
            "startingTimestamp": str(now + 10**8),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        {"subscribe": topic, "minPartitions": "7"},
        {"subscribe": topic, "maxRecordsPerPartition": "4", "kafka.isolation.level": "read_committed"},
    ):
        theirs, ours = (read(source, **options) for source in BOTH)
        assert ours == theirs, options
    assert len(read("kafka_actors", subscribe=topic)[1]) == 90


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subscribe": "a", "assign": '{"a":[0]}'},
        {"subscribe": ","},
        {"subscribe": "a", "startingOffsets": "latest"},
        {"subscribe": "a", "endingOffsets": "earliest"},
        {"subscribe": "a", "endingOffsets": '{"a":{"0":-2}}'},
        {"subscribe": "a", "startingOffsets": '{"a":{"0":-1}}'},
        {"subscribe": "a", "minPartitions": "0"},
        {"subscribe": "a", "startingOffsetsByTimestampStrategy": "earliest"},
        {"subscribe": "a", "kafka.auto.offset.reset": "latest"},
        {"subscribe": "a", "kafka.enable.auto.commit": "true"},
        {"subscribe": "a", "kafka.key.deserializer": "x"},
        {"subscribe": "a", "kafka.interceptor.classes": "x"},
    ],
)
def test_the_same_options_are_refused(options: dict[str, str], read: Read) -> None:
    for source in BOTH:
        with pytest.raises(Exception, match=r".") as caught:
            read(source, **options)
        assert "TimeoutException" not in str(caught.value)


def test_a_start_behind_the_end_is_an_error(
    read: Read, filled: tuple[str, int], kafka_cluster: KafkaCluster
) -> None:
    topic, now = filled

    def offsets(zero: int) -> str:
        return f'{{"{topic}":{{"0":{zero},"1":0,"2":0}}}}'

    kafka_cluster.delete_records(topic, 0, 10)
    behind = (
        {"startingTimestamp": str(now + 20_000), "endingTimestamp": str(now + 15_000)},
        {"startingOffsets": offsets(20), "endingTimestamp": str(now + 15_000)},
        {"startingTimestamp": str(now + 20_000), "endingOffsets": offsets(15)},
        {"startingOffsets": offsets(31)},
        {"endingOffsets": offsets(5)},
        {"startingOffsets": offsets(20), "endingOffsets": offsets(15)},
    )
    for options in behind:
        for source in BOTH:
            for lenient in ("true", "false"):
                with pytest.raises(Exception, match=r"greater than|behind the end|the log holds|below its"):
                    read(source, subscribe=topic, failOnDataLoss=lenient, **options)


@pytest.mark.skipif(not LIMITS, reason="Spark before 4.2 has no read limits for Python sources")
def test_the_same_limits_make_the_same_batches(
    spark: SparkSession, kafka_topic: Topic, produce: Produce, kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    topic = kafka_topic(3)
    produce(topic, [b"x"] * 1_000, partition=[0 if i % 10 else 1 + i % 2 for i in range(1_000)])
    ends: dict[str, list[Any]] = {}
    for source in BOTH:
        options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, "subscribe": topic}
        stream = spark.readStream.format(source).options(**options, startingOffsets="earliest")
        writer = stream.option("maxOffsetsPerTrigger", "130").load().writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / source)).trigger(availableNow=True).start()
        assert query.awaitTermination(slow_s(120))
        logged = [
            (tmp_path / source / "offsets" / str(p.batchId)).read_text().splitlines()[-1]
            for p in query.recentProgress
            if p.numInputRows
        ]
        ends[source] = [json.loads(text)[topic] for text in logged]
    assert ends["kafka_actors"] == ends["kafka"]
    assert len(ends["kafka"]) > 7


class Sides:
    """A query over one checkpoint, which has one source or the other from run to run; and the values that it took."""

    def __init__(self, spark: SparkSession, cluster: KafkaCluster, produce: Produce, directory: Path) -> None:
        self._spark = spark
        self._cluster = cluster
        self._produce = produce
        self.checkpoint = directory / "checkpoint"
        self.options: dict[str, str] = {}
        self.topic = ""
        self.fail_once = False
        self.found: list[bytes] = []

    def produce(self, *values: bytes) -> None:
        self._produce(self.topic, list(values), partition=[n % 2 for n in range(len(values))])

    def start(self, source: str, trigger: dict[str, Any], **more: str) -> Any:
        options = {"kafka.bootstrap.servers": self._cluster.bootstrap_servers, "subscribe": self.topic}
        mine = self.options if source == "kafka_actors" else {}
        stream = self._spark.readStream.format(source).options(**options, **mine, **more).load()
        writer = stream.writeStream.option("checkpointLocation", str(self.checkpoint))
        return writer.foreachBatch(self._take).trigger(**trigger).start()

    def run(self, source: str, **more: str) -> None:
        """Reads everything that is there now."""
        assert self.start(source, {"availableNow": True}, **more).awaitTermination(slow_s(120))

    def fail(self, source: str, *values: bytes) -> None:
        """The first batch, from `latest`, is planned and not finished. It has these values where its start is known
        before it is planned: as if the driver had died in between, then came the values, and it died again."""
        self._fail(source)
        if (self.checkpoint / "sources" / "0" / "0").exists():
            for path in (self.checkpoint / "offsets").iterdir():
                path.unlink()
            self.produce(*values)
            self._fail(source)
        else:
            self.produce(*values)

    def _fail(self, source: str) -> None:
        self.fail_once = True
        with pytest.raises(Exception, match="as if the driver had died"):
            self.start(source, {"availableNow": True}).awaitTermination(slow_s(120))

    def _take(self, df: Any, _batch: int) -> None:
        values = [bytes(row.value) for row in df.select("value").collect()]
        if self.fail_once:
            self.fail_once = False
            raise RuntimeError("as if the driver had died")
        self.found.extend(values)

    def convert(self, to: str) -> None:
        assert run_command_line(["spark-checkpoint", "convert", str(self.checkpoint), "--to", to]) == 0

    def recreate(self) -> None:
        self._cluster.delete_topic(self.topic)
        self._cluster.create_topic(self.topic, partitions=2)


@pytest.fixture
def sides(
    spark: SparkSession, kafka_cluster: KafkaCluster, kafka_topic: Topic, produce: Produce, tmp_path: Path
) -> Sides:
    made = Sides(spark, kafka_cluster, produce, tmp_path)
    made.topic = kafka_topic(2)
    made.options = {"offsetFormat": "spark", "stateLocation": str(made.checkpoint / "sources" / "0")}
    return made


def test_a_query_changes_sides_four_times_by_option(sides: Sides) -> None:
    sent = []
    for number, source in enumerate(("kafka", "kafka_actors") * 3):
        values = [b"%d %d" % (number, n) for n in range(6)]
        sent += values
        sides.produce(*values)
        sides.run(source, startingOffsets="earliest")
        assert sorted(sides.found) == sorted(sent)


def test_a_query_changes_sides_four_times_by_convert(sides: Sides) -> None:
    sides.options = {}
    sent = []
    for number, source in enumerate(("kafka_actors", "kafka") * 3):
        values = [b"%d %d" % (number, n) for n in range(6)]
        sent += values
        sides.produce(*values)
        sides.run(source, startingOffsets="earliest")
        assert sorted(sides.found) == sorted(sent)
        sides.convert("spark" if source == "kafka_actors" else "kafka-actors")


@pytest.mark.parametrize("by", ["option", "convert"])
@pytest.mark.parametrize("sources", [BOTH, BOTH[::-1]], ids=["to ours", "to Spark's"])
def test_a_first_batch_from_latest_that_one_source_planned_the_other_finishes(
    sides: Sides, sources: tuple[str, str], by: str
) -> None:
    one, other = sources
    sides.produce(b"before", b"before")
    if by == "convert":
        sides.options = {}
    sides.fail(one, b"0", b"1")
    sides.produce(b"2")
    if by == "convert":
        sides.convert("spark" if one == "kafka_actors" else "kafka-actors")
    sides.run(other)
    assert sorted(sides.found) == [b"0", b"1", b"2"]


def test_an_unfinished_first_batch_of_sparks_own_source_is_refused_where_its_start_is_not_known(
    sides: Sides,
) -> None:
    sides.options = {}
    sides.fail("kafka", b"0", b"1")
    with pytest.raises(
        Exception, match="has a first batch that Spark's own source planned and didn't finish"
    ):
        sides.run("kafka_actors")
    assert sides.found == []
    sides.run("kafka")
    assert sides.found == [b"0", b"1"]


@pytest.mark.parametrize("by", ["option", "convert"])
def test_a_topic_that_was_recreated_while_sparks_own_source_had_it_is_noticed(sides: Sides, by: str) -> None:
    if by == "convert":
        sides.options = {}
    sides.produce(b"0", b"1")
    sides.run("kafka_actors", startingOffsets="earliest")
    if by == "convert":
        sides.convert("spark")
    sides.produce(b"2", b"3")
    sides.run("kafka")
    sides.recreate()
    sides.produce(*(b"new %d" % n for n in range(8)))
    sides.run("kafka")  # it doesn't notice, and skips the new topic's first records
    if by == "convert":
        sides.convert("kafka-actors")
    sides.produce(b"more")
    with pytest.raises(Exception, match="the topic was recreated"):
        sides.run("kafka_actors")
    before = len(sides.found)
    sides.run("kafka_actors", failOnDataLoss="false")
    assert sorted(sides.found[before:]) == sorted([b"more", *(b"new %d" % n for n in range(8))])


def test_the_same_rows_written_are_the_same_records(
    spark: SparkSession, read: Read, kafka_topic: Topic, kafka_cluster: KafkaCluster
) -> None:
    schema = "key string, value string, partition int, headers array<struct<key:string,value:binary>>, id int"
    rows = [
        (f"k{i}" if i % 4 else None, f"v{i}" if i % 5 else None, None if i % 4 else i % 3, None, i)
        for i in range(60)
    ]
    rows += [("h", "v", 1, [("a", b"1"), ("a", None)], 0)]
    written = []
    for source in BOTH:
        topic = kafka_topic(3, prefix=source.replace("_", "-"))
        writer = spark.createDataFrame(rows, schema).coalesce(1).write.format(source).mode("append")
        writer.option("kafka.bootstrap.servers", kafka_cluster.bootstrap_servers).option(
            "topic", topic
        ).save()
        records = read("kafka", subscribe=topic, includeHeaders="true")[1]
        written.append(
            [(key, value, partition, headers) for key, value, _, partition, *_, headers in records]
        )
    assert written[0] == written[1]


def test_the_same_options_reach_a_broker_with_sasl_ssl(
    spark: SparkSession, secure: Any, produce: Produce, group_id: str, tmp_path: Path
) -> None:
    kafka, files = secure
    topic = kafka.create_topic(f"own-{group_id}", partitions=2)
    produce(topic, [b"%d" % i for i in range(10)], bootstrap_servers=kafka.bootstrap_servers)
    # Java trusts only what a store marks as trusted, so its own tool makes it.
    store = tmp_path / "trust.p12"
    _keytool("-importcert", "-noprompt", "-alias", "ca", "-file", files.ca, "-keystore", str(store))
    escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    login = "org.apache.kafka.common.security.{}LoginModule required "
    for mechanism, module in (("SCRAM-SHA-512", "scram.Scram"), ("PLAIN", "plain.Plain")):
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap("SECURE"),
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": login.format(module) + f'username="{USER}" password="{escaped}";',
            "kafka.ssl.truststore.location": str(store),
            "kafka.ssl.truststore.password": "changeit",
            "subscribe": topic,
        }
        for source in BOTH:
            df = spark.read.format(source).options(**options).load()
            assert sorted(int(row.value) for row in df.collect()) == list(range(10)), source


def _keytool(*arguments: str) -> None:
    command = ["keytool", *arguments, "-storetype", "PKCS12", "-storepass", "changeit"]
    subprocess.run(command, check=True, capture_output=True)
