"""A real broker's answers get lost, or come late: a commit was carried out and nobody is told of it, a router forgot the
connections, the committed offsets are waited for longer than a rebalance may take."""

import threading
import time
from contextlib import closing

import pytest
from fakes.proxy import Proxy
from jobs.driver import exists
from jobs.scene import Scene
from pace import this_run
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.protocol import ApiKey
from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.produce import Produce

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

PARTITIONS = 6
LOST_S = 30.0
AFTER_S = 10.0
"""So soon after answers arrive again the group is stable and everything goes on."""


@pytest.fixture(scope="module")
def proxied():
    """A broker and the proxy that its clients see in its place."""
    proxy = Proxy()
    advertised = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
    with closing(proxy), KafkaCluster(broker_config=advertised) as cluster:
        proxy.forward_to(*cluster.address(1))
        yield cluster, proxy


@pytest.fixture
def stage(ray_local, proxied, group_id, tmp_path):
    cluster, proxy = proxied
    topic = cluster.create_topic(group_id, PARTITIONS)
    with closing(Scene(cluster, topic, PARTITIONS, group_id, tmp_path)) as made:
        made.proxy = proxy
        yield made


@pytest.mark.slow
def test_answers_to_commits_that_get_lost_during_a_rebalance_hold_up_nothing_for_long(stage):
    scene = stage
    scene.start(workers=2)
    scene.under_load()
    scene.flowing()
    with scene.proxy.withholding(ApiKey.OFFSET_COMMIT):
        at = time.monotonic()
        until(lambda: scene.proxy.kept[ApiKey.OFFSET_COMMIT], 10, "a commit without an answer")
        for pid in scene.worker_pids():
            scene.forgive(pid)  # what is given away unacknowledged is read again
        other = scene.foreign("cooperative-sticky")
        until(lambda: time.monotonic() > at + LOST_S, LOST_S + 1, "time to pass")
        lost = scene.proxy.kept[ApiKey.OFFSET_COMMIT]
    back = time.monotonic()

    def settled():
        group = scene.cluster.describe_group(scene.group)
        return group.state == "Stable" and len(group.members) == 2 and len(other.assigned) == PARTITIONS // 2

    until(settled, 60, "a stable group of two")
    took = this_run().quiet_s(back, time.monotonic())
    before = scene.committed()
    scene.flowing(partitions=set(scene.partitions) - other.assigned)
    until(
        lambda: all(o > before.get(p, 0) for p, o in scene.committed().items() if p not in other.assigned),
        30,
        "commits of the job's partitions",
    )
    print(f"{lost} answers lost; stable {took:.1f} s after, commits {time.monotonic() - back:.1f} s after")
    other.leave()
    scene.flowing()
    scene.settle()
    assert took <= AFTER_S


LATE_S = 12.0
TAKEN_ON_S = 3 * LATE_S + 10
"""By then what a member owns is read: it asks for its offsets, asks again after a revocation that cut that off, and once more where that
was on its way."""


@pytest.mark.slow
def test_a_job_and_another_member_read_what_they_own_though_offsets_come_late(stage):
    """The revocation for the member that joins cuts off what takes on the first assignment: partitions that stay are assigned
    once only."""
    scene = stage
    events = {}
    with scene.proxy.delaying(LATE_S, ApiKey.OFFSET_FETCH):
        scene.under_load()
        scene.start(workers=2, config={"rebalance_timeout_ms": 10_000, "drain_timeout_ms": 5_000})
        begun = time.monotonic()
        until(lambda: scene.proxy.kept[ApiKey.OFFSET_FETCH], 20, "a question for committed offsets")
        other = scene.foreign("cooperative-sticky", session_timeout_ms=45_000)
        for what, owned in (
            ("joined", lambda: set(scene.partitions) - other.assigned),
            ("left", lambda: set(scene.partitions)),
        ):
            if what == "left":
                other.leave()
                other.assigned.clear()
            else:
                until(lambda: len(other.assigned) == PARTITIONS // 2, TAKEN_ON_S, "a share of each member")
                until(
                    lambda: scene.cluster.describe_group(scene.group).state == "Stable", 20, "a stable group"
                )
            since = time.monotonic()
            scene.flowing(TAKEN_ON_S, owned())
            events[what] = time.monotonic() - since
        print(
            f"read {events['joined']:.1f} s after both had a share, {events['left']:.1f} s after one had left"
        )
        print(f"{scene.proxy.kept[ApiKey.OFFSET_FETCH]} answers late, {time.monotonic() - begun:.0f} s")
    scene.settle()


@pytest.mark.parametrize(
    ("late", "late_s", "session_s", "heartbeat_s"),
    [
        (ApiKey.OFFSET_FETCH, LATE_S / 3, 10, 1),
        pytest.param(ApiKey.OFFSET_FETCH, LATE_S, 45, 3, marks=pytest.mark.slow),
        pytest.param(ApiKey.FIND_COORDINATOR, LATE_S / 3, 10, 1, marks=pytest.mark.slow),
    ],
    ids=["offsets", "offsets by usual limits", "coordinator"],
)
def test_two_consumers_read_what_they_own_though_offsets_or_the_coordinator_come_late(
    proxied, group_id, late, late_s, session_s, heartbeat_s
):
    """Later than any heartbeat that is sent meanwhile may be answered: within a fifth of the session."""
    cluster, proxy = proxied
    topic = cluster.create_topic(group_id, PARTITIONS)
    produce = Produce(cluster.bootstrap_servers)
    for partition in range(PARTITIONS):
        produce(topic, [b"%d" % partition] * 100, partition=partition)
    options = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "auto_offset_reset": "earliest",
        "partition_assignment_strategy": ["cooperative-sticky"],
        "max_poll_interval_ms": 10_000,
        "session_timeout_ms": session_s * 1000,
        "heartbeat_interval_ms": heartbeat_s * 1000,
    }
    read_of, ended = set(), threading.Event()

    def reads():
        with ka.Consumer([topic], group_id=group_id, **options) as consumer:
            while not ended.is_set():
                batch = consumer.poll_batch(timeout_ms=100)
                if batch is not None:
                    read_of.update(batch["partition"].to_pylist())

    with proxy.delaying(late_s, late):
        threads = [threading.Thread(target=reads, name=f"reads-{n}") for n in range(2)]
        try:
            threads[0].start()
            until(lambda: proxy.kept[late], 20, "a question that is answered late")
            threads[1].start()
            begun = time.monotonic()
            until(lambda: len(read_of) == PARTITIONS, TAKEN_ON_S, "records of every partition")
            print(f"all read {time.monotonic() - begun:.1f} s after the second had joined")
        finally:
            ended.set()
            for thread in threads:
                thread.join(slow_s(60))
    assert not any(thread.is_alive() for thread in threads)


def test_stop_in_the_midst_of_a_commit_returns_in_its_time(stage):
    scene = stage
    scene.start(workers=2)
    scene.under_load()
    scene.flowing()
    pids = set(scene.pids().values())
    with scene.proxy.withholding(ApiKey.OFFSET_COMMIT):
        until(lambda: scene.proxy.kept[ApiKey.OFFSET_COMMIT], 10, "a commit without an answer")
        at = time.monotonic()
        scene.running.stop(timeout=10)
        took = this_run().quiet_s(at, time.monotonic())
        scene.running.stop(timeout=10)
    print(f"stopped in {took:.1f} s")
    assert took <= 10 + 1
    assert scene.running.status().state == "stopped"
    until(lambda: not any(exists(pid) for pid in pids), 5, "the end of all actors")
    scene.load.stop()
    processed = {p: max(c) + 1 for p, c in scene.journal.counts().items()}
    assert all(offset <= processed[p] for p, offset in scene.committed().items())
    assert scene.missing(scene.committed()) == {}


def test_close_in_the_midst_of_a_commit_returns_in_its_time(proxied, group_id):
    before = set(threading.enumerate())
    cluster, proxy = proxied
    topic = cluster.create_topic(group_id, 2)
    Produce(cluster.bootstrap_servers)(topic, [b"%d" % n for n in range(100)])
    consumer = ka.Consumer(
        [topic],
        group_id=group_id,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
    )
    with proxy.withholding(ApiKey.OFFSET_COMMIT):
        deadline = time.monotonic() + slow_s(20)
        while not proxy.kept[ApiKey.OFFSET_COMMIT]:
            assert time.monotonic() < deadline, "no commit"
            consumer.poll_batch(timeout_ms=100)
        begun = time.monotonic()
        consumer.close(timeout_ms=3000)
        took = this_run().quiet_s(begun, time.monotonic())
    print(f"closed in {took:.1f} s")
    assert took <= 3 + 2

    def left():
        started = {t.name for t in set(threading.enumerate()) - before}
        return {name for name in started if name.startswith(("kafka-consumer", "fetch-"))}

    until(lambda: not left(), 5, "the end of its threads", shown=left)


def test_connections_that_a_router_forgot_cost_a_request_timeout_after_a_pause(proxied, group_id):
    cluster, proxy = proxied
    topic = cluster.create_topic(group_id, 2)
    produce, request_timeout = Produce(cluster.bootstrap_servers), 3.0
    with ka.Consumer(
        [topic],
        group_id=group_id,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        request_timeout_ms=int(request_timeout * 1000),
    ) as consumer:
        produce(topic, [b"1"] * 10, partition=0)
        assert read(consumer, 10, 30) == [b"1"] * 10
        consumer.pause(*consumer.assignment())
        generation = cluster.generations(group_id)[-1]
        end = time.monotonic() + 5
        while time.monotonic() < end:
            assert consumer.poll_batch(timeout_ms=100) is None
        with proxy.losing_connections():
            produce(topic, [b"2"] * 10, partition=0)
            begun = time.monotonic()
            consumer.resume(*consumer.assignment())
            assert read(consumer, 10, 30) == [b"2"] * 10
            took = this_run().quiet_s(begun, time.monotonic())
            consumer.commit()
            assert cluster.committed(group_id)[topic, 0] == 20
            assert cluster.generations(group_id)[-1] == generation
    print(f"first records {took:.1f} s after the resume")
    assert took <= request_timeout + 1


def read(consumer, count, seconds):
    """The values of so many records."""
    found = []

    def more():
        batch = consumer.poll_batch(timeout_ms=100)
        found.extend([] if batch is None else batch["value"].to_pylist())
        return len(found) >= count

    until(more, seconds, f"{count} records", pause=0, shown=lambda: len(found))
    return found
