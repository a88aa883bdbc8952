"""Telemetry of a running job: to an OpenTelemetry collector, and to a real Prometheus."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from functools import partial

import pytest
from fakes.collector import Collector, plain
from fakes.prometheus import blocked_at, prometheuses
from pace import this_run
from prometheus_client.parser import text_string_to_metric_families
from waiting import at_pace_s, output_of, slow_s, until

from kafka_actors.telemetry.instruments import BY_NAME, LATENCY_SECONDS, SCHEMA_URL, SECONDS, InstrumentKind
from kafka_actors.testing.node import free_ports

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

JOB = """
import os
import time
from glob import glob

import kafka_actors as ka

class Work:
    def __init__(self):
        self.failed = False
        open("{directory}/made-" + str(os.getpid()), "w").close()
        while len(glob("{directory}/made-*")) < 2:  # one that came seconds later would find nothing left to do
            time.sleep(0.05)

    def __call__(self, batch):
        time.sleep(0.02)
        if batch["partition"][0].as_py() == 1 and 500 in batch["offset"].to_pylist() and not self.failed:
            self.failed = True
            while not os.path.exists("{directory}/gate"):
                time.sleep(0.05)
            raise ValueError("once")


job = ka.Job(
    topics=["{topic}"],
    group_id="{group}",
    bootstrap_servers="{servers}",
    process=Work,
    workers=2,
    batch_rows=100,
    retries=3,
)
"""


@pytest.fixture
def start(run_job, kafka_cluster, topic, group_id, tmp_path):
    """Starts `kafka-actors run` on the job above, with these arguments and variables."""
    servers = kafka_cluster.bootstrap_servers
    return partial(run_job, JOB.format(topic=topic, group=group_id, servers=servers, directory=tmp_path))


def kind_of(metric):
    found = metric.WhichOneof("data")
    if found == "sum":
        return InstrumentKind.COUNTER if metric.sum.is_monotonic else InstrumentKind.UP_DOWN_COUNTER
    return {"histogram": InstrumentKind.HISTOGRAM, "gauge": InstrumentKind.GAUGE}[found]


def points_of(metric):
    return list(getattr(metric, metric.WhichOneof("data")).data_points)


def number(point):
    return getattr(point, point.WhichOneof("value"))


def lags_in(collector):
    metrics = (metric for scope in collector.scopes("metrics") for metric in scope.items)
    return [number(p) for m in metrics if m.name == "kafka.consumer_group.lag" for p in points_of(m)]


def open_when_behind(collector, gate):
    try:
        until(lambda: any(lags_in(collector)), 60, "a lag")
    finally:
        gate.touch()


def test_a_collector_gets_what_the_conventions_say(start, topic, group_id, tmp_path):
    began = time.monotonic()
    with Collector() as collector:
        # A partition is not read to its end before a lag was told of.
        watching = threading.Thread(target=open_when_behind, args=(collector, tmp_path / "gate"), daemon=True)
        watching.start()
        process = start(
            *("--until", "latest", "--otlp", collector.url, "--log-format", "json", "--log-level", "info"),
            OTEL_METRIC_EXPORT_INTERVAL="300",
            OTEL_TRACES_EXPORTER="none",
        )
        out, err = output_of(process, 120)
        assert process.returncode == 0, (out, err)
    check_log([json.loads(line) for line in err.splitlines()], topic, group_id)
    check_log_records(list(collector.scopes("logs")), topic, group_id)
    ours = [scope for scope in collector.scopes("metrics") if scope.name == "kafka_actors"]
    check_metrics(ours, topic, group_id, this_run().since(began))
    assert list(collector.scopes("traces")) == []


def check_log(lines, topic, group_id):
    """Each line says who speaks; the rebalance can be read from them."""
    said = [line for line in lines if line["logger"].startswith("kafka_actors.") and "actor" in line]
    assert {line["actor"] for line in said} >= {"coordinator", "worker-0", "worker-1"}
    assert {(line["group"], line["incarnation"]) for line in said} == {(group_id, 1)}
    events = {line["event"]: line for line in said if "event" in line}
    assert events["Rejoining"]["actor"] == "coordinator"
    partitions = ",".join(f"{topic}-{n}" for n in range(4))
    assert events["PartitionsAssigned"]["partitions"] == partitions
    assert events["Rebalanced"]["generation"] == events["PartitionsAssigned"]["generation"]
    assert float(events["Rebalanced"]["seconds"]) > 0
    assert events["NoCommittedOffset"]["topic"] == topic
    (retry,) = [line for line in said if "retry 1 of 3" in line["message"]]
    assert (retry["topic"], retry["partition"]) == (topic, 1)
    assert retry["actor"].startswith("worker-")


def check_log_records(scopes, topic, group_id):
    """Checks the lines of the log as the collector got them, with the job and node of the process that wrote each."""
    records = {}
    for scope in scopes:
        assert scope.resource["messaging.consumer.group.name"] == group_id
        assert scope.resource["ray.job.id"]
        assert scope.resource["ray.node.id"]
        for record in scope.items:
            records.setdefault(record.event_name or record.body.string_value, []).append(
                (record.severity_text, plain(record.attributes))
            )
    level, assigned = records["PartitionsAssigned"][0]
    assert (level, assigned["kafka_actors.actor"]) == ("INFO", "coordinator")
    assert assigned["messaging.consumer.group.name"] == group_id
    ((level, retry),) = itertools.chain.from_iterable(
        of for text, of in records.items() if "retry 1 of 3" in text
    )
    assert (level, retry["messaging.destination.partition.id"]) == ("WARNING", "1")


def check_metrics(scopes, topic, group_id, pace):
    assert scopes
    last = {}
    gauges = {}
    for scope in scopes:
        assert scope.schema_url == SCHEMA_URL
        assert scope.resource["service.name"] == "kafka-actors"
        assert scope.resource["messaging.consumer.group.name"] == group_id
        for metric in scope.items:
            mine = BY_NAME[metric.name]
            assert (metric.unit, metric.description, kind_of(metric)) == (
                mine.unit,
                mine.description,
                InstrumentKind.HISTOGRAM if mine.kind is InstrumentKind.DISTRIBUTION else mine.kind,
            )
            for point in points_of(metric):
                attributes = plain(point.attributes)
                assert attributes.keys() <= set(mine.attributes)
                if metric.name.startswith("messaging."):
                    assert attributes["messaging.system"] == "kafka"
                    assert attributes["messaging.operation.name"] in ("process", "fetch", "commit")
                if metric.name == "messaging.client.operation.duration":
                    assert {"server.address", "server.port"} <= attributes.keys(), "the broker that was asked"
                if mine.kind is InstrumentKind.GAUGE:
                    gauges.setdefault(metric.name, []).append((attributes, number(point)))
            last[metric.name] = [(plain(p.attributes), p) for p in points_of(metric)]

    consumed = {
        a["messaging.destination.partition.id"]: number(p)
        for a, p in last["messaging.client.consumed.messages"]
    }
    assert consumed == {str(n): 3_000 for n in range(4)}
    calls = {a.get("error.type"): p for a, p in last["messaging.process.duration"]}
    assert (calls[None].count, calls["ValueError"].count) == (120, 1)
    assert 120 * 0.02 <= calls[None].sum < 60 * pace, "seconds, and nothing but the calls"
    assert tuple(calls[None].explicit_bounds) == SECONDS
    assert sum(calls[None].bucket_counts[:2]) == 0, "no call took less than ten milliseconds"
    check_latency(last["kafka_actors.latency"], group_id)
    operations = {
        (a["messaging.operation.name"], a["messaging.operation.type"])
        for a, _ in last["messaging.client.operation.duration"]
    }
    assert operations == {("fetch", "receive"), ("commit", "settle")}
    servers = {a["server.port"] for a, _ in last["kafka_actors.fetch.size"]}
    assert 1 <= len(servers) <= 3
    assert sum(number(p) for _, p in last["kafka_actors.fetch.size"]) > 12_000 * 4
    ((retried, point),) = last["kafka_actors.process.retries"]
    assert (retried["error.type"], number(point)) == ("ValueError", 1)
    ((_, rebalance),) = last["kafka_actors.consumer_group.rebalance.duration"]
    assert rebalance.count >= 1

    lags = gauges["kafka.consumer_group.lag"]
    assert {(a["group"], a["topic"], a["partition"]) for a, _ in lags} == {
        (group_id, topic, n) for n in range(4)
    }
    assert max(value for _, value in lags) > 0
    assert min(value for _, value in lags) >= 0
    assert {a["topic"] for a, _ in gauges["kafka.consumer_group.lag_sum"]} == {topic}
    assert {value for _, value in gauges["kafka.partition.current_offset"]} == {3_000}
    assert gauges["kafka_actors.consumer_group.lag.time"]
    assert {value for _, value in gauges["kafka.partition.oldest_offset"]} == {0}
    ((_, members),) = last["kafka.consumer_group.members"]
    assert number(members) == 1


def check_latency(points, group_id):
    """One histogram for the job, of all of its records: seconds from their timestamps, in buckets that double."""
    ((attributes, latency),) = points
    assert attributes == {"group": group_id}
    assert tuple(latency.explicit_bounds) == LATENCY_SECONDS
    assert len(latency.bucket_counts) == len(LATENCY_SECONDS) + 1
    assert (latency.count, sum(latency.bucket_counts)) == (12_000, 12_000)
    assert sum(latency.bucket_counts[:5]) == 0, "a call took twenty milliseconds: none of its records took 16"
    assert 0.016 < latency.sum / latency.count < 600
    assert 0 < latency.start_time_unix_nano < latency.time_unix_nano
    assert not latency.HasField("min")
    assert not latency.HasField("max")


# ---------------------------------------------------------------- traces

PRODUCE = """
import pyarrow as pa

import kafka_actors as ka
from kafka_actors import telemetry

telemetry.configure()
with ka.Producer(bootstrap_servers="{servers}") as producer:
    for partition in range(4):
        values = pa.array([b"%d" % n for n in range(50)], pa.binary())
        batch = pa.record_batch({{"value": values, "partition": pa.array([partition] * 50, pa.int32())}})
        producer.send_batch(batch, topic="{topic}")
    producer.send("{topic}", b"PAYLOAD-alone", b"PAYLOAD-key", headers={{"h": b"PAYLOAD-header"}}, partition=2).result()
telemetry.flush()
"""
PASS_ON = """
import pyarrow as pa
from opentelemetry import trace

import kafka_actors as ka


def work(batch):
    with trace.get_tracer("users").start_as_current_span("score"):
        return pa.record_batch({{"value": batch["value"]}})


job = ka.Job(
    topics=["{topic}"],
    group_id="{group}",
    bootstrap_servers="{servers}",
    process=work,
    sink=ka.KafkaSink("{out}"),
    workers=2,
)
"""


def traced(collector):
    """All spans by their kind of operation (or name), each (span, attributes, resource)."""
    found = {}
    for scope in collector.scopes("traces"):
        for span in scope.items:
            attributes = plain(span.attributes)
            name = attributes.get("messaging.operation.name", span.name)
            found.setdefault(name, []).append((span, attributes, scope.resource))
    return found


def id_of(span):
    return span.trace_id, span.span_id


def test_traces_go_from_the_producer_over_all_actors_to_the_commit_and_the_sink(
    run_job, kafka_cluster, kafka_topic, group_id
):
    servers = kafka_cluster.bootstrap_servers
    source, sink = (kafka_topic(4) for _ in range(2))
    with Collector() as collector:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
        script = PRODUCE.format(servers=servers, topic=source)
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, **variables}, check=True, timeout=slow_s(60)
        )
        job = PASS_ON.format(topic=source, out=sink, group=group_id, servers=servers)
        process = run_job(job, "--until", "latest", **variables)
        out, err = output_of(process, 120)
        assert (process.returncode, err) == (0, ""), out
    assert "PAYLOAD" not in "".join(str(request) for _, request in collector.requests) + out
    found = traced(collector)
    check_where(found)

    produced = {id_of(s) for s, a, _ in found["send"] if a["messaging.destination.name"] == source}
    assert len(produced) == 5
    calls = {id_of(span): span for span, _, _ in found["process"]}
    links = {id_of(link) for span in calls.values() for link in span.links}
    assert links == produced, "each record's context is linked to by the call that works on it"
    for span, attributes, resource in found["process"]:
        assert (span.name, span.kind) == (f"process {source}", span.SPAN_KIND_CONSUMER)
        assert attributes["messaging.consumer.group.name"] == group_id
        assert resource["service.instance.id"].startswith(f"{group_id}/worker-")
        assert resource["ray.job.id"]
    counts = [a["messaging.batch.message_count"] for _, a, _ in found["process"]]
    assert sum(counts) == 201
    assert {(span.trace_id, span.parent_span_id) for span, _, _ in found["score"]} == calls.keys()

    passed_on = [s for s, a, _ in found["send"] if a["messaging.destination.name"] == sink]
    assert {(span.trace_id, span.parent_span_id) for span in passed_on} == calls.keys()
    headers = {traceparent[:-3] for traceparent in headers_of(servers, sink, 201)}
    assert headers == {f"00-{span.trace_id.hex()}-{span.span_id.hex()}" for span in passed_on}

    commits = [(span, resource["service.instance.id"]) for span, _, resource in found["commit"]]
    asked = [span for span, who in commits if "/worker-" in who]
    done = [span for span, who in commits if "/coordinator." in who]
    assert {id_of(link) for span in asked for link in span.links} == calls.keys()
    behind = {(s.trace_id, s.parent_span_id) for s in done} | {id_of(link) for s in done for link in s.links}
    assert behind >= {id_of(span) for span in asked if span.links}, (
        "each reaches the coordinator's OffsetCommit"
    )
    assert {(span.name, span.kind) for span, _ in commits} == {("commit", asked[0].SPAN_KIND_CLIENT)}


def check_where(found):
    """Checks the attributes of the cluster, of the broker that answered, and of a record that was sent alone."""
    by_operation = {name: found[name] for name in ("send", "process", "commit")}
    clusters = {a["messaging.kafka.cluster.id"] for spans in by_operation.values() for _, a, _ in spans}
    assert len(clusters) == 1
    assert {
        bool(a.get("server.port"))
        for _, a, r in found["commit"]
        if "/coordinator." in r["service.instance.id"]
    } == {True}
    (alone,) = [a for _, a, _ in found["send"] if "messaging.batch.message_count" not in a]
    assert (alone["messaging.destination.partition.id"], alone["messaging.kafka.offset"]) == ("2", 50)
    assert alone["server.port"]
    assert "messaging.kafka.message.key" not in alone


def headers_of(servers, topic, count):
    """The traceparents of the first `count` records of a topic."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "x", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(4)])
    found = []
    deadline = time.monotonic() + slow_s(30)
    while len(found) < count:
        assert time.monotonic() < deadline, len(found)
        for message in consumer.consume(count, timeout=1):
            found += [value.decode() for key, value in message.headers() or () if key == "traceparent"]
    consumer.close()
    return found


# ---------------------------------------------------------------- Prometheus


@pytest.fixture
def prometheus(tmp_path):
    with prometheuses(tmp_path) as start_one:
        yield start_one


def test_prometheus_scrapes_a_running_job(start, prometheus, topic, group_id, tmp_path):
    port, began = free_ports(1)[0], time.monotonic()
    (tmp_path / "gate").touch()
    process = start("--prometheus", f":{port}")
    scraper = prometheus(f"localhost:{port}")
    try:
        scraper.until("sum(messaging_client_consumed_messages_total)", 12_000)
        scraper.until("sum(kafka_consumer_group_lag)", 0)
        scraper.until("up", 1)
        assert {
            (m["group"], m["topic"], m["partition"]) for m, _ in scraper.some("kafka_consumer_group_lag")
        } == {(group_id, topic, str(n)) for n in range(4)}
        names = {m["__name__"] for m, _ in scraper.some('{job="kafka-actors", __name__!~"up|scrape_.*"}')}
        others = f'{{__name__=~"(kafka|kafka_actors|messaging)_.*", group!="{group_id}"}}'
        assert scraper.query(others) == [], "series that the label of the group doesn't choose"
        assert {
            "messaging_process_duration_seconds_bucket",
            "messaging_client_operation_duration_seconds_sum",
            "messaging_client_consumed_messages_total",
            "kafka_consumer_group_lag",
            "kafka_consumer_group_lag_sum",
            "kafka_consumer_group_offset",
            "kafka_consumer_group_members",
            "kafka_partition_current_offset",
            "kafka_partition_oldest_offset",
            "kafka_actors_latency_seconds_bucket",
            "kafka_actors_consumer_group_lag_time_seconds",
            "kafka_actors_fetch_size_bytes_total",
            "kafka_actors_buffer_usage_bytes",
            "kafka_actors_buffer_limit_bytes",
            "kafka_actors_workers",
        } <= names
        assert not [name for name in names if re.search("_ratio$|published|message_offset", name)]
        ((_, ninetieth),) = scraper.some(
            "histogram_quantile(0.9, sum by (le) (messaging_process_duration_seconds_bucket))"
        )
        assert 0.01 < ninetieth < 1 * this_run().since(began)
        scraper.until("kafka_consumer_group_members", 1)
        scraper.until("sum(kafka_partition_oldest_offset)", 0)
        scraper.until("kafka_actors_latency_seconds_count", 12_000)
        ((_, slowest),) = scraper.some(
            "histogram_quantile(1, sum by (le) (kafka_actors_latency_seconds_bucket))"
        )
        ((_, mean),) = scraper.some("kafka_actors_latency_seconds_sum / kafka_actors_latency_seconds_count")
        assert 0 < mean < slowest < 600
        # A worker that dies is replaced, and what was counted stays counted. What is not committed would be counted again.
        scraper.until("sum(kafka_consumer_group_offset)", 12_000)
        pid, _ = (int(file.name.removeprefix("made-")) for file in tmp_path.glob("made-*"))
        os.kill(pid, signal.SIGKILL)
        scraper.until('sum(kafka_actors_actor_restarts_total{role="worker"})', 1)
        scraper.until('sum(kafka_actors_workers{ready="true"})', 2)
        scraper.until('sum(kafka_actors_partition_moves_total{cause="worker_died"})', 2)
        assert [value for _, value in scraper.some("sum(messaging_client_consumed_messages_total)")] == [
            12_000
        ]
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = output_of(process, 60)
    assert process.returncode == 0, (out, err)


BLOCKED = """
import os
import time
from glob import glob

import kafka_actors as ka


class Work:
    def __init__(self):
        open("{directory}/made-" + str(os.getpid()), "w").close()
        while len(glob("{directory}/made-*")) < 2:  # one that came later would fetch later
            time.sleep(0.05)

    def __call__(self, batch):
        while not os.path.exists("{gate}"):
            time.sleep(0.05)


job = ka.Job(
    topics=["{topic}"],
    group_id="{group}",
    bootstrap_servers="{servers}",
    process=Work,
    workers=2,
    auto_offset_reset="earliest",
    config={{"worker_buffer_bytes": 200_000, "max_partition_fetch_bytes": 50_000}},
)
"""


def gauges_of(port):
    """Scrapes the metrics: the sum of all series of a name, and their number."""
    try:
        with urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=slow_s(5)) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            total, count = found.get(sample.name, (0, 0))
            found[sample.name] = total + sample.value, count + 1
    return found


def test_lag_is_that_of_the_brokers_also_where_full_buffers_fetch_nothing(
    run_job, kafka_cluster, kafka_topic, produce, group_id, tmp_path
):
    """Workers with full buffers fetch nothing, and hear nothing of new ends: the lag comes from the brokers."""
    servers = kafka_cluster.bootstrap_servers
    name = kafka_topic(4)

    def more():
        values, where = [b"x" * 10_000] * 400, [n % 4 for n in range(400)]
        produce(name, values, partition=where)

    more()
    gate, port = tmp_path / "gate", free_ports(1)[0]
    job = BLOCKED.format(topic=name, group=group_id, servers=servers, gate=gate, directory=tmp_path)
    process = run_job(job, "--prometheus", f":{port}")

    def has(metric, value, count):
        return lambda: gauges_of(port).get(metric) == (value, count)

    def shown():
        return process.poll(), gauges_of(port)

    try:
        until(has("kafka_partition_current_offset", 400, 4), 60, pause=0.2, shown=shown)
        usage = "kafka_actors_buffer_usage_bytes"
        until(lambda: gauges_of(port).get(usage, (0, 0))[0] > 200_000, 60, pause=0.2, shown=shown)
        before = None
        while before != (before := gauges_of(port)[usage]):
            time.sleep(at_pace_s(2))
        more()
        until(has("kafka_partition_current_offset", 800, 4), 60, pause=0.2, shown=shown)
        late = gauges_of(port)
        assert late[usage] == before, "nothing more was fetched"
        assert late["kafka_consumer_group_lag"][0] >= 400
        assert late["kafka_actors_consumer_group_lag_time_seconds"][1] == 4
        assert late["kafka_consumer_group_members"] == (1, 1)
        assert "buffer_full" in blocked_at(f"http://localhost:{port}").values()
    finally:
        gate.touch()
        process.send_signal(signal.SIGTERM)
        out, err = output_of(process, 60)
    assert process.returncode == 0, (out, err)
