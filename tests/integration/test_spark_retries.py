"""Tasks that fail at first, in a session that tries them again: what sinks have of their rows then."""

import sys
import time
from collections import Counter

import msgspec
import pyarrow as pa
import pytest
from fakes.spark import spark_session
from fakes.spark_runs import BAD, GOOD, SCHEMA, Place
from pyspark import TaskContext, cloudpickle

from kafka_actors.errors import JobFailed

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the functions of this file
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
