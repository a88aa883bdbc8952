"""Memory with a backlog and a slow function, and without anything to do: bounded, and flat."""

import os
import time

import psutil
import pytest
from waiting import until

import kafka_actors as ka

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def scene(scene_3):
    """On three brokers."""
    return scene_3


MB = 1 << 20
BACKLOG = 1_000_000
"""Records of 1 KB."""
WORKERS = 2
BUFFER = 48 * MB
"""`worker_buffer_bytes`."""
WATCHED_S = 25.0
IDLE_S = float(os.environ.get("KAFKA_ACTORS_TEST_IDLE_S", "45"))
"""Seconds for which an idle consumer is watched."""


def memory(pids):
    """Memory of these processes in MB, with their shares of what they have in common (PSS)."""
    return sum(psutil.Process(pid).memory_full_info().pss for pid in pids) / MB


@pytest.mark.ray
def test_a_slow_function_before_a_long_backlog_costs_no_more_than_the_buffers(scene, produce):
    def slow(batch):
        time.sleep(1)

    running = scene.start(
        workers=WORKERS, process=slow, batch_rows=2000, config={"worker_buffer_bytes": BUFFER}
    )
    servers = scene.cluster.bootstrap_servers
    produce(scene.topic, [b"x" * 1000] * 12_000, bootstrap_servers=servers)
    until(lambda: scene.committed() == scene.ends(), 60, "the first records to be processed", pause=0.5)
    pids = set(scene.pids().values())
    before = memory(pids)
    produce(scene.topic, [b"x" * 1000] * BACKLOG, bootstrap_servers=servers)
    peak, end = 0.0, time.monotonic() + WATCHED_S
    while time.monotonic() < end:
        peak = max(peak, memory(pids))
        time.sleep(0.2)
    lag = running.status().lag
    print(f"{before:.0f} MB before, {peak:.0f} MB at most, with {lag} records left")
    assert lag * 1000 > 2 * WORKERS * BUFFER, (
        "the control: there was always more to be read than memory for it"
    )
    assert set(scene.pids().values()) >= pids
    assert peak - before <= WORKERS * BUFFER / MB * 1.2


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.ray
def test_a_backlog_at_full_speed_costs_no_more_than_the_buffers(scene, produce, codec):
    running = scene.start(workers=WORKERS, process=lambda batch: None, config={"worker_buffer_bytes": BUFFER})
    servers = scene.cluster.bootstrap_servers
    produce(scene.topic, [b"x" * 1000] * 12_000, bootstrap_servers=servers)
    until(lambda: scene.committed() == scene.ends(), 60, "the first records to be processed", pause=0.5)
    pids = set(scene.pids().values())
    before, names = memory(pids), scene.pids()
    first = {name: kinds(pid) for name, pid in names.items()}
    running.pause()
    values = [os.urandom(500).hex().encode() for _ in range(1000)] * (BACKLOG // 1000)
    produce(scene.topic, values, bootstrap_servers=servers, compression=codec)
    time.sleep(5)
    full = memory(pids)
    for name, pid in names.items():
        print("full", name, {k: f"{v - first[name].get(k, 0):+.0f}" for k, v in kinds(pid).items()})
    running.resume()
    peak = full
    while scene.committed() != scene.ends():
        peak = max(peak, memory(pids))
        time.sleep(0.1)
    after = memory(pids)
    for name, pid in names.items():
        print("after", name, {k: f"{v - first[name].get(k, 0):+.0f}" for k, v in kinds(pid).items()})
    budget = WORKERS * BUFFER / MB
    print(
        f"{before:.0f} MB before; of the budget {(full - before) / budget:.2f} full, {(peak - before) / budget:.2f} at most, "
        f"{(after - before) / budget:.2f} after"
    )
    assert max(peak, after) - before <= budget * 1.2


def kinds(pid):
    """Memory of a process in MB, by kind."""
    found = {}
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        for line in rollup:
            name, _, rest = line.partition(":")
            if name in ("Pss", "Pss_Anon", "Pss_File", "Pss_Shmem"):
                found[name] = int(rest.split()[0]) / 1024
    return found


def test_an_idle_consumer_takes_no_more_from_minute_to_minute(kafka_cluster, kafka_topic, group_id):
    topic = kafka_topic(4)
    process = psutil.Process()
    with ka.Consumer(
        [topic], group_id=group_id, bootstrap_servers=kafka_cluster.bootstrap_servers
    ) as consumer:

        def poll_for(seconds, at_least=0):
            polls, end = 0, time.monotonic() + seconds
            while time.monotonic() < end or polls < at_least:
                assert consumer.poll_batch(timeout_ms=1) is None
                polls += 1
            return polls

        poll_for(10)
        before = process.memory_info().rss
        polls = poll_for(IDLE_S, at_least=100 * IDLE_S)
        grown = (process.memory_info().rss - before) / MB
    print(f"{polls} polls, {grown:.2f} MB more")
    assert grown < 1
