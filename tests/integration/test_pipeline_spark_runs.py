"""A pipeline run on Spark, as a stream and as a batch, from real topics to real topics and files."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path

import click
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from fakes.schema_registry import FakeSchemaRegistry
from fakes.spark import spark_session
from fakes.spark_runs import PARTITIONS, SCHEMA, Place, order
from pace import this_run
from pyspark import cloudpickle
from waiting import output_of, until

import kafka_actors as ka
from kafka_actors.cli.job_options import job_settings
from kafka_actors.cli.load_target import LoadedTarget
from kafka_actors.cli.main import commands
from kafka_actors.cli.output import Output
from kafka_actors.cli.run_on_spark import run_on_spark
from kafka_actors.errors import ConfigError, JobFailed, SinkError, StageError
from kafka_actors.pipeline.json_encoder import JsonSchemaEncoder

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the functions of this file
    with spark_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session


@pytest.fixture
def place(spark, kafka_cluster, kafka_topic, produce, group_id):
    yield Place(spark, kafka_cluster, kafka_topic, produce, group_id)
    for query in spark.streams.active:
        query.stop()


def taxed(batch):
    return batch.append_column("tax", pc.multiply(batch["amount"], 0.25))


def test_a_stream_goes_on_from_its_checkpoint_and_both_topics_have_each_record_once_and_in_order(
    place, tmp_path
):
    bad = {7: b"", 100: b'{"id": 100} {"id": 100}', 299: b"\xff"}
    place.fill(range(300), bad)
    pipeline = (
        place.read()
        .decode_json(SCHEMA, on_error="dead_letter")
        .filter(pc.field("amount") >= 10)
        .map_batches(taxed, schema=f"{SCHEMA}, tax DOUBLE")
        .write_kafka(place.output)
        .dead_letters(place.dead)
    )
    checkpoint = str(tmp_path / "checkpoint")
    first = pipeline.on_spark(place.spark, checkpoint=checkpoint, trigger="availableNow", commitOffsets=True)
    first.run()
    status = first.status()
    assert (status.state, status.records, status.lag, status.batch) == ("finished", 300, 0, 0)
    assert place.committed() == {0: 100, 1: 100, 2: 100}

    place.fill(range(300, 330))
    second = pipeline.on_spark(place.spark, checkpoint=checkpoint, trigger="availableNow", start="latest")
    second.run()
    assert second.status().records == 30
    sent = place.records(place.output)
    good = [n for n in range(20, 330) if n not in bad]
    rows = [msgspec.json.decode(m.value) for m in sent]
    assert sorted(row["id"] for row in rows) == good
    assert all(row["tax"] == row["id"] / 8 for row in rows)
    assert {m.key: msgspec.json.decode(m.value)["id"] for m in sent} == {b"k%d" % n: n for n in good}
    dead = {int(m.key[1:]): m for m in place.records(place.dead)}
    assert dead.keys() == bad.keys()
    for n, message in dead.items():
        headers = dict(message.headers)
        assert message.value == bad[n]
        assert headers["trace"] == b"%d" % n
        assert headers["kafka_actors.error.offset"] == b"%d" % (n // PARTITIONS)
        assert headers["kafka_actors.error.stage"] == b"decode_json"
        assert headers["kafka_actors.error.group"] == place.group.encode()


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "amount", "type": ["null", "double"]}],
}


PROTO_ORDER = 'syntax = "proto3"; package shop; message Refund { int64 id = 1; } message Order { int32 id = 1; optional double amount = 2; }'


@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_rows_are_written_by_a_registrys_schema_and_those_that_do_not_fit_are_dead_letters(
    place, tmp_path, form
):
    protobuf = form == "protobuf"
    schema, message = (PROTO_ORDER, "shop.Order") if protobuf else (ORDER, None)
    place.fill(range(30), {7: order(2**31)})
    with FakeSchemaRegistry() as fake:
        number = fake.add(f"{place.output}-value", schema, "PROTOBUF" if protobuf else "AVRO")
        registry = ka.SchemaRegistry(fake.url)
        pipeline = (
            place.read()
            .decode_json(SCHEMA)
            .select("id", "amount")
            .write_kafka(
                place.output, format=form, registry=registry, message=message, on_error="dead_letter"
            )
            .dead_letters(place.dead)
        )
        bound = pipeline.on_spark(
            place.spark, checkpoint=str(tmp_path / "checkpoint"), trigger="availableNow"
        )
        assert f"by schema {number} ({place.output}-value version 1)" in bound.explain()
        bound.run()
        sent = place.records(place.output)
        values = pa.array([one.value for one in sent], pa.binary())
        decoder = (
            ka.schemas.ProtobufDecoder(schema, message=message, registry=registry)
            if protobuf
            else ka.schemas.AvroDecoder(schema, registry=registry)
        )
        rows = decoder(values).to_pylist()
    good = [n for n in range(30) if n != 7]
    assert sorted((m.key, row["id"], row["amount"]) for m, row in zip(sent, rows, strict=True)) == sorted(
        (b"k%d" % n, n, n / 2) for n in good
    )
    (dead,) = place.records(place.dead)
    assert dead.value == order(2**31)
    kind = b"int32" if protobuf else b"int of 32 bits"
    assert dict(dead.headers)["kafka_actors.error.reason"] == b"id: 2147483648 is no " + kind


def test_columns_behind_a_dataframe_stage_are_checked_before_anything_is_written(place):
    place.fill(range(9))
    with FakeSchemaRegistry() as fake:
        fake.add(f"{place.output}-value", ORDER)
        registry = ka.SchemaRegistry(fake.url)

        def written(query):
            totals = place.read().decode_json(SCHEMA).sql(query)
            totals.write_kafka(place.output, format="avro", registry=registry).on_spark(place.spark).run()

        with pytest.raises(ConfigError, match="country: the schema has no such field"):
            written(
                "select country, cast(max(id) as int) id, sum(amount) amount from {this} group by country"
            )
        assert place.records(place.output) == []
        written("select cast(max(id) as int) id, sum(amount) amount from {this} group by country")
        values = pa.array([message.value for message in place.records(place.output)], pa.binary())
        rows = ka.schemas.AvroDecoder(ORDER, registry=registry)(values).to_pylist()
    assert sorted((row["id"], row["amount"]) for row in rows) == [(6, 4.5), (7, 6.0), (8, 7.5)]


def test_a_stream_reads_once_for_two_sinks_and_each_file_record_is_there_once_whatever_fails(place, tmp_path):
    """Dead letters go beside both. Where a sink fails, the group's offsets stay, and no file appears."""
    place.fill(range(60), {5: b"no"})
    out, read = tmp_path / "out", tmp_path / "read"
    read.mkdir()

    def noted(batch):
        with open(read / str(os.getpid()), "a") as file:
            file.writelines(f"{n}\n" for n in batch["id"].to_pylist())
        return batch

    pipeline = (
        place.read()
        .decode_json(SCHEMA, on_error="dead_letter")
        .map_batches(noted, schema=SCHEMA)
        .write_parquet(str(out), kafka=True)
        .with_key("country")
        .write_kafka(place.output, name="to the topic")
        .dead_letters(place.dead)
    )
    checkpoint = tmp_path / "checkpoint"
    options = {"checkpoint": str(checkpoint), "offsetFormat": "spark", "commitOffsets": True}
    for trigger, ids in (("availableNow", range(60)), ("once", range(60, 90))):
        place.fill([n for n in ids if n >= 60])
        run = pipeline.on_spark(place.spark, trigger=trigger, **options)
        run.run()
        assert run.status().records == len(ids)
    good = [n for n in range(90) if n != 5]
    assert sorted(int(n) for file in read.iterdir() for n in file.read_text().split()) == good
    sent = [(m.key.decode(), msgspec.json.decode(m.value)) for m in place.records(place.output)]
    assert sorted(row["id"] for _, row in sent) == good
    assert all(key == row["country"] for key, row in sent)
    committed = place.committed()
    assert committed == {0: 30, 1: 30, 2: 30}

    place.fill(range(90, 99))
    files = sorted(out.glob("*.parquet"))
    place.set_config(place.output, "max.message.bytes", "10")
    with pytest.raises(JobFailed) as failed:
        pipeline.on_spark(place.spark, trigger="availableNow", **options).run()
    assert isinstance(failed.value.cause, SinkError)
    assert failed.value.cause.sink == "to the topic"
    assert (sorted(out.glob("*.parquet")), place.committed()) == (files, committed)
    place.set_config(place.output, "max.message.bytes", "100000")
    pipeline.on_spark(place.spark, trigger="availableNow", **options).run()
    assert place.committed() == {0: 33, 1: 33, 2: 33}
    assert {msgspec.json.decode(m.value)["id"] for m in place.records(place.output)} == {
        *good,
        *range(90, 99),
    }
    for log in (checkpoint / "offsets").glob("[0-9]*"):
        assert json.loads(log.read_text().splitlines()[-1]).keys() == {place.input}
    assert (checkpoint / "sources" / "0" / "0").exists()
    found = place.spark.read.parquet(str(out)).collect()
    assert {row.id: row._kafka.offset for row in found} == {n: n // 3 for n in range(99) if n != 5}
    assert len(found) == 98
    assert [m.value for m in place.records(place.dead)] == [b"no"]


def test_async_stages_run_in_the_source_and_behind_a_dataframe_stage(place):
    place.fill(range(60))

    class Lookup:
        loop = None

        async def __call__(self, batch):
            self.loop = self.loop or asyncio.get_running_loop()
            await asyncio.sleep(0)
            assert asyncio.get_running_loop() is self.loop, "an object keeps its event loop"
            if 7 in batch["id"].to_pylist():
                raise ValueError("no 7")
            return batch.set_column(0, "id", pc.add(batch["id"], 1000))

    pipeline = (
        place.read()
        .decode_json(SCHEMA)
        .map_batches(Lookup, schema=SCHEMA, on_error="skip")
        .sql("select * from {this} where id >= 1030")
        .map_batches(Lookup, schema=SCHEMA)
        .on_error("fail", retries=0)
    )
    rows = pipeline.on_spark(place.spark, maxRecordsPerPartition=5).dataframe().collect()
    assert sorted(row.id for row in rows) == [2000 + n for n in range(30, 60)]


def test_a_stage_that_fails_ends_the_run_and_says_where(place, tmp_path):
    place.fill(range(30))

    def picky(batch):
        if 16 in batch["id"].to_pylist():
            raise ValueError("no 16")
        return batch

    pipeline = (
        place.read()
        .decode_json(SCHEMA)
        .map_batches(picky, schema=SCHEMA, name="score")
        .on_error("fail", retries=0)
        .write_kafka(place.output)
    )
    run = pipeline.on_spark(place.spark, checkpoint=str(tmp_path / "c"), trigger="availableNow")
    with pytest.raises(JobFailed, match=r"the run failed: stage score failed on .*-1 offsets 0-9") as raised:
        run.run()
    assert isinstance(raised.value.cause, StageError)
    assert (raised.value.cause.stage, raised.value.cause.partition) == ("score", 1)
    assert raised.value.cause.message == "ValueError: no 16"
    assert run.status().state == "failed"


@pytest.mark.parametrize(
    ("misspelt", "stream"), [("the sink's topic", True), ("the dead-letter topic", False)]
)
def test_a_topic_that_is_written_to_and_is_not_there_is_named_before_the_start(
    place, tmp_path, misspelt, stream
):
    place.fill(range(3))
    sink, dead = ("misspelt", place.dead) if misspelt == "the sink's topic" else (place.output, "misspelt")
    pipeline = place.read().dead_letters(dead).decode_json(SCHEMA).on_error("dead_letter").write_kafka(sink)
    options = {"checkpoint": str(tmp_path / "c"), "trigger": "availableNow"} if stream else {}
    began = time.monotonic()
    with pytest.raises(JobFailed, match=f"for misspelt: {misspelt} is not there on"):
        pipeline.on_spark(place.spark, **options).run()
    assert this_run().quiet_s(began, time.monotonic()) < 120, "each of four tasks waited for a minute"


class Broken:
    def __init__(self):
        raise FileNotFoundError("no such model")

    def __call__(self, batch):
        return batch


def test_what_a_constructor_raises_is_told_with_class_file_and_line_and_the_stage(place):
    place.fill(range(3))
    pipeline = place.read().decode_json(SCHEMA).map_batches(Broken, schema=SCHEMA, name="score")
    line = Broken.__init__.__code__.co_firstlineno + 1
    where = f"raised by the constructor of Broken (test_pipeline_spark_runs.py, line {line})"
    with pytest.raises(JobFailed) as raised:
        pipeline.write(lambda batch: None).on_spark(place.spark).run()
    assert str(raised.value) == (
        f"the run failed: FileNotFoundError: no such model ({where}, raised when stage score was made)"
    )


def test_code_that_cannot_be_sent_is_refused_at_the_start_with_stage_and_variable(place):
    lock = threading.Lock()
    pipeline = place.read().decode_json(SCHEMA).map_batches(lambda batch: lock, schema=SCHEMA, name="score")
    run = pipeline.write(lambda batch: None).on_spark(place.spark)
    with pytest.raises(ConfigError, match=r"^score: can't be sent to the workers: the variable 'lock': "):
        run.start()


def test_a_running_stream_shows_how_it_gets_on_and_is_stopped_from_another_thread(place, tmp_path):
    place.fill(range(30))
    lines = []
    pipeline = place.read().decode_json(SCHEMA).write_parquet(str(tmp_path / "out"))
    run = pipeline.on_spark(place.spark, checkpoint=str(tmp_path / "c"), commitOffsets=True)
    thread = threading.Thread(target=run.start)
    thread.start()
    thread.join()
    while run.status().records != 30:
        assert run.status().state == "running"
    lines.append(run._repr_html_())
    assert "<td>running</td>" in lines[0]
    run.stop()
    run.wait()
    assert run.status().state == "stopped"
    assert place.committed() == {0: 10, 1: 10, 2: 10}, "the last batch too"


def test_a_pipeline_runs_in_each_session_of_an_application(place, tmp_path):
    """Spark registers no data source under a name that the active session has and this one has not."""
    place.fill(range(30))
    pipeline = place.read().decode_json(SCHEMA)
    other = place.spark.newSession()
    for session in (place.spark, other, place.spark):
        assert pipeline.on_spark(session).dataframe().columns == ["id", "country", "amount"]
    out = str(tmp_path / "out")
    pipeline.write_parquet(out).on_spark(other).run()
    assert place.spark.read.parquet(out).count() == 30


def reader(batch):
    """Columns with the process that reads, and with its thread that has the connections: the newest one, because a process that has worked for
    another test keeps that one's for a while."""
    *_, thread = [t.native_id for t in threading.enumerate() if t.name == "kafka-read"]
    rows = batch.num_rows
    return pa.table({"pid": [os.getpid()] * rows, "thread": [thread] * rows})


def test_a_worker_process_reads_micro_batches_over_the_connections_that_it_has(place, tmp_path):
    out = str(tmp_path / "out")
    pipeline = place.read().raw().map_batches(reader, schema="pid BIGINT, thread BIGINT").write_parquet(out)
    with pipeline.on_spark(place.spark, checkpoint=str(tmp_path / "c")).start() as run:
        for number in range(6):
            place.fill(range(number * 10, number * 10 + 10))
            while (run.status().records or 0) < number * 10 + 10:
                assert run.status().state == "running", run.wait()
    rows = place.spark.read.parquet(out).collect()
    assert len(rows) == 60
    readers = {(row.pid, row.thread) for row in rows}
    assert len(readers) == len({pid for pid, _ in readers}) < 6
    assert run.status().batch >= 5


def test_a_range_is_processed_again_in_order_and_touches_no_group(place, tmp_path):
    place.fill(range(300))
    span = {place.input: {"0": 10, "1": 10, "2": 10}}, {place.input: {"0": 60, "1": 60, "2": 60}}
    decoded = place.read().decode_json(SCHEMA)
    seen = (
        decoded.with_key(pc.scalar("same")).write_kafka(place.output, name="out").write_parquet(str(tmp_path))
    )
    run = seen.on_spark(place.spark, start=span[0], end=span[1])
    run.run()
    assert run.status().state == "finished"
    sent = [msgspec.json.decode(m.value)["id"] for m in place.records(place.output)]
    assert sorted(sent) == list(range(30, 180))
    assert sorted(pq.read_table(tmp_path)["id"].to_pylist()) == sorted(sent)
    for partition in range(PARTITIONS):
        own = [n for n in sent if n % PARTITIONS == partition]
        assert own == sorted(own)
    assert place.committed() == {}


class Picky:
    """A sink of the user's: a file for each process, flushed before a task ends."""

    def __init__(self, directory):
        self.path = f"{directory}/{os.getpid()}"
        self.lines = []

    def write(self, batch):
        for row in batch.to_pylist():
            if row["id"] == 16:
                raise ValueError("no 16")
            self.lines.append(f"{row['id']} {row['_kafka']['offset']}\n")

    def flush(self):
        with open(self.path, "a") as file:
            file.writelines(self.lines)
        self.lines.clear()


def test_what_a_users_sink_refuses_is_a_dead_letter_with_its_own_value(place, tmp_path):
    place.fill(range(30), {5: b"no"})
    pipeline = (
        place.read()
        .on_error("dead_letter", retries=0)
        .decode_json(SCHEMA)
        .write(Picky, fn_constructor_kwargs={"directory": str(tmp_path)}, kafka=True, name="picky")
        .dead_letters(place.dead)
    )
    pipeline.on_spark(place.spark).run()
    # The rows of a batch that fails are given again, in halves, so some come more than once.
    found = {tuple(map(int, line.split())) for f in tmp_path.iterdir() for line in f.read_text().splitlines()}
    assert found == {(n, n // 3) for n in range(30) if n not in (5, 16)}
    dead = {
        int(m.key[1:]): (m.value, dict(m.headers)["kafka_actors.error.stage"])
        for m in place.records(place.dead)
    }
    assert dead == {5: (b"no", b"decode_json"), 16: (order(16), b"picky")}


def test_dead_letters_are_sent_before_a_dataframe_stage_which_never_sees_them(place):
    place.fill(range(30), {5: b"no"})
    pipeline = (
        place.read()
        .decode_json(SCHEMA, on_error="dead_letter")
        .sql("select country, count(*) as n from {this} group by country")
        .with_key("country")
        .write_kafka(place.output)
        .dead_letters(place.dead)
    )
    run = pipeline.on_spark(place.spark)
    run.run()

    def counted():
        done, of = run.status().tasks
        return done == of > 0

    until(counted, 30, "all tasks to be done", shown=run.status)  # Spark counts them in a thread of its own
    assert {m.key: msgspec.json.decode(m.value)["n"] for m in place.records(place.output)} == {
        b"DE": 10,
        b"FR": 10,
        b"IT": 9,
    }
    assert [m.value for m in place.records(place.dead)] == [b"no"]


PIPELINE = """
import kafka_actors as ka


class Lookup:
    async def __call__(self, batch):
        return batch


orders = (
    ka.Pipeline.read_kafka("not-there", group_id="g", bootstrap_servers="nobody:9092")
    .decode_json(SCHEMA)
    .map_batches(Lookup, schema=SCHEMA)
    .write_kafka(OUT)
)
"""


def test_the_command_line_runs_a_pipeline_as_a_query_which_ctrl_c_stops_and_the_next_one_goes_on(
    place, tmp_path, capsys
):
    place.fill(range(30))
    (tmp_path / "pipe.py").write_text(
        PIPELINE.replace("OUT", repr(place.output)).replace("SCHEMA", repr(SCHEMA))
    )
    checkpoint, shown = str(tmp_path / "checkpoint"), tmp_path / "shown"
    source = ("-b", place.cluster.bootstrap_servers, "-X", f"topics={place.input}")
    on_spark = ("--engine", "spark", "--checkpoint", checkpoint)
    # A user has neither variable: the command finds a Spark, and a Python for it.
    of_tests = ("SPARK_HOME", "PYSPARK_PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in of_tests}

    def started():
        return subprocess.Popen(
            [Path(sys.executable).with_name("kafka-actors"), "run", "pipe.py:orders", *source, *on_spark],
            cwd=tmp_path,
            env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            stdout=shown.open("w"),
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C goes to all processes of a terminal's session
        )

    def done():
        """Whether the micro-batch has ended, or the command."""
        return first.poll() is not None or "  30 records  " in shown.read_text()

    first = started()
    try:
        while True:
            until(done, 120, "30 orders")
            if first.poll() is None:
                break
            # Spark gives the Python process of a stream ten seconds to connect, and nobody has imported for this one.
            said = first.communicate()[1]
            assert "Python worker failed to connect back" in said, said
            first = started()
        os.killpg(first.pid, signal.SIGINT)
        _, err = output_of(first, 60)
    finally:
        if first.poll() is None:
            os.killpg(first.pid, signal.SIGKILL)
    assert first.returncode == 0, err
    assert f"{place.input} → {place.output}  running" in shown.read_text()
    *_, stopping, last = shown.read_text().splitlines()
    assert stopping == "SIGINT: stopping; once more ends at once"
    assert re.fullmatch(r"stopped: 30 records in [\d.]+ s \(\d+/s\)", last)
    assert "kafka-actors: error" not in err

    place.fill(range(30, 42))
    pipeline = place.read().decode_json(SCHEMA).map_batches(taxed, schema=f"{SCHEMA}, tax DOUBLE")
    bound = pipeline.write_kafka(place.output).on_spark(
        place.spark, checkpoint=checkpoint, trigger="10 seconds"
    )
    with click.Context(commands):
        settings = job_settings(None, (), {}, until="latest")
    with Output() as output:
        assert run_on_spark(LoadedTarget("pipe.py:bound", bound, "spark"), settings, output) == 0
    assert re.fullmatch(r"done: 12 records in [\d.]+ s \(\d+/s\)", capsys.readouterr().out.splitlines()[-1])
    assert sorted(msgspec.json.decode(m.value)["id"] for m in place.records(place.output)) == list(range(42))


TIMED = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": "int"}},
        {
            "name": "part",
            "type": [
                "null",
                {"type": "record", "name": "Part", "fields": [{"name": "sku", "type": "string"}]},
            ],
        },
    ],
}
PROTO_TIMED = """syntax = "proto3"; package shop; import "google/protobuf/struct.proto"; import "google/protobuf/timestamp.proto";
enum Kind { NEW = 0; DONE = 1; }
message Order { int64 id = 1; optional string note = 2; google.protobuf.Timestamp at = 3; google.protobuf.Struct more = 4; repeated string tags = 5;
  map<string, int32> sizes = 6; Part part = 7; Kind kind = 8; message Part { string sku = 1; } }"""
JSON_TIMED = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "note": {"type": ["string", "null"]},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "part": {"type": "object", "properties": {"sku": {"type": "string"}}},
    },
    "required": ["id"],
}
OF_ORDERS = {
    "AVRO": (TIMED, lambda number: ka.schemas.AvroEncoder(TIMED, schema_id=number)),
    "PROTOBUF": (PROTO_TIMED, lambda number: ka.schemas.ProtobufEncoder(PROTO_TIMED, schema_id=number)),
    "JSON": (JSON_TIMED, lambda number: JsonSchemaEncoder(JSON_TIMED, schema_id=number)),
}


def timed_orders(kind):
    """Rows in which everything that may be is null or empty, and all of it there, in turn."""
    numbers = range(60)
    columns = {
        "id": [n * 10**12 for n in numbers],
        "note": [None if n % 2 else "é" * n for n in numbers],
        "at": pa.array([1_700_000_000_000 + n for n in numbers], pa.timestamp("ms", "UTC")),
        "price": pa.array([Decimal(n).scaleb(-2) for n in numbers], pa.decimal128(9, 2)),
        "more": [None if n % 3 else json.dumps({"n": n, "deep": [{"x": None}]}) for n in numbers],
        "tags": [["a", ""][: n % 3] for n in numbers],
        "sizes": pa.array([[("x", n)][: n % 2] for n in numbers], pa.map_(pa.string(), pa.int32())),
        "part": [None if n % 4 else {"sku": f"s{n}"} for n in numbers],
        "kind": [("NEW", "DONE")[n % 2] for n in numbers],
    }
    known = {
        "AVRO": {one["name"] for one in TIMED["fields"]},
        "PROTOBUF": {*columns} - {"price"},
        "JSON": set(JSON_TIMED["properties"]),
    }[kind]
    return pa.record_batch({name: column for name, column in columns.items() if name in known})


@pytest.mark.parametrize("kind", sorted(OF_ORDERS))
@pytest.mark.usefixtures("ray_local")
def test_spark_and_ray_give_the_same_rows_by_a_registrys_schema(place, kafka_topic, produce, tmp_path, kind):
    schema, encoder = OF_ORDERS[kind]
    with FakeSchemaRegistry() as fake:
        number = fake.add(f"{place.input}-value", schema, kind)
        values = encoder(number)(timed_orders(kind)).to_pylist()
        values[7:7] = [b"no frame", b"\0\0\0\0\1"]
        produce(place.input, values, partition=0)

        def of(output):
            read = ka.Pipeline.read_kafka(
                place.input, bootstrap_servers=place.cluster.bootstrap_servers, group_id=output
            )
            return read.decode(ka.SchemaRegistry(fake.url), on_error="skip").write_kafka(output)

        on_ray, on_spark = (kafka_topic(1) for _ in range(2))
        of(on_ray).on_ray(workers=1, until="latest").run()
        of(on_spark).on_spark(place.spark, checkpoint=str(tmp_path / "c"), trigger="availableNow").run()
    found = [[m.value for m in place.records(output)] for output in (on_ray, on_spark)]
    assert found[0] == found[1]
    assert len(found[0]) == 60
