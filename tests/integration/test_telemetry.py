"""What a running job tells others of itself: to an OpenTelemetry collector, and to a real Prometheus."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from fakes.collector import Collector, plain

from kafka_actors.telemetry.instruments import BY_NAME, SCHEMA_URL, SECONDS, Kind
from kafka_actors.testing.ports import free_ports

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

COMMAND = Path(sys.executable).with_name("kafka-actors")
JOB = """
import os
import time

import kafka_actors as ka

failed = []


def work(batch):
    open("{directory}/pid-" + str(os.getpid()), "w").close()
    time.sleep(0.02)
    if batch["partition"][0].as_py() == 1 and 500 in batch["offset"].to_pylist() and not failed:
        failed.append(1)
        raise ValueError("once")


job = ka.Job(
    topics=["{topic}"],
    group_id="{group}",
    bootstrap_servers="{servers}",
    process=work,
    workers=2,
    batch_rows=100,
    retries=3,
)
"""


@pytest.fixture
def topic(kafka_cluster_3, kafka_topic, produce):
    """12,000 records over 4 partitions."""
    name = kafka_topic(4, cluster=kafka_cluster_3, replication_factor=3)
    values = [b"%d" % n for n in range(12_000)]
    where = [n % 4 for n in range(12_000)]
    produce(name, values, partition=where, bootstrap_servers=kafka_cluster_3.bootstrap_servers)
    return name


@pytest.fixture
def start(ray_local, kafka_cluster_3, topic, group_id, tmp_path):
    """Starts `kafka-actors run` on the job above, with these arguments and variables."""
    import ray

    address = ray.get_runtime_context().gcs_address
    servers = kafka_cluster_3.bootstrap_servers
    (tmp_path / "work.py").write_text(
        JOB.format(topic=topic, group=group_id, servers=servers, directory=tmp_path)
    )
    started = []

    def run(*arguments, **variables):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        process = subprocess.Popen(
            [COMMAND, "run", "work.py:job", *arguments],
            cwd=tmp_path,
            env={**clean, "RAY_ADDRESS": address, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def kind_of(metric):
    found = metric.WhichOneof("data")
    if found == "sum":
        return Kind.COUNTER if metric.sum.is_monotonic else Kind.UP_DOWN_COUNTER
    return {"histogram": Kind.HISTOGRAM, "gauge": Kind.GAUGE}[found]


def points_of(metric):
    return list(getattr(metric, metric.WhichOneof("data")).data_points)


def number(point):
    return getattr(point, point.WhichOneof("value"))


def test_a_collector_gets_what_the_conventions_say(start, topic, group_id):
    with Collector() as collector:
        process = start("--until", "latest", "--otlp", collector.url, OTEL_METRIC_EXPORT_INTERVAL="300")
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, (out, err)
        (warned,) = err.splitlines()
        assert "retry 1 of 3" in warned
        scopes = [scope for scope in collector.scopes("metrics") if scope.name == "kafka_actors"]
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
                mine.kind,
            )
            for point in points_of(metric):
                attributes = plain(point.attributes)
                assert attributes.keys() <= set(mine.attributes)
                if metric.name.startswith("messaging."):
                    assert attributes["messaging.system"] == "kafka"
                    assert attributes["messaging.operation.name"] in ("process", "fetch", "commit")
                if mine.kind is Kind.GAUGE:
                    gauges.setdefault(metric.name, []).append((attributes, number(point)))
            last[metric.name] = [(plain(p.attributes), p) for p in points_of(metric)]

    consumed = {
        a["messaging.destination.partition.id"]: number(p)
        for a, p in last["messaging.client.consumed.messages"]
    }
    assert consumed == {str(n): 3_000 for n in range(4)}
    calls = {a.get("error.type"): p for a, p in last["messaging.process.duration"]}
    assert (calls[None].count, calls["ValueError"].count) == (120, 1)
    assert calls[None].sum == pytest.approx(120 * 0.02, rel=0.5)
    assert tuple(calls[None].explicit_bounds) == SECONDS
    assert sum(calls[None].bucket_counts[:2]) == 0, "no call took less than ten milliseconds"
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


# ---------------------------------------------------------------- Prometheus


class Prometheus:
    """A real one, which scrapes `target` ten times a second."""

    def __init__(self, directory: Path, target: str) -> None:
        self._port = free_ports(1)[0]
        config = directory / "prometheus.yml"
        config.write_text(
            textwrap.dedent(f"""\
            global:
              scrape_interval: 500ms
            scrape_configs:
              - job_name: kafka-actors
                static_configs:
                  - targets: ["{target}"]
            """)
        )
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'prometheus'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
                "--log.level=error",
            ],
            stdin=subprocess.DEVNULL,
        )

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series; nothing while it isn't up."""
        query = urllib.parse.urlencode({"query": expression})
        url = f"http://127.0.0.1:{self._port}/api/v1/query?{query}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                found = json.load(answer)["data"]["result"]
        except OSError:
            return []
        return [(series["metric"], float(series["value"][1])) for series in found]

    def until(self, expression: str, value: float, timeout_s: float = 60) -> None:
        """Waits until a query of one series has this value."""
        deadline = time.monotonic() + timeout_s
        while [found for _, found in self.query(expression)] != [value]:
            assert time.monotonic() < deadline, (expression, self.query(expression))
            time.sleep(0.2)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)


@pytest.fixture
def prometheus(tmp_path):
    if shutil.which("prometheus") is None:
        pytest.skip("there is no prometheus on this machine: apt-get install prometheus")
    started = []

    def start_one(target):
        started.append(Prometheus(tmp_path, target))
        return started[-1]

    yield start_one
    for each in started:
        each.close()


def test_prometheus_scrapes_a_running_job(start, prometheus, topic, group_id, tmp_path):
    port = free_ports(1)[0]
    process = start("--prometheus", f":{port}")
    scraper = prometheus(f"localhost:{port}")
    try:
        scraper.until("sum(messaging_client_consumed_messages_total)", 12_000)
        scraper.until("sum(kafka_consumer_group_lag)", 0)
        scraper.until("up", 1)
        assert {
            (m["group"], m["topic"], m["partition"]) for m, _ in scraper.query("kafka_consumer_group_lag")
        } == {(group_id, topic, str(n)) for n in range(4)}
        names = {m["__name__"] for m, _ in scraper.query('{job="kafka-actors"}')}
        assert {
            "messaging_process_duration_seconds_bucket",
            "messaging_client_operation_duration_seconds_sum",
            "messaging_client_consumed_messages_total",
            "kafka_consumer_group_lag",
            "kafka_consumer_group_lag_sum",
            "kafka_consumer_group_offset",
            "kafka_partition_current_offset",
            "kafka_actors_consumer_group_lag_time_seconds",
            "kafka_actors_fetch_size_bytes_total",
            "kafka_actors_buffer_usage_bytes",
            "kafka_actors_buffer_limit_bytes",
            "kafka_actors_workers",
        } <= names
        assert not [name for name in names if re.search("_ratio$|published|message_offset", name)]
        ((_, ninetieth),) = scraper.query(
            "histogram_quantile(0.9, sum by (le) (messaging_process_duration_seconds_bucket))"
        )
        assert 0.01 < ninetieth < 1
        # A worker that dies is replaced, and what was counted stays counted.
        pid, _ = (int(file.name.removeprefix("pid-")) for file in tmp_path.glob("pid-*"))
        os.kill(pid, signal.SIGKILL)
        scraper.until('sum(kafka_actors_actor_restarts_total{role="worker"})', 1)
        scraper.until('sum(kafka_actors_workers{ready="true"})', 2)
        scraper.until('sum(kafka_actors_partition_moves_total{cause="worker_died"})', 2)
        assert [value for _, value in scraper.query("sum(messaging_client_consumed_messages_total)")] == [
            12_000
        ]
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, (out, err)
