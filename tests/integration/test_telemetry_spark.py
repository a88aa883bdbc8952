"""Telemetry of Spark's tasks: real sessions, in a process of their own, whose workers inherit the variables."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.collector import Collector, plain
from waiting import slow_s

from kafka_actors.telemetry.logs import read_line

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

REPOSITORY = str(Path(__file__).parents[2])
"""Directory in which Spark finds the data source by its name."""
SESSION = """
import sys

import pyarrow as pa
from opentelemetry import trace
from pyspark.sql import SparkSession

import kafka_actors as ka

servers, source, sink, directory = sys.argv[1:]
# One core: one task after the other, so that a Python worker has several.
spark = (
    SparkSession.builder.master("local[1]")
    .appName("traced")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "1g")
    .config("spark.sql.warehouse.dir", directory)
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
"""
WORK = """
options = {"kafka.bootstrap.servers": servers, "subscribe": source, "minPartitions": "2"}
rows = spark.read.format("kafka_actors").options(**options).load()
print("rows", rows.count())


failed = []


def score(batch):
    with trace.get_tracer("users").start_as_current_span("score"):
        if not failed:  # each worker, once
            failed.append(1)
            raise ValueError("once")
        return batch


read = ka.Pipeline.read_kafka(source, group_id="g", bootstrap_servers=servers)
pipeline = read.decode_json("id BIGINT").map_batches(score, schema="id BIGINT").write_kafka(sink)
pipeline.on_spark(spark, start="earliest", end="latest").run()
stream = pipeline.on_spark(spark, checkpoint=f"{directory}/checkpoint", trigger="availableNow", start="earliest")
stream.run()
print("application", spark.sparkContext.applicationId)
spark.stop()
"""
TASK = {"spark.stage.id", "spark.partition.id", "spark.task.attempt.id", "spark.task.attempt.number"}


def context(number):
    return f"00-{number:032x}-{number:016x}-01"


@pytest.fixture
def topics(kafka_cluster, kafka_topic, produce):
    """Two partitions with twenty records, each of which has a context of its own; and an empty topic."""
    source, sink = kafka_topic(2), kafka_topic(2)
    produce(
        source,
        [b'{"id": %d}' % n for n in range(20)],
        partition=[n % 2 for n in range(20)],
        headers=[[("traceparent", context(n + 1).encode())] for n in range(20)],
    )
    return source, sink


def run(script, cluster, topics, directory, **variables):
    """Runs the program; returns its output by the first word of each line."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environment = {
        **clean,
        "PYTHONPATH": os.pathsep.join([REPOSITORY, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-c", SESSION + script, cluster.bootstrap_servers, *topics, str(directory)],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=slow_s(300),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    return said, done.stderr


def spans_of(collector):
    """Name → spans, each (span, attributes, resource)."""
    found = {}
    for scope in collector.scopes("traces"):
        for span in scope.items:
            found.setdefault(span.name, []).append((span, plain(span.attributes), scope.resource))
    return found


def id_of(span):
    return span.trace_id, span.span_id


def test_spans_of_tasks_name_the_application_and_the_task(kafka_cluster, topics, tmp_path):
    source, sink = topics
    with Collector() as collector:
        said, err = run(WORK, kafka_cluster, topics, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    assert said["rows"] == "20"
    found = spans_of(collector)
    assert found.keys() == {f"poll {source}", f"process {source}", "score", f"send {sink}"}
    resources = [resource for spans in found.values() for _, _, resource in spans]
    for resource in resources:
        assert resource["spark.application.id"] == said["application"]
        assert resource["spark.application.name"] == "traced"
        assert resource["service.name"] == "kafka-actors"
        assert resource.keys() >= TASK
        assert resource["spark.task.attempt.number"] == 0
    tasks = {resource["spark.task.attempt.id"] for resource in resources}
    by_worker = {}
    for resource in resources:
        by_worker.setdefault(resource["process.pid"], set()).add(resource["spark.task.attempt.id"])
    assert len(tasks) >= 4
    assert max(len(of) for of in by_worker.values()) > 1, "a worker's tasks are told apart"
    assert list(collector.scopes("metrics")) == []
    check_lines(collector, resources, err)

    expected = {context(n + 1)[3:52] for n in range(20)}
    for name in (f"poll {source}", f"process {source}"):
        links = {
            f"{link.trace_id.hex()}-{link.span_id.hex()}" for span, _, _ in found[name] for link in span.links
        }
        assert links == expected
    for span, attributes, _ in found[f"poll {source}"]:
        assert span.kind == span.SPAN_KIND_CLIENT
        assert attributes["messaging.operation.type"] == "receive"
    calls = {id_of(span): resource for span, _, resource in found[f"process {source}"]}
    for span, attributes, _ in found[f"process {source}"]:
        assert span.kind == span.SPAN_KIND_CONSUMER
        assert attributes["messaging.batch.message_count"] == 10
    for span, _, resource in found["score"]:
        assert calls[span.trace_id, span.parent_span_id] == resource, "a user's span is of the same task"
    streamed = [resource for resource in resources if "spark.streaming.query.id" in resource]
    assert {resource["spark.streaming.batch.id"] for resource in streamed} == {"0"}
    assert 0 < len(streamed) < len(resources)


def check_lines(collector, resources, err):
    """Each line that is said in a task names it, for a collector and on stderr."""
    tasks = [{name: resource[name] for name in TASK} for resource in resources]
    records = [record for scope in collector.scopes("logs") for record in scope.items]
    retried = [plain(record.attributes) for record in records if "retry 1 of" in record.body.string_value]
    assert retried
    assert all({name: line[name] for name in TASK} in tasks for line in retried)
    lines = [read_line(line) for line in err.splitlines() if "retry 1 of" in line]
    assert len(lines) == len(retried)
    assert all({name: line[name.replace(".", "_")] for name in TASK} in tasks for line in lines)


def test_variables_that_this_library_has_no_use_for_fail_no_task(kafka_cluster, topics, tmp_path):
    """Such variables may be meant for the JVM, or for all programs of a machine."""
    script = """
options = {"kafka.bootstrap.servers": servers, "subscribe": source}
print("rows", spark.read.format("kafka_actors").options(**options).load().count())
spark.stop()
"""
    said, err = run(script, kafka_cluster, topics, tmp_path, OTEL_TRACES_EXPORTER="zipkin")
    assert said["rows"] == "20"
    assert "Spark's tasks are not traced: OTEL_TRACES_EXPORTER: has 'zipkin'" in err
    (line,) = [read_line(line) for line in err.splitlines() if "are not traced" in line]
    assert line["level"] == "WARNING"
    assert line.keys() >= {name.replace(".", "_") for name in TASK}
