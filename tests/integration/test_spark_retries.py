"""Tasks that fail at first, in a session that tries them again: what sinks have of their rows then."""

import sys
import time
from collections import Counter

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fakes import spark_faults
from fakes.spark import spark_session
from fakes.spark_runs import BAD, GOOD, SCHEMA, Place
from pyspark import TaskContext, cloudpickle

from kafka_actors.errors import JobFailed
from kafka_actors.spark import transactional

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    for module in (sys.modules[__name__], spark_faults):  # workers can't import them
        cloudpickle.register_pickle_by_value(module)
    with spark_session(tmp_path_factory.mktemp("warehouse"), spark__master="local[2,3]") as session:
        yield session


@pytest.fixture
def place(spark, kafka_cluster, kafka_topic, produce, group_id):
    return Place(spark, kafka_cluster, kafka_topic, produce, group_id)


def half_at_first(batches):
    """The first try of a task dies behind its first row."""
    for batch in batches:
        yield batch.slice(0, 1)
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("the first try")
        yield batch.slice(1)


def test_the_sink_writes_each_row_at_least_once(place):
    rows = place.spark.range(20, numPartitions=2).selectExpr("cast(id as string) as value")
    to = {"kafka.bootstrap.servers": place.cluster.bootstrap_servers, "topic": place.output}
    df = rows.mapInArrow(half_at_first, "value string")
    df.write.format("kafka_actors").mode("append").options(**to).save()
    found = Counter(int(m.value) for m in place.records(place.output))
    assert found.keys() == set(range(20))
    assert set(found.values()) <= {1, 2}


@pytest.mark.parametrize("stream", [False, True], ids=["batch", "stream"])
def test_what_a_broker_refuses_for_good_is_not_tried_again(place, tmp_path, stream):
    """Tries of Spark's would each send the same records."""
    tries, small = tmp_path / "tries", f"{place.output}-small"
    place.cluster.create_topic(small, config={"max.message.bytes": "100"})
    place.fill(range(1))

    def padded(batch):
        with tries.open("a") as file:
            file.write(f"{TaskContext.get().attemptNumber()}\n")
        return pa.record_batch({"value": [b"x" * 1000] * batch.num_rows})

    schema = pa.schema({"value": pa.binary()})
    pipeline = (
        place.read().on_error("fail", retries=0).raw().map_batches(padded, schema=schema).write_kafka(small)
    )
    options = {"checkpoint": str(tmp_path / "c"), "trigger": "availableNow"} if stream else {}
    began = time.monotonic()
    with pytest.raises(JobFailed, match="MESSAGE_TOO_LARGE"):
        pipeline.on_spark(place.spark, **options).run()
    print(f"failed after {time.monotonic() - began:.1f} s")
    assert set(tries.read_text().split()) == {"0"}


def no_one_at_first(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The first try of a task that gets order 1 fails: the second partition, when the rows of another may be written."""
    if TaskContext.get().attemptNumber() == 0 and 1 in batch["id"].to_pylist():
        raise RuntimeError("the first try")
    return batch


@pytest.mark.parametrize("stream", [False, True], ids=["batch", "stream"])
def test_files_have_each_row_once_and_topics_at_least_once(place, tmp_path, stream):
    place.fill(range(30), BAD)
    made = (
        place.read()
        .on_error("fail", retries=0)
        .decode_json(SCHEMA, on_error="dead_letter")
        .map_batches(no_one_at_first, schema=SCHEMA)
        .dead_letters(place.dead)
    )
    for number, sink in enumerate(
        (made.write_parquet(str(tmp_path / "out")), made.write_kafka(place.output))
    ):
        how = {"checkpoint": str(tmp_path / f"c{number}"), "trigger": "availableNow"} if stream else {}
        sink.on_spark(place.spark, **how).run()
    files = place.spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row.id for row in files) == GOOD
    sent = [msgspec.json.decode(m.value)["id"] for m in place.records(place.output)]
    assert set(sent) == set(GOOD)
    assert {bytes(m.value) for m in place.records(place.dead)} == set(BAD.values())


def committed(place, topic):
    """How often each value of a topic is there for readers with `read_committed`."""
    reader = place.spark.read.format("kafka_actors").option("subscribe", topic)
    options = {"bootstrap.servers": place.cluster.bootstrap_servers, "isolation.level": "read_committed"}
    reader = reader.options(**{f"kafka.{name}": value for name, value in options.items()})
    return Counter(bytes(row.value) for row in reader.load().select("value").collect())


@pytest.mark.parametrize("stream", [False, True], ids=["batch", "stream"])
def test_a_transactional_sink_has_each_row_once_though_tasks_fail_behind_their_commit(
    place, tmp_path, stream
):
    place.fill(range(30))
    place.spark.dataSource.register(spark_faults.FailsOnceSource)
    brokers = {"kafka.bootstrap.servers": place.cluster.bootstrap_servers}
    reader = place.spark.readStream if stream else place.spark.read
    reader = reader.format("kafka_actors").options(**brokers, subscribe=place.input, minPartitions="3")
    df = reader.option("startingOffsets", "earliest").load().select("value")
    writer = (df.writeStream if stream else df.write).format("fails_once")
    writer = writer.options(**brokers, topic=place.output, **transactional(df))
    if stream:
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        query.awaitTermination()
    else:
        writer.mode("append").save()
    found = committed(place, place.output)
    assert len(found) == 30
    assert set(found.values()) == {1}


def test_a_pipeline_delivers_a_micro_batch_that_is_replayed_once_and_one_with_other_rows_not_at_all(
    place, tmp_path
):
    place.fill(range(30), BAD)
    decoded = place.read().decode_json(SCHEMA, on_error="dead_letter").dead_letters(place.dead)
    exact = decoded.write_kafka(place.output, delivery="exactly_once")
    checkpoint = {"checkpoint": str(tmp_path / "c"), "trigger": "availableNow"}
    exact.on_spark(place.spark, **checkpoint).run()
    commits = tmp_path / "c" / "commits"
    for file in (*commits.glob("0"), *commits.glob(".0.crc")):
        file.unlink()  # as if the driver had died before it was written
    exact.on_spark(place.spark, **checkpoint).run()
    found = committed(place, place.output)
    assert len(found) == len(GOOD)
    assert set(found.values()) == {1}
    for file in (*commits.glob("0"), *commits.glob(".0.crc")):
        file.unlink()
    fewer = decoded.filter(pc.field("id") < 10).write_kafka(place.output, delivery="exactly_once")
    with pytest.raises(
        JobFailed, match=r"UsageError: task 0 of micro-batch 0 .* wrote 27 rows, and when it is run again"
    ):
        fewer.on_spark(place.spark, **checkpoint).run()
    assert committed(place, place.output) == found
