"""Jobs whose calls overlap, with order by key or without, on real Kafka and Ray: many calls at once, each key in order, nothing lost
whatever dies, and little again."""

import os
import random
import signal
import time
from contextlib import suppress

import pytest
from jobs.by_key import (
    InTasks,
    InThreads,
    Waiting,
    deliveries,
    missing,
    noting,
    out_of_order,
    repeated,
    without_reason,
)
from waiting import slow_s, until

import kafka_actors as ka

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

KILLS = int(os.environ.get("KAFKA_ACTORS_TEST_KILLS_BY_KEY", "12"))
"""Faults of the ledger by key; some 2 s each."""
SEED = int(os.environ.get("KAFKA_ACTORS_TEST_SEED", "21"))


@pytest.fixture(autouse=True)
def by_value(ray_local):
    from jobs import by_key
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(by_key)
    yield
    cloudpickle.unregister_pickle_by_value(by_key)


class Scene:
    """A topic, a job over it, and the ledger of its calls."""

    def __init__(self, cluster, topic, group, directory, produce):
        self.cluster, self.topic, self.group, self.produce = cluster, topic, group, produce
        self.directory = directory / "calls"
        self.faults = {}

    def fill(self, count, key, partitions):
        keys = [key(n) for n in range(count)]
        where = [0 if k is None else sum(k) % partitions for k in keys]
        servers = self.cluster.bootstrap_servers
        self.produce(self.topic, [b"v"] * count, keys=keys, partition=where, bootstrap_servers=servers)

    def job(self, kind, most_s=0.02, *more, **options):
        return ka.Job(
            topics=[self.topic],
            group_id=self.group,
            bootstrap_servers=self.cluster.bootstrap_servers,
            process_message=noting(kind, self.directory, most_s, *more),
            **{"until": "latest", "config": {"start_timeout_s": 600}, **options},
        )

    def calls(self):
        return deliveries(self.directory)

    def ends(self):
        return {ka.TopicPartition(*tp): end for tp, end in self.cluster.end_offsets(self.topic).items()}

    def committed(self):
        return {ka.TopicPartition(*tp): offset for tp, offset in self.cluster.committed(self.group).items()}

    def check(self, slack_s=None):
        calls, ends = self.calls(), self.ends()
        assert missing(calls, ends) == {}
        assert out_of_order(calls) == []
        assert {tp: offset for tp, offset in self.committed().items() if ends[tp]} == {
            tp: end for tp, end in ends.items() if end
        }
        again = without_reason(calls, self.faults, slow_s(3.0) if slack_s is None else slack_s)
        assert again == [], f"{len(again)} of {len(repeated(calls))} that came again, such as {again[:3]}"
        return calls


@pytest.fixture
def scene(kafka_cluster, kafka_topic, group_id, tmp_path, produce):
    return Scene(kafka_cluster, kafka_topic(4), group_id, tmp_path, produce)


@pytest.mark.parametrize("kind", [InTasks, InThreads])
def test_calls_overlap_and_each_key_keeps_its_order(scene, kind):
    scene.fill(600, lambda n: None if n % 20 == 0 else b"hot" if n % 2 else b"%d" % (n % 60), 4)
    with scene.job(kind, ordering="key", concurrency=16, workers=2).start() as running:
        running.wait()
    calls = scene.check()
    assert repeated(calls) == []
    assert most_at_once(calls) > 4


def test_unordered_records_of_one_key_overlap(scene):
    scene.fill(200, lambda n: b"one", 4)
    with scene.job(InTasks, ordering="unordered", concurrency=16).start() as running:
        running.wait()
    calls = scene.calls()
    assert missing(calls, scene.ends()) == {}
    assert out_of_order(calls) != []
    assert most_at_once(calls) > 4


def most_at_once(calls):
    steps = sorted([(call.began, 1) for call in calls] + [(call.ended, -1) for call in calls])
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def test_what_was_done_beyond_a_slow_record_is_not_done_again(scene, tmp_path):
    """One record lasts, its worker is killed: of all others, which were done and committed long before, none comes again."""
    gate = tmp_path / "gate"

    scene.fill(300, lambda n: b"%d" % n, 4)
    with scene.job(Waiting, 0.0, str(gate), ordering="key", concurrency=8).start() as running:
        until(lambda: len([c for c in scene.calls() if c.ended]) >= 250, 60, "the other keys' calls")
        done = {(c.partition, c.offset) for c in scene.calls() if c.ended}
        time.sleep(slow_s(2.5))  # a commit
        (worker,) = [pid for name, pid in running.status().actors.items() if name.startswith("worker")]
        os.kill(worker, signal.SIGKILL)
        until(lambda: len({c.pid for c in scene.calls()}) == 2, 60, "the next worker's calls")
        gate.touch()
        running.wait()
    again = {(after.partition, after.offset) for _, after in repeated(scene.calls())}
    assert again.isdisjoint(done), sorted(again & done)
    assert {offset for _, offset in again} == {0}
    assert missing(scene.calls(), scene.ends()) == {}


def test_by_key_nothing_is_lost_or_out_of_order_whatever_dies(scene):
    """Workers are killed and stopped at random moments, and their number changes."""
    chance = random.Random(SEED)
    count = max(6_000, KILLS * 500)
    scene.fill(
        count, lambda n: None if n % 25 == 0 else b"hot" if n % 8 == 1 else b"%d" % chance.randrange(500), 4
    )
    job = scene.job(InTasks, 0.06, ordering="key", concurrency=32, workers=3, config={"start_timeout_s": 600})
    with job.start() as running:
        for number in range(KILLS):
            time.sleep(chance.uniform(0.5, 2.0))
            if running.status().state != "running":
                break
            hit(scene, running, chance, number)
        running.wait()
    scene.check()


def hit(scene, running, chance, number):
    """Kills or stops a worker, or changes how many there are."""
    workers = {n: pid for n, pid in running.status().actors.items() if n.startswith("worker") and pid}
    if number % 4 == 3 or not workers:
        running.scale(chance.randint(2, 4))
        return
    pid = chance.choice(sorted(workers.values()))
    scene.faults[pid] = time.monotonic()
    if chance.random() < 0.5:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(chance.uniform(0.5, 6.0))
        os.kill(pid, signal.SIGCONT)
