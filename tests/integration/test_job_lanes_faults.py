"""Workers that share a partition, while the topic is made anew, the log is cut, the group's offsets are reset, another client is in the
group, and brokers die: nothing is lost, each key keeps its order, and all is committed."""

import threading
import time
from contextlib import suppress

import pytest
from jobs.by_key import InTasks, missing, out_of_order, repeated
from jobs.ordered import OrderedJob, by_value
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.admin import OffsetTarget
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.plugin import started

__all__ = ["by_value"]

pytestmark = pytest.mark.ray

WORKERS = 3
TP = ka.TopicPartition
UNFORCED = {"start_timeout_s": 600, "drain_timeout_ms": 300_000, "rebalance_timeout_ms": 600_000}
"""A drain that is forced repeats what is in hand."""


class SharedJob(OrderedJob):
    """A job whose workers share the partitions of a topic. Keys end with the name of what was written together."""

    def write(self, count, name=b"a", partitions=1):
        keys = [b"hot" if n % 10 == 1 else b"%d" % (n % 300) for n in range(count)]
        self.fill(count, lambda n: keys[n] + b"-" + name, partitions)

    def start(self, most_s=0.05, **config):
        more = {"heartbeat_interval_ms": 300, "auto_commit_interval_ms": 100, **UNFORCED, **config}
        job = self.job(
            InTasks, most_s, ordering="key", concurrency=6, workers=WORKERS, until=None, config=more
        )
        self.running = job.start()

    def stop(self):
        assert self.running.stop(timeout=slow_s(60))

    def sharing(self):
        """Numbers of workers that share each partition."""
        return [len(p.worker.split(", ")) for p in self.running.status().partitions if p.worker]

    def shared(self, *numbers):
        wanted = list(numbers or (WORKERS,))
        until(lambda: self.sharing() == wanted, 120, "workers that share a partition", shown=self.sharing)

    def of(self, name):
        return [call for call in self.calls() if call.key.endswith(f"-{name}")]

    def done(self, name, count):
        def found():
            return len({(c.partition, c.offset) for c in self.of(name) if c.ended is not None})

        until(lambda: found() >= count, 120, "calls", shown=found)

    def settled(self):
        until(lambda: self.committed() == self.ends(), 120, "commits", shown=self.committed)


@pytest.fixture
def scene(cluster, kafka_topic, group_id, tmp_path, produce):
    made = SharedJob(cluster, kafka_topic(1), group_id, tmp_path, produce)
    yield made
    with suppress(AttributeError, ka.JobFailed):
        made.running.stop()


@pytest.mark.parametrize("max_age_ms", [500, 300_000], ids=["coordinator-hears-first", "workers-hear-first"])
def test_a_topic_that_is_made_anew_is_read_from_its_start_by_all(scene, max_age_ms):
    scene.write(1_500)
    scene.start(on_data_loss="reset", metadata_max_age_ms=max_age_ms)
    scene.shared()
    scene.done("a", 300)
    scene.cluster.delete_topic(scene.topic)
    time.sleep(1.0)
    scene.cluster.create_topic(scene.topic, 1)
    scene.write(400, b"b")
    scene.done("b", 400)
    scene.settled()
    scene.shared()
    scene.write(100, b"b")
    scene.done("b", 500)
    scene.settled()
    scene.stop()
    assert missing(scene.of("b"), scene.ends()) == {}
    assert out_of_order(scene.of("b")) == []
    assert out_of_order(scene.of("a")) == []


def test_where_the_log_is_cut_all_go_on_and_nothing_that_is_left_of_it_is_lost(
    fake_kafka, kafka_topic, group_id, tmp_path, produce
):
    """Workers have read further than where it was cut, and done less."""
    topic = fake_kafka.create_topic(group_id, 1)
    scene = SharedJob(fake_kafka, topic, group_id, tmp_path, produce)
    for _ in range(15):  # a batch each: whole ones are cut
        scene.write(100)
    scene.start(most_s=0.2, on_data_loss="reset")
    try:
        scene.shared()
        scene.done("a", 200)
        fake_kafka.truncate(topic, 0, 1_000)
        cut = fake_kafka.end_offsets(topic)[topic, 0]
        scene.write(300, b"b")
        scene.done("b", 300)
        scene.settled()
        scene.stop()
    finally:
        scene.running.stop()
    kept = [call for call in scene.calls() if call.offset < cut or call.key.endswith("-b")]
    assert missing(kept, scene.ends()) == {}
    assert out_of_order(scene.of("b")) == []


@pytest.fixture(scope="module")
def unclean_brokers():
    """Two brokers of which the one that comes back leads, whatever it lacks."""
    yield from started(2, broker_config={"unclean.leader.election.enable": "true"})


@pytest.mark.kafka
@pytest.mark.slow
def test_a_log_that_lost_its_end_on_real_brokers_is_gone_on_in_by_all(
    unclean_brokers, group_id, tmp_path, produce
):
    """The leader takes records that its follower, which is down, never sees; then it goes and the follower leads."""
    brokers = unclean_brokers
    topic = brokers.create_topic(group_id, replica_assignment=[[1, 2]])
    scene = SharedJob(brokers, topic, group_id, tmp_path, produce)
    scene.write(1_000)
    scene.start(most_s=1.0, on_data_loss="reset")
    try:
        scene.shared()
        scene.done("a", 100)
        brokers.shutdown(2)
        scene.write(200, b"lost")
        until(lambda: scene.running.status().partitions[0].position == 1_200, 60, "the window to be filled")
        brokers.shutdown(1)
        brokers.restart(2)
        until(lambda: brokers.leaders(topic) == {0: 2}, 60, "the other broker to lead")
        assert scene.ends() == {TP(topic, 0): 1_000}
        assert len(scene.of("a")) < 1_000, "some of what is in flight is in front of the cut"
        brokers.restart(1)
        scene.write(100, b"b")
        scene.done("b", 100)
        scene.settled()
        scene.stop()
    finally:
        scene.running.stop()
    kept = [call for call in scene.calls() if not call.key.endswith("-lost")]
    assert missing(kept, scene.ends()) == {}
    assert out_of_order(scene.of("b")) == []


def test_offsets_that_an_operator_has_reset_in_between_are_gone_on_from_by_all(scene):
    """An operator's reset takes back records that were done beyond the committed offset, too."""
    scene.write(1_500)
    scene.start()
    scene.shared()
    scene.done("a", 400)
    scene.stop()
    with ka.Admin(bootstrap_servers=scene.cluster.bootstrap_servers) as admin:
        admin.reset_offsets(scene.group, OffsetTarget.offset(50), {scene.topic: None}, execute=True)
    before = len(scene.calls())
    scene.start()
    scene.shared()
    scene.settled()
    scene.stop()
    again = scene.calls()[before:]
    assert sorted({call.offset for call in again}) == list(range(50, 1_500))
    assert out_of_order(again) == []
    assert repeated(again) == []


def test_another_client_takes_a_partition_that_is_shared_and_gives_it_back(
    cluster, kafka_topic, group_id, tmp_path, produce
):
    scene = SharedJob(cluster, kafka_topic(2), group_id, tmp_path, produce)
    scene.write(2_000, partitions=2)
    scene.start()
    read, has_some, ended = [], threading.Event(), threading.Event()

    def visit():
        with ka.Consumer(
            topics=[scene.topic], group_id=group_id, bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest", heartbeat_interval_ms=300, auto_commit_interval_ms=100,
        ) as consumer:  # fmt: skip
            while not ended.is_set():
                batch = consumer.poll_batch(timeout_ms=100)
                if consumer.assignment():
                    has_some.set()
                if batch is not None:
                    read.extend(zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True))

    visitor = threading.Thread(target=visit)
    try:
        until(lambda: len(scene.sharing()) == 2 and max(scene.sharing()) > 1, 120, "a shared partition")
        scene.done("a", 200)
        visitor.start()
        until(has_some.is_set, 120, "the other client's share")
        scene.write(200, b"c", partitions=2)  # the job may have done by now what was there
        until(lambda: bool(read), 120, "records of the other client's share")
        ended.set()
        visitor.join()
        until(lambda: len(scene.sharing()) == 2, 120, "both partitions")
        scene.write(200, b"b", partitions=2)
        scene.settled()
        scene.stop()
    finally:
        ended.set()
        scene.running.stop()
    done = {(call.partition, call.offset) for call in scene.calls() if call.ended is not None}
    left = {(tp.partition, n) for tp, end in scene.ends().items() for n in range(end)} - done - set(read)
    assert left == set()
    assert out_of_order(scene.calls()) == []


@pytest.fixture
def three_brokers(request):
    """Three brokers of which one dies: real ones where `--kafka` says so."""
    if request.config.getoption("--kafka") in ("real", "both"):
        yield request.getfixturevalue("kafka_cluster_3")
        return
    with FakeKafka(brokers=3) as kafka:
        yield kafka


def test_brokers_that_die_cost_no_record_and_no_order(three_brokers, group_id, tmp_path, produce):
    """First the leader of the partition, then the group's coordinator."""
    topic = three_brokers.create_topic(group_id, 1, 3)
    scene = SharedJob(three_brokers, topic, group_id, tmp_path, produce)
    scene.write(1_500)
    scene.start()
    try:
        scene.shared()
        for number, victim in enumerate(
            (lambda: three_brokers.leaders(topic)[0], lambda: three_brokers.coordinator_of(group_id)), 1
        ):
            scene.done("a", 300 * number)
            broker = victim()
            three_brokers.kill(broker)
            scene.done("a", 300 * number + 200)
            three_brokers.restart(broker)
        scene.settled()
        scene.stop()
    finally:
        scene.running.stop()
    calls = scene.calls()
    assert missing(calls, scene.ends()) == {}
    assert out_of_order(calls) == []
    assert repeated(calls) == []
