"""The demo shows what it promises, on embedded brokers and on a real cluster: its exit code is its own check."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from fakes.refusing import refusing_address
from waiting import slow_s

from kafka_actors import Admin, TopicPartition
from kafka_actors.cli.demo.cluster import DemoFailed, Filled, check_kept, embedded
from kafka_actors.testing.produce import Produce

pytestmark = pytest.mark.ray

COMMAND = Path(sys.executable).with_name("kafka-actors")


def _demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "160"}
    return subprocess.run(
        [COMMAND, "demo", *arguments], env=environment, capture_output=True, text=True, timeout=slow_s(360)
    )


def _check_shown(out: str) -> None:
    """The summary has everything, and says the same as the exit code."""
    rows = [" ".join(row.split()) for row in out.splitlines()]
    assert any("age of the backlog" in row for row in rows)
    assert not any("latency" in row for row in rows)
    assert "orders produced 300,000" in rows
    assert any(re.match(r"orders processed 300,000 in ", row) for row in rows)
    assert any(
        re.match(r"SIGKILL for worker-\d\.1 \(pid \d+\) at (1[5-9]|2\d)\d,\d{3} of 300,000 orders", row)
        for row in rows
    )
    (duplicates,) = (
        int(f[1].replace(",", ""))
        for row in rows
        if (f := re.match(r"duplicates after the kill ([\d,]+)", row))
    )
    assert duplicates < 100_000
    assert any(
        re.match(r"time to take over [\d.]+ s until each of \d unfinished partitions", row) for row in rows
    )
    offsets = [re.fullmatch(r"orders-\S+ \d ([\d,]+) ([\d,]+) ok", row) for row in rows]
    assert len([f for f in offsets if f and f[1] == f[2]]) == 12
    countries = [re.fullmatch(r"([A-Z]{2}) ([\d,.]+) ([\d,.]+) ([\d,.]+) ok", row) for row in rows]
    assert len([f for f in countries if f and f[2] == f[3]]) == 16
    (total,) = (f for row in rows if (f := re.fullmatch(r"all ([\d,.]+) ([\d,.]+) ([\d,.]+) ok", row)))
    assert total[1] == total[2]
    assert (total[3] != total[2]) == (duplicates > 0)
    assert rows[-1].startswith("Every order was counted once")


def test_the_demo_on_embedded_brokers_ends_with_every_cent():
    done = _demo()
    assert done.returncode == 0, done.stdout + done.stderr
    _check_shown(done.stdout)


def test_the_demo_on_real_clusters_ends_with_every_cent_and_leaves_nothing_behind(kafka_cluster, ray_local):
    """Kafka and Ray that are there; with brokers of its own it starts its own Ray as well."""
    before = set(kafka_cluster.admin.list_topics(timeout=slow_s(10)).topics)
    address = ray.get_runtime_context().gcs_address
    done = _demo("--kafka", kafka_cluster.bootstrap_servers, "--ray", address)
    assert done.returncode == 0, done.stdout + done.stderr
    _check_shown(done.stdout)
    after = set(kafka_cluster.admin.list_topics(timeout=slow_s(10)).topics)
    assert not [topic for topic in after - before if topic.startswith("orders-")]
    groups = kafka_cluster.admin.list_consumer_groups(request_timeout=slow_s(10)).result().valid
    assert not [group.group_id for group in groups if group.group_id.startswith("demo-")]


def test_orders_that_brokers_deleted_are_found_before_the_job_starts():
    with embedded() as place:
        topic = place.topics["eu"]
        counts = Produce(place.bootstrap_servers)(topic, [b"x"] * 80, partition=1)
        check_kept(place, Filled({(topic, 1): counts[1]}, {}))
        with Admin(bootstrap_servers=place.bootstrap_servers) as admin:
            admin.delete_records({TopicPartition(topic, 1): 5})
        with pytest.raises(DemoFailed, match=rf"^{topic}-1 keeps offsets 5 to 80 of 80 orders produced"):
            check_kept(place, Filled({(topic, 1): counts[1]}, {}))


def test_an_address_where_no_kafka_is_and_one_that_is_none():
    with refusing_address() as address:
        done = _demo("--kafka", address)
    assert (done.returncode, done.stdout) == (1, f"waiting for {address}\n")
    assert done.stderr.startswith(f"kafka-actors: error: no broker answers at {address}")
    assert done.stderr.count("\n") == 1
    done = _demo("--kafka", "broker:port")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kafka-actors: error: bootstrap_servers: ")
